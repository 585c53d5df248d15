//! A batch of decisions, commits and rollbacks, in slices. Each item is done on its own, in the order of the batch.
//!
//! A turn ends when its work is used up, and the next turn continues behind what is done. The answers of the items share the
//! bytes of one answer: an item whose answer no longer fits is refused, and nothing of it is done. So the answers of operations
//! that are stored need not be read before the first item.

use super::{
    command::BatchItem,
    decide, end,
    families::Families,
    prefetch::want,
    reply::{Refusal, Reply},
    state::Decisions,
    waiting::grant_next,
};
use crate::{
    answer_size,
    limiter::LAST,
    reads::ReadError,
    turn::{Attempt, CannotRun, Slice, Sliced, Turn, View},
};
use alloc::vec::Vec;
use limina_api::decisions::State;

/// The largest number of waiting requests that are granted or refused after one item.
const MOST_GRANTS: usize = 16;

/// How far a batch has come.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The results of the items that are done.
    results: Vec<Result<Reply, Refusal>>,
    /// The estimated size of these results.
    bytes: usize,
}

impl Progress {
    /// The number of items that are done.
    pub(crate) fn done(&self) -> usize {
        self.results.len()
    }

    /// The results from the item `from` on.
    pub(crate) fn results_from(&self, from: usize) -> Reply {
        Reply::Batch(self.results[from..].to_vec())
    }

    /// The results of the first items, which an earlier request had.
    pub(crate) fn restored(&mut self, count: usize) -> &mut [Result<Reply, Refusal>] {
        &mut self.results[..count]
    }

    pub(crate) fn take_results(&mut self) -> Reply {
        Reply::Batch(core::mem::take(&mut self.results))
    }

    /// Continues a batch that an earlier request began: these are the results of its next items. Returns false if the reply is
    /// not that of a batch.
    pub(crate) fn restore(&mut self, reply: Reply) -> bool {
        let Reply::Batch(results) = reply else { return false };
        results.into_iter().for_each(|result| self.add(result));
        true
    }

    fn add(&mut self, result: Result<Reply, Refusal>) {
        self.bytes += answer_size::estimate(&result);
        self.results.push(result);
    }
}

/// Does as much of the batch as one turn may do.
pub(crate) fn run(
    decisions: &mut Decisions,
    families: &mut Families<'_>,
    turn: &mut Turn<'_>,
    items: &[BatchItem],
    progress: &mut Progress,
    slice: &mut Slice,
    max_answer: usize,
) -> Result<Sliced, CannotRun> {
    // Each item begins with what the namespace has then.
    let other_bytes = |decisions: &Decisions, families: &Families<'_>| {
        families.resident_bytes() + decisions.resident_bytes()
    };
    let own_bytes = turn.other_bytes.saturating_sub(other_bytes(decisions, families));
    for item in &items[progress.done()..] {
        if slice.is_used_up() {
            return Ok(Sliced::Unfinished);
        }
        let bytes = turn.changes.bytes();
        turn.other_bytes = own_bytes + other_bytes(decisions, families);
        let left = max_answer.saturating_sub(progress.bytes);
        let result = match apply(decisions, families, turn, item, left) {
            Ok(result) => result,
            Err(CannotRun::TooLarge) => Err(Refusal::AnswerTooLarge { max_bytes: max_answer }),
            Err(CannotRun::Unreadable) => Err(Refusal::Unreadable),
            // The next turn fetches these records together with those of the items behind it.
            Err(CannotRun::Missing(_)) if slice.is_begun() => return Ok(Sliced::Unfinished),
            Err(CannotRun::Missing(missing)) => return Err(CannotRun::Missing(missing)),
        };
        slice.spend(item.weight() + Slice::work_of_bytes(turn.changes.bytes() - bytes));
        progress.add(result);
        // What is left for later slices keeps its place.
        let mut grants = 0;
        while grants < MOST_GRANTS && grant_next(decisions, families, turn, own_bytes, max_answer) {
            grants += 1;
        }
    }
    Ok(Sliced::Done)
}

fn apply(
    decisions: &mut Decisions,
    families: &mut Families<'_>,
    turn: &mut Turn<'_>,
    item: &BatchItem,
    left: usize,
) -> Result<Result<Reply, Refusal>, CannotRun> {
    if let BatchItem::Settle(settle) = item
        && decisions.waiters.has(&settle.operation_id)
    {
        let (operation_id, state) = (settle.operation_id.clone(), Some(State::Waiting));
        return Ok(Err(Refusal::OperationNotFound { operation_id, state }));
    }
    let open = decisions.find(item.operation_id());
    if open.is_some_and(|open| answer_size::estimate(&*open.request) > left) {
        return Err(CannotRun::TooLarge);
    }
    match item {
        BatchItem::Decide(request) => match decide::decide(decisions, families, turn, request, LAST, left)? {
            Attempt::Done(result) => Ok(result),
            Attempt::Waits | Attempt::TooManyWaiting => unreachable!("an item of a batch does not wait"),
        },
        BatchItem::Settle(settle) => end::commit(decisions, families, turn, settle, left),
        BatchItem::Rollback(id) => end::roll_back(decisions, families, turn, id, left),
    }
}

/// Fails with the records that the next turn will probably need.
pub(crate) fn prefetch(
    decisions: &Decisions,
    view: View<'_>,
    items: &[BatchItem],
    progress: &Progress,
    slice: &Slice,
) -> Result<(), CannotRun> {
    let mut left = slice.left();
    view.read(|reader| {
        for item in &items[progress.done()..] {
            want(decisions, reader, view, item.operation_id(), !matches!(item, BatchItem::Rollback(_)));
            match left.checked_sub(item.weight()) {
                Some(rest) => left = rest,
                None => break,
            }
        }
        if reader.has_missing() { Err(ReadError::NotFetched) } else { Ok(()) }
    })
}
