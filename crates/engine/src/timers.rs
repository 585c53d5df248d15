//! Timers: what is due when.

use crate::{
    Name, Position, Time,
    ids::{NamespaceId, WaitId},
};
use alloc::{collections::BTreeMap, vec::Vec};

/// When something is due, in the order in which it is done: by time, and ties by what set the timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerKey {
    /// The instant.
    pub due: Time,
    /// Where.
    pub namespace: NamespaceId,
    /// What set the timer.
    pub source: TimerSource,
}

/// What set a timer. No two timers of a namespace that are due at the same instant have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TimerSource {
    /// That replies are kept.
    Replies,
    /// A change.
    Change(Position),
    /// A request that waits for its answer.
    Wait(WaitId),
    /// That there are window states which no answer waited for.
    UnwrittenWindows,
    /// That there are windows.
    Windows,
}

/// What is to be done then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Timer {
    /// Roll back what is still open of the hold request at this position. `due` is the stored expiry; the key's own is
    /// later where the work was postponed.
    HoldExpiry { operation_id: Name, held_at: Position, due: Time },
    /// Drop the oldest period of kept replies.
    DropReplies,
    /// Give back what a limiter's lease holds.
    LeaseExpiry { id: Name },
    /// Write window states that no answer waited for.
    WriteWindows,
    /// Look for windows that are back in their initial state.
    DropIdleWindows,
    /// Take back a lock whose holder gave no sign of life.
    LockExpiry { token: Position },
    /// Publish an event, or forget its key.
    EventKey { stream: Position, key: Position },
    /// End a wait for a lock.
    LockWait { wait: WaitId },
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
