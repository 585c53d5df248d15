//! Which server is the last of those that took writes.
//!
//! Each promotion of a standby begins a timeline with a higher number. The server before it may not know, and still answers
//! what needs no standby: look-ups, from records that are out of date. So once a node has seen a timeline, it uses no
//! server of an older one.

use tokio::sync::watch;

/// The first eight digits of the name of a file of the server's log.
pub(super) const TIMELINE: &str =
    "SELECT ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint";

/// The newest timeline that was seen.
#[derive(Debug, Default)]
pub(super) struct Timelines(watch::Sender<i64>);

impl Timelines {
    /// Takes note of a server's timeline. Returns whether that server may be used.
    pub(super) fn see(&self, timeline: i64) -> bool {
        self.0.send_if_modified(|newest| {
            let is_newer = timeline > *newest;
            *newest = timeline.max(*newest);
            is_newer
        });
        !self.is_past(timeline)
    }

    pub(super) fn is_past(&self, timeline: i64) -> bool {
        timeline < *self.0.borrow()
    }

    /// Returns when a newer one was seen.
    pub(super) async fn past(&self, timeline: i64) {
        let mut newest = self.0.subscribe();
        // It ends early only with the sender, which is here.
        let _ = newest.wait_for(|newest| timeline < *newest).await;
    }
}
