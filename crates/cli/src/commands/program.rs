//! A program that runs while something is held for it.
//!
//! The program must not go on when the grant is lost: somebody else may have it by then. So the program gets SIGTERM, and SIGKILL
//! after a grace. Without a terminal (cron, systemd, CI) the program has a process group of its own, and signals go to the whole
//! group: a shell script ends together with what it has started. On a terminal it stays in the group of this process, because only
//! the terminal's foreground group may read from it.

use crate::{Exit, Failed, report, words};
use limina_client::{Error, Guard, Result};
use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags},
    process::{Pid, Signal},
};
use std::{
    ffi::OsString, future::Future, io::Write, os::unix::process::ExitStatusExt, process::ExitStatus,
    time::Duration,
};
use tokio::{
    process::{Child, Command},
    signal::unix::{self, SignalKind},
    time::Instant,
};

const SIGNALS: [Signal; 6] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2];

/// What is held, and how long a program has to end when it is lost.
pub(crate) struct Holding {
    pub(crate) what: &'static str,
    pub(crate) grace: Duration,
}

pub(crate) struct Program {
    command: Vec<OsString>,
}

impl Program {
    pub(crate) fn new(command: Vec<OsString>) -> Program {
        Program { command }
    }
}

impl Holding {
    /// Waits for the grant, runs the program, and releases the grant.
    pub(crate) async fn run<G>(
        self,
        grant: impl Future<Output = Result<Guard<G>>>,
        program: Program,
    ) -> std::result::Result<Exit, Failed> {
        // From here on no signal ends this process directly, so that the grant is released before the process ends.
        let mut signals = Signals::listen().map_err(|error| Failed::error(format!("signals: {error}")))?;
        let guard = tokio::select! {
            biased;
            signal = signals.next() => return Ok(killed_by(signal)),
            guard = grant => guard,
        };
        let guard = match guard {
            Ok(guard) => guard,
            Err(error) => {
                report(Failed::error(format!("{} was not obtained: {error}{}", self.what, holder(&error))));
                return Ok(Exit::NotObtained);
            }
        };
        let exit = match Running::start(&program, guard.fencing_token()) {
            Ok(running) => self.watch(running, &guard, &mut signals).await,
            Err(exit) => Ok(exit),
        };
        if let Err(error) = guard.release().await
            && exit.as_ref().is_ok_and(|exit| *exit != Exit::Lost)
        {
            report(Failed::error(format!("{} was not released, and ends by its ttl: {error}", self.what)));
        }
        exit
    }

    async fn watch<G>(
        &self,
        mut running: Running,
        guard: &Guard<G>,
        signals: &mut Signals,
    ) -> std::result::Result<Exit, Failed> {
        let mut kill_at: Option<Instant> = None;
        let mut killed = false;
        let status = loop {
            tokio::select! {
                status = running.child.wait() => {
                    break status.map_err(|error| Failed::error(format!("waiting for the program: {error}")))?;
                }
                signal = signals.next() => running.hand_on(signal),
                () = guard.lost().cancelled(), if kill_at.is_none() => {
                    say(&format!("{} is lost: the program gets SIGTERM", self.what));
                    running.send(Signal::TERM);
                    kill_at = Some(Instant::now() + self.grace);
                }
                () = at(kill_at), if !killed && kill_at.is_some() => {
                    say("the program still runs: it gets SIGKILL");
                    running.send(Signal::KILL);
                    killed = true;
                }
            }
        };
        // The clock decides, too: this process may have been stopped for longer than the grant lived.
        Ok(if kill_at.is_some() || guard.is_lost() { Exit::Lost } else { code_of(status) })
    }
}

/// The holders that block the request, if the answer names them.
fn holder(error: &Error) -> String {
    let Some(problem) = &error.failure().problem else { return String::new() };
    let expires = problem.extensions.get("expires_in_ms").and_then(serde_json::Value::as_u64);
    let Some(expires) = expires else { return String::new() };
    let owner = problem.extensions.get("owner").and_then(serde_json::Value::as_str);
    let owner = words::printable(owner.unwrap_or("a holder without a name"));
    format!(" It belongs to {owner}, for {} without another heartbeat.", words::duration(expires))
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// The program, running.
struct Running {
    child: Child,
    pid: Pid,
    /// The terminal, if there is one. The program is then in the process group of this process.
    terminal: Option<OwnedFd>,
}

impl Running {
    fn start(program: &Program, fencing_token: u64) -> std::result::Result<Running, Exit> {
        let terminal =
            rustix::fs::open("/dev/tty", OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())
                .ok();
        let [name, arguments @ ..] = program.command.as_slice() else { return Err(Exit::Usage) };
        let mut command = Command::new(name);
        command.args(arguments).env("LIMINA_FENCING_TOKEN", fencing_token.to_string());
        if terminal.is_none() {
            command.process_group(0);
        }
        let failed = |error: std::io::Error| {
            report(Failed::error(format!("{} cannot be run: {error}", name.to_string_lossy())));
            Exit::Program(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 })
        };
        let child = command.spawn().map_err(failed)?;
        let pid = child.id().and_then(|pid| Pid::from_raw(pid.try_into().ok()?)).ok_or(Exit::Error)?;
        Ok(Running { child, pid, terminal })
    }

    /// Hands a signal on. What the keyboard sends to the foreground group, the program has received already.
    fn hand_on(&self, signal: Signal) {
        let from_keyboard = [Signal::INT, Signal::QUIT].contains(&signal)
            && self.terminal.as_ref().is_some_and(|terminal| {
                rustix::termios::tcgetpgrp(terminal).is_ok_and(|group| group == rustix::process::getpgrp())
            });
        if !from_keyboard {
            self.send(signal);
        }
    }

    fn send(&self, signal: Signal) {
        // An error means that the program has ended meanwhile.
        let _ = match self.terminal {
            Some(_) => rustix::process::kill_process(self.pid, signal),
            None => rustix::process::kill_process_group(self.pid, signal),
        };
    }
}

fn code_of(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Program(code as u8),
        (None, signal) => Exit::Program(128 + signal.unwrap_or(0) as u8),
    }
}

fn killed_by(signal: Signal) -> Exit {
    Exit::Program(128 + signal.as_raw() as u8)
}

fn say(words: &str) {
    let _ = writeln!(anstream::stderr(), "limina: {words}");
}

/// The signals that are handed on.
struct Signals {
    listeners: Vec<(Signal, unix::Signal)>,
}

impl Signals {
    fn listen() -> std::io::Result<Signals> {
        let listen = |signal: Signal| Ok((signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?));
        Ok(Signals { listeners: SIGNALS.into_iter().map(listen).collect::<std::io::Result<_>>()? })
    }

    async fn next(&mut self) -> Signal {
        std::future::poll_fn(|context| {
            for (signal, listener) in &mut self.listeners {
                if listener.poll_recv(context).is_ready() {
                    return std::task::Poll::Ready(*signal);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }
}
