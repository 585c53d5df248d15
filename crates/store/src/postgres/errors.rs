//! What the errors of PostgreSQL mean for the store: which are permanent, which end a connection, which may be retried.

use crate::StoreError;
use std::{error::Error as _, io};
use tokio_postgres::{
    Error,
    error::{Severity, SqlState},
};

/// How often a statement is tried if it conflicts with another one.
pub(super) const ATTEMPTS: usize = 5;

/// The error's text with those of its causes. The server's details are left out, because they may contain data.
pub(super) fn describe(error: &Error) -> String {
    if let Some(said) = error.as_db_error() {
        return format!("{}: {} ({})", said.severity(), said.message(), said.code().code());
    }
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    words
}

/// Whether retrying cannot help: a wrong role or password, a database that does not exist, missing rights, a server
/// that does not encrypt or whose certificate is not trusted.
pub(super) fn is_permanent(error: &Error) -> bool {
    const CODES: [SqlState; 4] = [
        SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
        SqlState::INVALID_PASSWORD,
        SqlState::INVALID_CATALOG_NAME,
        SqlState::INSUFFICIENT_PRIVILEGE,
    ];
    if let Some(code) = error.code() {
        return CODES.contains(code);
    }
    // The client library distinguishes these errors only by their text.
    let words = error.to_string();
    let is_ours = ["error performing TLS handshake", "authentication error", "invalid configuration"];
    is_ours.contains(&&words[..]) && !is_connection_loss(error)
}

/// Whether the cause is a lost connection.
fn is_connection_loss(error: &Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut, UnexpectedEof};
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            let lost = [BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut, UnexpectedEof];
            return lost.contains(&error.kind());
        }
        cause = error.source();
    }
    false
}

impl From<Error> for StoreError {
    fn from(error: Error) -> StoreError {
        let words = format!("PostgreSQL: {}", describe(&error));
        if is_permanent(&error) { StoreError::Unusable(words) } else { StoreError::Unavailable(words) }
    }
}

pub(super) fn timed_out() -> StoreError {
    StoreError::Unavailable("PostgreSQL gave no answer in time".to_string())
}

/// Whether the statement conflicted with another one and may be retried.
pub(super) fn is_conflict(error: &Error) -> bool {
    matches!(error.code(), Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED))
}

/// Whether the connection is unusable after this error, even if its session has not noticed yet.
pub(super) fn ends_session(error: &Error) -> bool {
    error.as_db_error().is_none_or(|said| said.parsed_severity() != Some(Severity::Error))
}

/// The server sent a warning with its answer, so the answer cannot be trusted. For example, it no longer waits for a
/// synchronous standby, but still reports success.
pub(super) fn warning_received() -> StoreError {
    StoreError::Unavailable("PostgreSQL gave a warning with its answer".to_string())
}
