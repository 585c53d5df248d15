//! `limina lock` and `limina lease`: run a program while something is held for it.

use super::program::{Holding, Program};
use crate::{Exit, Failed, KeyValueArg, Session, Span, key_values};
use limina_client::{Error, Guard};
use std::{ffi::OsString, time::Duration};
use tokio::time::Instant;

/// The server waits at most this long for one request.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// The arguments of `lock`.
#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct LockArgs {
    /// The lock: KEY=TEXT, or KEY:=JSON for a number or a boolean
    #[arg(value_name = "KEY=VALUE", required = true)]
    key_values: Vec<KeyValueArg>,
    /// Share the lock with others that share it
    #[arg(long)]
    shared: bool,
    #[command(flatten)]
    hold: HoldArgs,
}

/// The arguments of `lease`.
#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct LeaseArgs {
    /// What is in use: KEY=TEXT, or KEY:=JSON for a number or a boolean
    #[arg(value_name = "KEY=VALUE", required = true)]
    key_values: Vec<KeyValueArg>,
    /// How many slots to take
    #[arg(long, value_name = "N", default_value_t = 1)]
    hits: u64,
    /// Do not run the program if no rule applies
    #[arg(long)]
    require_match: bool,
    #[command(flatten)]
    hold: HoldArgs,
}

#[derive(clap::Args, Debug)]
struct HoldArgs {
    /// How long it is held after the last heartbeat; heartbeats come every third of it
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    ttl: Span,
    /// How long to wait for it
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    wait: Span,
    /// The name that others see [default: user@host and the process id]
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    /// If it is lost: how long the program has after SIGTERM, before SIGKILL
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    grace: Span,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

const AFTER_HELP: &str = "\
The program finds its fencing token in LIMINA_FENCING_TOKEN. Signals are handed on to it.
Exit codes: the program's own (128 and the signal if a signal ended it); 75 if it was not started because nothing was
obtained; 76 if what was held was lost while it ran; 126 or 127 if it cannot be run or does not exist.";

pub(crate) async fn lock(args: LockArgs, session: &mut Session) -> Result<Exit, Failed> {
    let key_values = key_values::joined(&args.key_values)?;
    let holding = Holding { what: "the lock", grace: args.hold.grace.0 };
    let client = session.client.clone();
    let owner = args.hold.owner();
    let ttl = args.hold.ttl.0;
    let request = async |wait| {
        let lock = client.lock(key_values.clone(), ttl).owner(&owner).wait(wait);
        if args.shared { lock.shared().await } else { lock.await }
    };
    holding.run(repeated(request, args.hold.wait.0), Program::new(args.hold.command)).await
}

pub(crate) async fn lease(args: LeaseArgs, session: &mut Session) -> Result<Exit, Failed> {
    let key_values = key_values::joined(&args.key_values)?;
    let holding = Holding { what: "the lease", grace: args.hold.grace.0 };
    let client = session.client.clone();
    let owner = args.hold.owner();
    let ttl = args.hold.ttl.0;
    let request = async |wait| {
        let lease = client.lease(key_values.clone(), ttl).owner(&owner).wait(wait).hits(args.hits);
        if args.require_match { lease.require_match().await } else { lease.await }
    };
    holding.run(repeated(request, args.hold.wait.0), Program::new(args.hold.command)).await
}

/// Waits longer than one request can, by asking again.
async fn repeated<G>(
    request: impl AsyncFn(Duration) -> limina_client::Result<Guard<G>>,
    wait: Duration,
) -> limina_client::Result<Guard<G>> {
    let deadline = Instant::now() + wait;
    let mut left = wait;
    loop {
        let (began, asked) = (Instant::now(), left.min(LONGEST_WAIT));
        let result = request(asked).await;
        left = deadline.duration_since(Instant::now());
        // A refusal before the end of its wait is one that waiting does not cure. The server's clock may run faster, by a twentieth at most.
        let timed_out = matches!(&result, Err(Error::Refused(_))) && began.elapsed() >= asked - asked / 16;
        if !timed_out || left.is_zero() {
            return result;
        }
    }
}

impl HoldArgs {
    fn owner(&self) -> String {
        let default = || {
            let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
            let user = user.unwrap_or_else(|_| rustix::process::getuid().as_raw().to_string());
            let system = rustix::system::uname();
            format!("{user}@{} pid {}", system.nodename().to_string_lossy(), std::process::id())
        };
        self.owner.clone().unwrap_or_else(default)
    }
}
