//! Timers.

use crate::resident;
use crate::{
    Millis, Name, Position, Time,
    ids::{NamespaceId, WaitId},
};
use alloc::{collections::BTreeMap, vec::Vec};
use core::ops::Bound;

/// The key of a timer. Timers fire in this order: by time, then by namespace, then by what set them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerKey {
    /// The time at which the timer fires.
    pub due: Time,
    /// The namespace that the timer belongs to.
    pub namespace: NamespaceId,
    /// What set the timer.
    pub source: TimerSource,
}

/// What set a timer. Two timers of a namespace with the same due time never have the same source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TimerSource {
    /// Kept replies, which must be dropped.
    Replies,
    /// The change at this position.
    Change(Position),
    /// A waiting request.
    Wait(WaitId),
    /// Window states that relaxed checks have changed.
    UnwrittenWindows,
    /// Windows, which may become idle.
    Windows,
    /// Ended decisions, which must be dropped.
    EndedOperations,
}

/// What to do when the timer fires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Timer {
    /// Roll back the open holds of the hold request at this position. `due` is the stored expiry; the due time of the timer
    /// itself is later if it was postponed.
    HoldExpiry { operation_id: Name, held_at: Position, due: Time },
    /// Drop the oldest period of kept replies.
    DropReplies,
    /// Give back what a limiter's lease holds.
    LeaseExpiry { id: Name },
    /// Write window states that relaxed checks have changed.
    WriteWindows,
    /// Drop windows that are back in their initial state.
    DropIdleWindows,
    /// End a grant of locks whose holder has sent no heartbeat.
    LockExpiry { token: Position },
    /// Publish an event, or open its key again.
    EventKey { stream: Position, key: Position },
    /// Refuse a request that has waited for locks for as long as it may.
    LockWait { wait: WaitId },
    /// Refuse a lease that has waited for as long as it may.
    LeaseWait { wait: WaitId },
    /// Refuse a decision that has waited for as long as it may.
    DecisionWait { place: WaitId },
    /// End a decision whose holder has sent no heartbeat, with all its parts.
    OperationExpiry { position: Position },
    /// Drop the oldest period of ended decisions.
    DropEndedOperations,
}

/// The memory that a timer takes, without the text in it.
pub(crate) const TIMER_BYTES: u64 = resident::tree_slot::<(TimerKey, Timer)>();

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
            let mut key = TimerKey { due, ..key };
            // A hold request that was extended has a new timer, which must not be replaced by its old one.
            while self.0.contains_key(&key) {
                key.due = key.due.after(Millis(1));
            }
            self.0.insert(key, timer);
        }
    }

    pub(crate) fn next_due(&self) -> Option<Time> {
        self.0.first_key_value().map(|(key, _)| key.due)
    }

    /// The first timers due by `now`, at most `limit`.
    pub(crate) fn due(&self, now: Time, limit: usize) -> Vec<TimerKey> {
        self.0.keys().take_while(|key| key.due <= now).take(limit).copied().collect()
    }

    /// Looks at up to `limit` timers from `from` on, and drops those of a deleted namespace. Returns where to continue, or
    /// `None` after the last timer.
    pub(crate) fn drop_some(
        &mut self,
        namespace: NamespaceId,
        from: Option<TimerKey>,
        limit: usize,
    ) -> Option<TimerKey> {
        let range = (from.map_or(Bound::Unbounded, Bound::Included), Bound::Unbounded);
        let mut keys = self.0.range(range).map(|(key, _)| *key);
        let dropped: Vec<TimerKey> =
            keys.by_ref().take(limit).filter(|key| key.namespace == namespace).collect();
        let next = keys.next();
        dropped.iter().for_each(|key| self.cancel(*key));
        next
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
