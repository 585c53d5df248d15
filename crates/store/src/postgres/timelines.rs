//! Recognizes servers that were replaced by a promoted standby.
//!
//! Each promotion of a standby begins a timeline with a higher number. The old server may not know of it, and may still
//! answer statements that need no standby, such as look-ups, from outdated records. So once a node has seen a timeline,
//! it does not use a server of an older one.

use tokio::sync::watch;

/// The first eight digits of the name of a WAL file.
pub(super) const TIMELINE: &str =
    "SELECT ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint";

/// The newest timeline that was seen.
#[derive(Debug, Default)]
pub(super) struct Timelines(watch::Sender<i64>);

impl Timelines {
    /// Records a server's timeline. Returns whether that server may be used.
    pub(super) fn observe(&self, timeline: i64) -> bool {
        self.0.send_if_modified(|newest| {
            let is_newer = timeline > *newest;
            *newest = timeline.max(*newest);
            is_newer
        });
        !self.is_superseded(timeline)
    }

    pub(super) fn is_superseded(&self, timeline: i64) -> bool {
        timeline < *self.0.borrow()
    }

    /// Returns when a newer timeline was seen.
    pub(super) async fn superseded(&self, timeline: i64) {
        let mut newest = self.0.subscribe();
        // This ends early only if the sender is dropped, which this struct owns.
        let _ = newest.wait_for(|newest| timeline < *newest).await;
    }
}
