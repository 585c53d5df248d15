//! File descriptors: how many the process may have, and who gets them.
//!
//! Connections get what the store leaves. Were they to take all, the journal could not open its next segment, and every
//! write would fail.

use crate::config::Config;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// What is open beside the store's files and connections: standard streams, the runtime, the listener, logs, locks, and
/// what a compaction or a checkpoint opens for a while.
const OTHERS: u64 = 24;
/// How many of the table's files stay open between two look-ups: an eighth of all, but at least and at most so many.
const TABLE_FILES: [u64; 2] = [8, 384];
/// Segments that the journal may have open beyond those that its size allows: it is brought down behind the writes.
const MORE_SEGMENTS: u64 = 4;
/// Fewer connections are not worth a start.
const LEAST_CONNECTIONS: u64 = 8;

/// Who gets how many.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Descriptors {
    /// Clients' connections.
    pub(crate) connections: usize,
    /// Files of the table that stay open between two look-ups.
    pub(crate) table_files: usize,
}

impl Descriptors {
    /// Raises the process's limit as far as it may, and shares it out.
    pub(crate) fn prepare(config: &Config) -> Result<Descriptors, String> {
        let limit = raise().map_err(|error| format!("cannot raise the limit of open files: {error}"))?;
        let segments = match &config.store {
            None => config.journal_mib.div_ceil(config.journal_segment_mib) + MORE_SEGMENTS,
            Some(_) => 0,
        };
        Descriptors::share(limit, segments)
    }

    fn share(limit: u64, segments: u64) -> Result<Descriptors, String> {
        let [least, most] = TABLE_FILES;
        let table_files = (limit / 8).clamp(least, most);
        let store = OTHERS + segments + table_files;
        match limit.checked_sub(store).filter(|left| *left >= LEAST_CONNECTIONS) {
            Some(left) => Ok(Descriptors {
                connections: usize::try_from(left).unwrap_or(usize::MAX),
                table_files: table_files as usize,
            }),
            None => Err(format!(
                "the process may have only {limit} files open, and needs at least {}: raise the limit (ulimit -n, or \
                 LimitNOFILE of systemd)",
                store + LEAST_CONNECTIONS
            )),
        }
    }
}

/// Raises the soft limit to the hard one; returns what holds then.
fn raise() -> io::Result<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
        // Some systems have a lower bound of their own, and tell it only by refusing.
        if let (Err(error), None) = (raised, current) {
            return Err(error.into());
        }
    }
    Ok(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_comes_before_connections() {
        let check = |limit, segments, expected: Option<(usize, usize)>| {
            let shared = Descriptors::share(limit, segments);
            let expected =
                expected.map(|(connections, table_files)| Descriptors { connections, table_files });
            assert_eq!(shared.as_ref().ok(), expected.as_ref(), "{limit} {segments} {shared:?}");
        };
        check(64, 20, Some((12, 8)));
        check(59, 20, None);
        check(1024, 20, Some((852, 128)));
        check(1 << 20, 20, Some(((1 << 20) - 428, 384)));
        check(u64::MAX, 0, Some((usize::MAX - 408, 384)));
        let refused = Descriptors::share(59, 20).expect_err("too few");
        assert!(refused.contains("only 59 files open, and needs at least 60"), "{refused}");
    }
}
