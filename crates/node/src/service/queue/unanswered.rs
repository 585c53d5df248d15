//! The requests of a namespace that a shard's queue has accepted and whose callers have no answer yet.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// The most that one request counts. A larger one is done in slices, and the others of its namespace wait for it in the queue.
const MAX_COUNTED: u64 = 2_048;

/// The weight of a namespace's unanswered requests.
#[derive(Default)]
pub(super) struct UnansweredWeight(Arc<AtomicU64>);

impl UnansweredWeight {
    /// Counts a request of this weight until the result is dropped.
    pub(super) fn add(&self, weight: u64) -> Unanswered {
        let weight = weight.min(MAX_COUNTED);
        // It only has to be right about how much there is, not about when.
        self.0.fetch_add(weight, Ordering::Relaxed);
        Unanswered { weight, total: self.0.clone() }
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A request that is not answered. It counts until this is dropped: when its caller has the answer, or has gone.
pub(crate) struct Unanswered {
    weight: u64,
    total: Arc<AtomicU64>,
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.total.fetch_sub(self.weight, Ordering::Relaxed);
    }
}
