//! File descriptors: the limit of the process, and how it is divided.
//!
//! Connections get what the store does not need. If connections could use all descriptors, the journal could not open its
//! next segment, and every write would fail.

use crate::config::Config;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// Descriptors besides the store's files and the connections of clients: standard streams, the runtime, the listener, logs, locks, and
/// files that a compaction or a checkpoint opens temporarily.
const OTHERS: u64 = 24;
/// The table's files that stay open between look-ups: an eighth of all descriptors, within this minimum and maximum.
const TABLE_FILES: [u64; 2] = [8, 384];
/// Segments that the journal may have open beyond its configured size: checkpoints shorten the journal later than writes
/// extend it.
const MORE_SEGMENTS: u64 = 4;
/// The process does not start if fewer connections are left.
const LEAST_CONNECTIONS: u64 = 8;

/// How the descriptors are divided.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Descriptors {
    /// The most connections of clients.
    pub(crate) connections: usize,
    /// Files of the table that stay open between look-ups. On a shared store there is no such file, and these are the most
    /// connections of other nodes.
    pub(crate) table_files: usize,
}

impl Descriptors {
    /// Raises the limit of the process as far as the system allows, and divides it.
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

/// Raises the soft limit to the hard limit, and returns the limit that is in effect.
fn raise() -> io::Result<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
        // Some systems have a lower maximum of their own, and reject more without telling what it is. Then the present limit stays, unless
        // there is none.
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
    fn the_store_gets_descriptors_before_connections() {
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
