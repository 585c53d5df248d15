//! The changes of rules that wait, and the one that is being backfilled.

use super::{
    command::Change,
    plan::Plan,
    reply::{Refusal, Reply},
};
use crate::{WaitId, slab::SlabIndex};
use alloc::{collections::VecDeque, vec::Vec};

/// The largest number of waiting changes of a namespace.
const MAX_WAITING: usize = 1_024;

/// The change that is being backfilled, and those that wait for it.
#[derive(Debug, Default)]
pub(crate) struct RuleChangeQueue {
    pub(super) current: Option<Backfill>,
    waiting: VecDeque<QueuedChange>,
    /// The resident bytes of the waiting changes.
    bytes: u64,
    /// Replies to changes that waited.
    pub(super) completed: Vec<(WaitId, Result<Reply, Refusal>)>,
}

/// A change that waits for earlier ones.
#[derive(Debug)]
pub(super) struct QueuedChange {
    pub(super) wait: WaitId,
    pub(super) change: Change,
    /// The resident bytes of the change.
    bytes: u64,
}

#[derive(Debug)]
pub(super) struct Backfill {
    pub(super) wait: WaitId,
    pub(super) plan: Plan,
    /// Counters with smaller indexes are counted.
    pub(super) counted: SlabIndex,
}

impl RuleChangeQueue {
    /// Whether a backfill is under way, or changes wait behind one that has ended, so that `continue_backfill` must be called.
    pub(crate) fn is_busy(&self) -> bool {
        self.current.is_some() || !self.waiting.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= MAX_WAITING
    }

    pub(super) fn push(&mut self, wait: WaitId, change: &Change, bytes: u64) {
        self.bytes += bytes;
        self.waiting.push_back(QueuedChange { wait, change: change.clone(), bytes });
    }

    /// Removes the change that has waited for the longest time.
    pub(super) fn pop(&mut self) -> Option<QueuedChange> {
        let next = self.waiting.pop_front()?;
        self.bytes -= next.bytes;
        Some(next)
    }

    pub(super) fn resident_bytes(&self) -> u64 {
        self.bytes
    }

    /// The resident bytes, summed up anew.
    pub(super) fn recount_bytes(&self) -> u64 {
        self.waiting.iter().map(|waits| waits.bytes).sum()
    }

    /// The requests that wait for the backfill or behind it.
    pub(super) fn into_waiting(self) -> impl Iterator<Item = WaitId> {
        let current = self.current.into_iter().map(|backfill| backfill.wait);
        current.chain(self.waiting.into_iter().map(|waits| waits.wait))
    }

    pub(super) fn take_completed(&mut self) -> Vec<(WaitId, Result<Reply, Refusal>)> {
        core::mem::take(&mut self.completed)
    }

    /// Whether the backfill has counted the counter with this index already.
    pub(super) fn has_counted(&self, index: SlabIndex) -> bool {
        self.current.as_ref().is_some_and(|backfill| index < backfill.counted)
    }
}
