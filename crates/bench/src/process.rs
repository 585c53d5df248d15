//! Servers in their own processes.

use crate::Failed;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    io::{BufRead, BufReader},
    net::{SocketAddr, TcpListener},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// Starting and stopping never take this long. The deadline turns a hang into a failure.
const DEADLINE: Duration = Duration::from_secs(60);

/// A running process, which is stopped when the value is dropped.
pub(crate) struct Process {
    child: Child,
    stop: Signal,
}

impl Process {
    /// Starts a process. `stop` is the signal that ends it cleanly.
    pub(crate) fn start(command: &mut Command, stop: Signal) -> Result<Process, Failed> {
        let program = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null());
        let child = command.spawn().map_err(|error| format!("starting {program}: {error}"))?;
        Ok(Process { child, stop })
    }

    /// Starts a server that prints its address to standard error, as `limina` does.
    pub(crate) fn serving(command: &mut Command) -> Result<(Process, SocketAddr), Failed> {
        let mut process = Process::start(command.stderr(Stdio::piped()), Signal::TERM)?;
        let output = process.child.stderr.take().expect("it is piped");
        let (sender, receiver) = mpsc::channel();
        // Read to the end, because the server would block on a full pipe.
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                match address_in(&line) {
                    Some(address) => drop(sender.send(address)),
                    None if line.contains(" INFO ") => {}
                    None => eprintln!("{line}"),
                }
            }
        });
        let address = receiver.recv_timeout(DEADLINE);
        let address = address.map_err(|_| "the server did not say where it listens; see above")?;
        Ok((process, address))
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the process, if it still runs.
    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let _gone_already = id.map(|id| kill_process(id, signal));
    }

    /// Stops the process and waits for its end.
    pub(crate) fn stop(mut self) -> Result<(), Failed> {
        match self.end() {
            true => Ok(()),
            false => Err("a server had to be killed".into()),
        }
    }

    /// Stops the process. Returns false if it had to be killed.
    fn end(&mut self) -> bool {
        if let Ok(Some(_)) = self.child.try_wait() {
            return true;
        }
        self.signal(self.stop);
        let begin = Instant::now();
        while begin.elapsed() < DEADLINE {
            if let Ok(Some(_)) = self.child.try_wait() {
                return true;
            }
            thread::sleep(Duration::from_millis(5));
        }
        let _gone_already = self.child.kill();
        let _status = self.child.wait();
        false
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// The address behind `http://` in a line of text.
fn address_in(line: &str) -> Option<SocketAddr> {
    let rest = line.split("http://").nth(1)?;
    rest.split(|letter: char| letter != ':' && letter != '.' && !letter.is_ascii_digit()).next()?.parse().ok()
}

/// An address on which no process listens at the moment, for servers that cannot choose a free port.
pub(crate) fn free_address() -> Result<SocketAddr, Failed> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Repeats an attempt until it succeeds or the deadline has passed.
pub(crate) async fn eventually<T, E: Into<Failed>>(
    mut attempt: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T, Failed> {
    let begin = Instant::now();
    loop {
        match attempt().await {
            Ok(done) => return Ok(done),
            Err(error) if begin.elapsed() > DEADLINE => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}
