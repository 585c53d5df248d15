//! Rules from a file: applied before anything is served, and again when the file changes.
//!
//! A file that is broken at the start is an error: a deployment must not come up without its limits. Later a broken
//! file changes nothing. Each namespace is applied whole or not at all, by one command of the engine, which also keeps
//! clients from changing what the file has made.

mod apply;
mod check;
mod gate;
mod watch;

pub(crate) use check::{CheckArgs, check};
pub(crate) use gate::Gate;

use apply::Applier;
use limina_node::Service;
use limina_server::rules_file::{Problem, Rules};
use std::{
    convert::Infallible,
    fmt,
    io::Error as IoError,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use watch::Watch;

/// How often the file is looked at, and what could not be applied is tried again.
const EVERY: Duration = Duration::from_secs(1);
/// The same before anything is served.
const AT_START: Duration = Duration::from_millis(100);
/// So many problems are told in one line.
const TOLD: usize = 3;

/// What is wrong with a file of rules.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RulesError {
    #[error("the rules file {} cannot be read: {why}", .path.display())]
    Unreadable { path: PathBuf, why: String },
    #[error("the rules file {} is not valid: {}", .path.display(), Few(.problems))]
    Invalid { path: PathBuf, problems: Vec<Problem> },
    #[error("waiting for SIGHUP")]
    Signal(#[source] IoError),
}

/// The first of many problems.
struct Few<'a>(&'a [Problem]);

impl fmt::Display for Few<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, problem) in self.0.iter().take(TOLD).enumerate() {
            write!(f, "{}{problem}", if place > 0 { "; " } else { "" })?;
        }
        match self.0.len().saturating_sub(TOLD) {
            0 => Ok(()),
            more => write!(f, "; and {more} more, see `limina rules check`"),
        }
    }
}

/// A file that rules the limiter.
pub(crate) struct RulesFile {
    watch: Watch,
    hangup: Signal,
    /// What is to be applied first.
    rules: Rules,
}

impl RulesFile {
    /// Reads the file. From now on SIGHUP asks for another look at it.
    pub(crate) fn open(path: &Path) -> Result<RulesFile, RulesError> {
        let hangup = signal(SignalKind::hangup()).map_err(RulesError::Signal)?;
        let (watch, rules) = Watch::open(path)?;
        Ok(RulesFile { watch, hangup, rules })
    }

    /// Applies the rules; then calls `ready`, and follows the file for ever.
    pub(crate) async fn run(self, service: Service, ready: impl FnOnce()) -> Infallible {
        let RulesFile { mut watch, mut hangup, rules } = self;
        let mut applier = Applier::new(service);
        applier.begin(rules).await;
        ready();
        let mut is_broken = false;
        loop {
            let asked = tokio::select! {
                _ = hangup.recv() => true,
                () = tokio::time::sleep(EVERY) => false,
            };
            match watch.look(asked).await {
                Some(Ok(rules)) => {
                    if std::mem::take(&mut is_broken) {
                        tracing::info!(file = %watch.path().display(), "the rules file is valid again");
                    }
                    applier.aim(rules);
                }
                Some(Err(error)) => {
                    is_broken = true;
                    tracing::error!("the rules stay as they were: {error}");
                }
                None => {}
            }
            applier.work().await;
        }
    }
}
