//! The requests of a namespace that a shard's queue has accepted and whose callers have no answer yet.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// The most that one request counts. A larger one is done in slices, and the others of its namespace wait for it in the queue.
const MAX_COUNTED: usize = 2_048;

/// A request that is not answered. It counts until this is dropped: when its caller has the answer, or has gone.
pub(crate) struct Unanswered {
    weight: usize,
    /// The weight of all of its namespace.
    total: Arc<AtomicUsize>,
}

impl Unanswered {
    pub(super) fn new(weight: usize, total: Arc<AtomicUsize>) -> Unanswered {
        let weight = weight.min(MAX_COUNTED);
        // It only has to be right about how much there is, not about when.
        total.fetch_add(weight, Ordering::Relaxed);
        Unanswered { weight, total }
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.total.fetch_sub(self.weight, Ordering::Relaxed);
    }
}
