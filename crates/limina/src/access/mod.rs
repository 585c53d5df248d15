//! Access to the server: the token file, which the running server follows, and `limina token`.

mod list_tokens;
mod new_token;

pub(crate) use list_tokens::{ListTokensArgs, list_tokens};
pub(crate) use new_token::{NewTokenArgs, new_token};

use crate::{config::Config, watch::Watch};
use limina_access::{Access, Problem, Tokens};
use limina_server::Policy;
use std::{
    convert::Infallible,
    error::Error,
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The interval at which the file is checked for changes, and tokens for their expiry.
const INTERVAL: Duration = Duration::from_secs(1);

/// Why a file of tokens cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokensError {
    #[error("the token file {} cannot be read: {why}", .path.display())]
    Unreadable { path: PathBuf, why: String },
    #[error("the token file {} is not valid: {}", .path.display(), Lines(.problems))]
    Invalid { path: PathBuf, problems: Vec<Problem> },
    #[error("waiting for SIGHUP")]
    Signal(#[source] std::io::Error),
}

struct Lines<'a>(&'a [Problem]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, problem) in self.0.iter().enumerate() {
            write!(f, "{}{problem}", if place > 0 { "; " } else { "" })?;
        }
        Ok(())
    }
}

/// A file of tokens that is being followed.
pub(crate) struct TokensFile {
    watch: Watch<Tokens, TokensError>,
    hangup: Signal,
    access: Access,
}

impl TokensFile {
    /// Reads the file. From now on, SIGHUP causes another reading.
    pub(crate) fn open(path: &Path) -> Result<TokensFile, TokensError> {
        let hangup = signal(SignalKind::hangup()).map_err(TokensError::Signal)?;
        let (watch, tokens) = Watch::open(path, parse)?;
        tracing::info!(file = %path.display(), tokens = tokens.len(), "clients need a token");
        Ok(TokensFile { watch, hangup, access: Access::new(tokens) })
    }

    /// Follows the file forever. A file that is not valid changes nothing.
    pub(crate) async fn run(mut self) -> Infallible {
        loop {
            let is_requested = tokio::select! {
                _ = self.hangup.recv() => true,
                () = tokio::time::sleep(INTERVAL) => false,
            };
            match self.watch.check(is_requested).await {
                Some(Ok(tokens)) => {
                    let file = self.watch.path().display();
                    tracing::info!(%file, tokens = tokens.len(), "the token file is applied");
                    self.access.replace(tokens);
                }
                Some(Err(error)) => tracing::error!("the tokens stay as they were: {error}"),
                None => {}
            }
            self.access.tick();
        }
    }
}

fn parse(path: &Path, text: &Result<String, String>) -> Result<Tokens, TokensError> {
    let path = || path.to_owned();
    let text = text.as_ref().map_err(|why| TokensError::Unreadable { path: path(), why: why.clone() })?;
    limina_access::parse(text).map_err(|problems| TokensError::Invalid { path: path(), problems })
}

/// The access control of a server that listens on this address.
pub(crate) fn policy(
    config: &Config,
    tokens: Option<&TokensFile>,
    listening: SocketAddr,
) -> Result<Policy, Box<dyn Error>> {
    let policy = match tokens {
        Some(tokens) => Policy::tokens(tokens.access.clone()),
        None if config.insecure_no_auth => {
            tracing::warn!("no tokens: everybody who reaches {listening} can do everything");
            Policy::anyone()
        }
        None if listening.ip().to_canonical().is_loopback() => Policy::loopback(),
        None => {
            return Err(format!(
                "without tokens the server listens on loopback addresses only, and {listening} is none: \
                 set --tokens FILE (`limina token new` makes a token), or --insecure-no-auth to let everybody in"
            )
            .into());
        }
    };
    Ok(policy.allow_origins(config.allow_origin.clone()))
}
