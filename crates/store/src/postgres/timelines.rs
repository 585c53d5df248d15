//! Recognizes servers that must not be used: those that were replaced by a promoted standby, and those with another database.
//!
//! Each promotion of a standby begins a timeline with a higher number. The old server may not know of it, and may still
//! answer statements that need no standby, such as look-ups, from outdated records. So once a node has seen a timeline,
//! it does not use a server of an older one.
//!
//! A standby has the system identifier of its primary. A server with another identifier was made by `initdb` or restored from a dump: its
//! records have nothing to do with what this node has in memory. So a node uses only servers with the first identifier that it has seen.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering},
};
use tokio::sync::watch;

/// The system identifier, and the timeline: the first eight digits of the name of a WAL file.
pub(super) const SERVER: &str = "
    SELECT system_identifier, ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint
    FROM pg_control_system()";

/// The newest timeline that was seen, and the system identifier of the database.
#[derive(Debug, Default)]
pub(super) struct Timelines {
    newest: watch::Sender<i64>,
    system: OnceLock<i64>,
    /// Whether the last server that was seen has another system identifier.
    is_other_database: AtomicBool,
}

/// Whether a server may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It may be used.
    Current,
    /// A promoted standby has replaced it.
    Superseded,
    /// It has another system identifier.
    OtherDatabase,
}

impl Timelines {
    /// Records a server's system identifier and timeline.
    pub(super) fn observe(&self, system: i64, timeline: i64) -> Verdict {
        let known = *self.system.get_or_init(|| system);
        let is_other = system != known;
        if self.is_other_database.swap(is_other, Ordering::Relaxed) != is_other && is_other {
            tracing::error!(
                expected = known.cast_unsigned(),
                found = system.cast_unsigned(),
                "the PostgreSQL server was replaced by one with another database (another system identifier), which this node does not \
                 use; if it is the right one, restart the node"
            );
        }
        if is_other {
            return Verdict::OtherDatabase;
        }
        self.newest.send_if_modified(|newest| {
            let is_newer = timeline > *newest;
            *newest = timeline.max(*newest);
            is_newer
        });
        if self.is_superseded(timeline) { Verdict::Superseded } else { Verdict::Current }
    }

    /// Whether the last server that was seen has another database.
    pub(super) fn is_other_database(&self) -> bool {
        self.is_other_database.load(Ordering::Relaxed)
    }

    pub(super) fn is_superseded(&self, timeline: i64) -> bool {
        timeline < *self.newest.borrow()
    }

    /// Returns when a newer timeline was seen.
    pub(super) async fn superseded(&self, timeline: i64) {
        let mut newest = self.newest.subscribe();
        // This ends early only if the sender is dropped, which this struct owns.
        let _ = newest.wait_for(|newest| timeline < *newest).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_server_of_the_first_database_is_used() {
        let timelines = Timelines::default();
        let check = |system, timeline, verdict, is_other| {
            assert_eq!(timelines.observe(system, timeline), verdict);
            assert_eq!(timelines.is_other_database(), is_other);
        };
        check(-7, 1, Verdict::Current, false);
        check(-7, 2, Verdict::Current, false);
        check(-7, 1, Verdict::Superseded, false);
        check(8, 3, Verdict::OtherDatabase, true);
        check(-7, 2, Verdict::Current, false);
    }
}
