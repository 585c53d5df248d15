//! What is due when.

use crate::{Name, Position, Time, record::key::NamespaceId};
use alloc::{collections::BTreeMap, vec::Vec};

/// When something is due, in the order in which it is done: by time, and ties by position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerKey {
    /// The instant.
    pub due: Time,
    /// Where.
    pub namespace: NamespaceId,
    /// The change that set the timer.
    pub position: Position,
}

/// What is to be done then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Timer {
    /// Roll back what is still open of the hold request at the key's position. `due` is the stored expiry; the key's
    /// own is later where the work was postponed.
    LedgerExpiry { operation_id: Name, due: Time },
    /// Drop the oldest period of kept replies.
    DropReplies,
    /// Give back what a limiter's lease holds.
    LeaseExpiry { id: Name },
    /// Write window states that no answer waited for.
    WriteWindows,
    /// Look for windows that are back in their initial state.
    DropIdleWindows,
}

impl TimerKey {
    /// Timers that no change set have positions that no change has.
    pub(crate) const DROP_REPLIES: Position = Position(0);
    pub(crate) const WRITE_WINDOWS: Position = Position(u64::MAX - 1);
    pub(crate) const DROP_IDLE_WINDOWS: Position = Position(u64::MAX);
}

/// All timers of a shard.
#[derive(Debug, Default)]
pub(crate) struct Timers(BTreeMap<TimerKey, Timer>);

impl Timers {
    pub(crate) fn set(&mut self, key: TimerKey, timer: Timer) {
        self.0.insert(key, timer);
    }

    pub(crate) fn cancel(&mut self, key: TimerKey) {
        self.0.remove(&key);
    }

    pub(crate) fn get(&self, key: TimerKey) -> Option<&Timer> {
        self.0.get(&key)
    }

    /// Moves a timer to a later time.
    pub(crate) fn postpone(&mut self, key: TimerKey, due: Time) {
        if let Some(timer) = self.0.remove(&key) {
            self.0.insert(TimerKey { due, ..key }, timer);
        }
    }

    pub(crate) fn next_due(&self) -> Option<Time> {
        self.0.first_key_value().map(|(key, _)| key.due)
    }

    /// The first timers due by `now`, at most `limit`.
    pub(crate) fn due(&self, now: Time, limit: usize) -> Vec<TimerKey> {
        self.0.keys().take_while(|key| key.due <= now).take(limit).copied().collect()
    }

    pub(crate) fn drop_namespace(&mut self, namespace: NamespaceId) {
        self.0.retain(|key, _| key.namespace != namespace);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
