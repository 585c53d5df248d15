//! Rules from a file: applied before any request is served, and again when the file changes.
//!
//! A file that is not valid at the start is an error: a deployment must not start without its limits. Later, a file that
//! is not valid changes nothing. In each namespace that the file names, its rules are the rule set `file`: one command of the
//! engine applies all of them or none, and clients cannot change them.

mod apply;
mod check;
mod gate;

pub(crate) use apply::{Applier, ENVOY, few};
pub(crate) use check::{CheckArgs, check};
pub(crate) use gate::Gate;

use crate::watch::Watch;
use apply::FILE;
use limina_node::Service;
use limina_server::rules_file::{self, Problem, Rules};
use std::{
    convert::Infallible,
    fmt,
    io::Error as IoError,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The interval at which the file is checked for changes, and failed attempts are repeated.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);
/// The interval at which failed attempts are repeated before any request is served.
const INTERVAL_AT_START: Duration = Duration::from_millis(100);
/// The most problems in one error text.
const MAX_PROBLEMS: usize = 3;

/// Why a rules file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RulesError {
    #[error("the rules file {} cannot be read: {why}", .path.display())]
    Unreadable { path: PathBuf, why: String },
    #[error("the rules file {} is not valid: {}", .path.display(), FirstProblems(.problems, "limina rules check"))]
    Invalid { path: PathBuf, problems: Vec<Problem> },
    #[error("waiting for SIGHUP")]
    Signal(#[source] IoError),
}

/// Shows the first problems, how many more there are, and the command that shows all of them.
pub(crate) struct FirstProblems<'a, P>(pub(crate) &'a [P], pub(crate) &'static str);

impl<P: fmt::Display> fmt::Display for FirstProblems<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, problem) in self.0.iter().take(MAX_PROBLEMS).enumerate() {
            write!(f, "{}{problem}", if place > 0 { "; " } else { "" })?;
        }
        match self.0.len().saturating_sub(MAX_PROBLEMS) {
            0 => Ok(()),
            more => write!(f, "; and {more} more, see `{}`", self.1),
        }
    }
}

/// Parses the text of a rules file.
pub(crate) fn parse(path: &Path, text: &Result<String, String>) -> Result<Rules, RulesError> {
    let path = || path.to_owned();
    let text = text.as_ref().map_err(|why| RulesError::Unreadable { path: path(), why: why.clone() })?;
    rules_file::parse(text).map_err(|problems| RulesError::Invalid { path: path(), problems })
}

/// A rules file that is being followed.
pub(crate) struct RulesFile {
    watch: Watch<Rules, RulesError>,
    hangup: Signal,
    /// The rules of the first reading.
    rules: Rules,
}

impl RulesFile {
    /// Reads the file. From now on, SIGHUP causes another reading.
    pub(crate) fn open(path: &Path) -> Result<RulesFile, RulesError> {
        let hangup = signal(SignalKind::hangup()).map_err(RulesError::Signal)?;
        let (watch, rules) = Watch::open(path, parse)?;
        Ok(RulesFile { watch, hangup, rules })
    }

    /// Applies the rules, calls `ready`, and then applies every change of the file, forever.
    pub(crate) async fn run(self, service: Service, ready: impl FnOnce()) -> Infallible {
        let RulesFile { mut watch, mut hangup, rules } = self;
        let mut applier = Applier::new(service, FILE);
        applier.begin(rules).await;
        ready();
        let mut is_broken = false;
        loop {
            let is_requested = tokio::select! {
                _ = hangup.recv() => true,
                () = tokio::time::sleep(INTERVAL) => false,
            };
            match watch.check(is_requested).await {
                Some(Ok(rules)) => {
                    if std::mem::take(&mut is_broken) {
                        tracing::info!(file = %watch.path().display(), "the rules file is valid again");
                    }
                    applier.set_target(rules);
                }
                Some(Err(error)) => {
                    is_broken = true;
                    tracing::error!("the rules stay as they were: {error}");
                }
                None => {}
            }
            applier.apply_due(|_| {}).await;
        }
    }
}
