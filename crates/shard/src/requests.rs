//! Where a shard takes its requests from: a queue of its own, or one that others fill meanwhile.

use crate::fair_queue::{FairQueue, RoundSize, Verdict};
use limina_engine::Job;

/// The waiting requests of a shard, with their tickets.
pub trait Requests<T> {
    /// Whether a round may take requests now. A shard asks in every poll, so this must be quick.
    fn may_be_taken(&self) -> bool;

    /// Takes the requests of a round, in this order. There may be none.
    fn take_round(&mut self, size: RoundSize) -> Vec<(T, Job)>;

    /// Changes the queue itself, for what goes back to it.
    fn with_queue<R>(&mut self, change: impl FnOnce(&mut FairQueue<(T, Job)>) -> R) -> R;
}

impl<T> Requests<T> for FairQueue<(T, Job)> {
    fn may_be_taken(&self) -> bool {
        !self.is_empty()
    }

    fn take_round(&mut self, size: RoundSize) -> Vec<(T, Job)> {
        self.take(size, |_| Verdict::Begin).begin
    }

    fn with_queue<R>(&mut self, change: impl FnOnce(&mut FairQueue<(T, Job)>) -> R) -> R {
        change(self)
    }
}
