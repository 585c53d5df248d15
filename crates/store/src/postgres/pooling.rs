//! Recognizes a pooler that gives each transaction another session, such as pgbouncer with `pool_mode = transaction`.
//!
//! A node needs sessions of its own: they have settings without which an append may not be durable, prepared statements, an advisory lock, and
//! notifications. A pooler that keeps a session for a connection (`pool_mode = session`) gives all of this.

use super::{
    connector::{Connector, simple_row},
    session::Session,
};
use crate::StoreError;
use std::sync::Arc;

const PROCESS: &str = "SELECT pg_backend_pid()";

/// Opens two connections, and returns one of them. Fails if they share a session.
pub(super) async fn connect(connector: &Arc<Connector>) -> Result<Session, StoreError> {
    let (one, two) = (connector.connect().await?, connector.connect().await?);
    let mut processes = Vec::new();
    for session in [&one, &two, &one, &two] {
        let [process] = simple_row(session.client(), PROCESS).await?;
        processes.push(process);
    }
    match are_apart(&processes) {
        true => Ok(one),
        false => Err(StoreError::Unusable(format!(
            "{} is behind a pooler that gives each transaction another session: Limina needs sessions of its own. Let the pooler keep a \
             session for each connection (pgbouncer: pool_mode = session), or connect to PostgreSQL directly",
            connector.location()
        ))),
    }
}

/// Whether two connections, which were asked in turns for the server process that serves them, have each a process of its own.
fn are_apart(processes: &[String]) -> bool {
    let is_kept = processes.iter().zip(processes.iter().skip(2)).all(|(first, later)| first == later);
    is_kept && processes.windows(2).all(|pair| pair[0] != pair[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_have_processes_of_their_own() {
        let check = |processes: [&str; 4], expect| {
            assert_eq!(are_apart(&processes.map(str::to_owned)), expect, "{processes:?}");
        };
        check(["7", "8", "7", "8"], true);
        // The pooler uses the session that was free last, or each in turn.
        check(["7", "7", "7", "7"], false);
        check(["7", "8", "9", "7"], false);
        check(["7", "8", "7", "7"], false);
    }
}
