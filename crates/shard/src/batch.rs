//! A batch: the decisions that become durable with one append.

use crate::output::{Failure, Output, Reply};
use limina_engine::{Effect, Outcome, Request, Time};

/// The weight of a rule change, in changes: one may count a whole slice of counters.
const CHANGE_WEIGHT: usize = 512;

/// Decisions that wait for durability.
pub(crate) struct Batch<T> {
    pub(crate) replies: Vec<PendingReply<T>>,
    pub(crate) effects: Vec<Effect>,
    /// The approximate number of changes. A full batch takes no more requests.
    pub(crate) weight: usize,
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
}

impl<T> Default for Batch<T> {
    fn default() -> Batch<T> {
        Batch { replies: Vec::new(), effects: Vec::new(), weight: 0, is_empty: true, has_background: false }
    }
}

impl<T> PendingReply<T> {
    pub(crate) fn fail(self, failure: Failure) -> Output<T> {
        let PendingReply { ticket, decided_at, order, .. } = self;
        Output::Reply(Reply { ticket, decided_at: Some(decided_at), order, result: Err(failure) })
    }
}

/// How many changes the request counts for, in a batch and in a queue.
pub fn weight_of(request: &Request) -> usize {
    use limina_engine::{Command, ledger, limiter};
    let weight_of = |transfer: &ledger::Transfer| match transfer {
        ledger::Transfer::Hold(hold) => hold.changes().len(),
        ledger::Transfer::Finish(finalization) => finalization.changes().map_or(1, <[_]>::len),
    };
    match &request.command {
        Command::Ledger(ledger::Command::Batch(transfers)) => transfers.iter().map(weight_of).sum(),
        Command::Ledger(ledger::Command::Transfer(transfer)) => weight_of(transfer),
        Command::Limiter(limiter::Command::CheckBatch(checks)) => checks.len(),
        Command::Limiter(limiter::Command::Change(_)) => CHANGE_WEIGHT,
        _ => 1,
    }
}
