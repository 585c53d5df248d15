//! The interface of a shard: the outputs that its driver carries out, and the kinds of failures and openings.

use bytes::Bytes;
use limina_engine::{Effect, Outcome, Read, Request, Time, Writes};
use std::{ops::Range, sync::Arc};

/// An action for the driver. Outputs must be carried out in order.
#[derive(Debug)]
pub enum Output<T> {
    /// Look these up and pass all answers to [`Shard::handle_fetched`](crate::Shard::handle_fetched). The look-ups must
    /// see every append that is durable by now.
    Fetch(Vec<Read>),
    /// Make these writes durable as one append, then call [`Shard::handle_persisted`](crate::Shard::handle_persisted)
    /// or [`Shard::handle_lost`](crate::Shard::handle_lost).
    Append {
        /// After-images. No key occurs twice.
        writes: Arc<Writes>,
        /// The number of requests that wait for this append.
        requests: usize,
    },
    /// Prove that this node still owns the shard, then call [`Shard::handle_persisted`](crate::Shard::handle_persisted)
    /// or [`Shard::handle_lost`](crate::Shard::handle_lost).
    Confirm,
    /// Send a reply.
    Reply(Reply<T>),
    /// A request has begun to wait, and is answered later. This is for the simulator, which follows every decision. It
    /// must not be shown to clients, because it is not durable.
    Waits {
        /// The request that waits.
        request: Box<Request>,
        /// Shard time at which it began to wait.
        since: Time,
        /// The number of this decision, as in [`Reply::order`].
        order: u64,
    },
    /// A batch has decided some of its items, and continues later. Only if [`Options::reports_slices`](crate::Options). This
    /// is for the simulator, like `Waits`.
    Slice {
        /// The batch.
        request: Box<Request>,
        /// Shard time of the decisions.
        at: Time,
        /// The number of this decision, as in [`Reply::order`].
        order: u64,
        /// The number of items that were decided before.
        from: usize,
        /// The outcome of the items that are decided now.
        outcome: Outcome,
    },
    /// A slice of a batch or a long request is done. Before the driver calls [`Shard::poll`](crate::Shard::poll) again, it should let other
    /// tasks have a turn: what they send meanwhile to other namespaces goes first.
    Unfinished,
    /// Carry out an effect.
    Effect(Effect),
    /// Nobody looks up the records of this range any more: the deletion of their namespace is durable. The store may drop them all at
    /// once. Until it has, [`Shard::handle_scans`](crate::Shard::handle_scans) should make the sweeps wait, which remove one by
    /// one what it keeps.
    Discard(Range<Bytes>),
}

/// The reply to a request.
#[derive(Debug)]
pub struct Reply<T> {
    /// The ticket that the request came with.
    pub ticket: T,
    /// Shard time of the decision. `None` if the request was not decided.
    pub decided_at: Option<Time>,
    /// The number of this decision since the shard was opened, from 1. Replies need not come in this order, because a
    /// relaxed reply is released before earlier decisions are durable. That a request begins to wait, or is given up,
    /// is a decision too. 0 if the request was not decided.
    pub order: u64,
    /// The outcome, or why there is none.
    pub result: Result<Outcome, Failure>,
}

/// Why a request has no outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The storage is full. Nothing was done.
    StorageFull,
    /// The shard lost its memory before the decision became durable. Nothing was done.
    Unavailable,
    /// The shard is being closed, and the request would have had to wait. Nothing was done.
    Closing,
    /// The request may or may not have been executed. Of a batch, the first items may have been.
    OutcomeUnknown,
}

/// What preceded the opening of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// The shard was not served for a while. Every lease and lock gets its full ttl again.
    Interrupted,
    /// The previous owner handed the shard over. It continues without an interruption.
    HandedOver,
}

/// How an append or confirm failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// It did not happen.
    NotDone,
    /// It did not happen, because the storage is full.
    Full,
    /// It may have happened.
    Unknown,
}

/// A reply to a request that was not decided.
pub(crate) fn undecided<T>(ticket: T, failure: Failure) -> Output<T> {
    Output::Reply(Reply { ticket, decided_at: None, order: 0, result: Err(failure) })
}
