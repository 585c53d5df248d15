//! A batch: the decisions that become durable with one append.

use crate::output::{Failure, Output, Reply};
use bytes::Bytes;
use limina_engine::{Effect, Outcome, Time};
use std::ops::Range;

/// Decisions that wait for durability.
pub(crate) struct Batch<T> {
    pub(crate) replies: Vec<PendingReply<T>>,
    pub(crate) effects: Vec<Effect>,
    /// See [`Output::Discard`].
    pub(crate) discards: Vec<Range<Bytes>>,
    /// The number of requests and timers. A full batch takes no more.
    pub(crate) count: usize,
    /// The work of the engine, in units of about a microsecond. A full batch takes no more.
    pub(crate) work: usize,
    pub(crate) is_empty: bool,
    /// Whether the batch already contains a slice of background work.
    pub(crate) has_background: bool,
}

pub(crate) struct PendingReply<T> {
    pub(crate) ticket: T,
    pub(crate) decided_at: Time,
    pub(crate) order: u64,
    pub(crate) outcome: Outcome,
    pub(crate) is_write: bool,
    /// Whether it is a batch of which an earlier append may have stored some items.
    pub(crate) may_be_partly_stored: bool,
}

impl<T> Default for Batch<T> {
    fn default() -> Batch<T> {
        Batch {
            replies: Vec::new(),
            effects: Vec::new(),
            discards: Vec::new(),
            count: 0,
            work: 0,
            is_empty: true,
            has_background: false,
        }
    }
}

impl<T> PendingReply<T> {
    /// The answer if the append with this decision failed for that reason.
    pub(crate) fn fail(self, failure: Failure) -> Output<T> {
        let PendingReply { ticket, decided_at, order, may_be_partly_stored, .. } = self;
        let failure = if may_be_partly_stored { Failure::OutcomeUnknown } else { failure };
        Output::Reply(Reply { ticket, decided_at: Some(decided_at), order, result: Err(failure) })
    }
}
