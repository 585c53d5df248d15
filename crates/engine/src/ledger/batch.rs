//! A batch of transfers, in slices. Each transfer is done on its own, in the order of the batch.
//!
//! First the answer is measured, so that a batch whose answer would be too large is refused as a whole, before its first
//! transfer. Then the transfers are done. Both go in slices: a turn ends when its work is used up, and the next turn
//! continues behind what is done. Only timers of the namespace run in between, and these make no answer larger.

use super::{
    command::Transfer,
    commit_rollback, hold, keys, operations,
    reply::{Refusal, Reply},
    state::Ledger,
};
use crate::{
    Name,
    answer_size::{self, AnswerBudget},
    turn::{CannotRun, Slice, Sliced, Turn, View},
};
use alloc::vec::Vec;
use limina_api::ledger::Finalization;

/// An upper bound of what an answer contains for each item of a batch: a whole problem document, if refused.
const ITEM_BYTES: usize = 512;
/// An upper bound of what an answer contains for each limit of an item without its name and its id.
const VALUE_BYTES: usize = 256;
/// The bytes of the longest name or id of a limit, if each of its characters is escaped.
const LONGEST_TEXT: usize = 2 + 2 * Name::MAX_BYTES;

/// How far a batch has come.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    measure: Measure,
    /// The results of the transfers that are done.
    results: Vec<Result<Reply, Refusal>>,
}

/// How far the answer is measured.
#[derive(Debug, Default)]
struct Measure {
    /// The transfers that are measured.
    items: usize,
    /// What the answer may still grow by. `None` before the first transfer.
    budget: Option<AnswerBudget>,
    /// Whether the ids of limits, and the names of those that an operation holds in, are looked up. That costs as much as the
    /// transfers themselves. So at first the longest ones are assumed: most batches are far below the bound even then.
    has_exact_ids: bool,
}

impl Progress {
    /// The number of transfers that are done.
    pub(crate) fn done(&self) -> usize {
        self.results.len()
    }

    /// The results from the transfer `from` on.
    pub(crate) fn results_from(&self, from: usize) -> Reply {
        Reply::Batch(self.results[from..].to_vec())
    }

    pub(crate) fn take_results(&mut self) -> Reply {
        Reply::Batch(core::mem::take(&mut self.results))
    }

    /// Continues a batch that an earlier request began: these are the results of its next transfers. Its answer was
    /// measured then. Returns false if the reply is not that of a batch.
    pub(crate) fn restore(&mut self, reply: Reply) -> bool {
        let Reply::Batch(mut results) = reply else { return false };
        self.results.append(&mut results);
        self.measure.items = usize::MAX;
        true
    }
}

impl Transfer {
    /// About how much work the transfer is.
    pub(crate) fn weight(&self) -> usize {
        /// What a transfer takes without its limits.
        const BASE: usize = 4;
        /// What each limit takes: its sums, its entry, its value in the answer.
        const CHANGE: usize = 4;
        /// The limits of an operation, if the transfer does not name them.
        const LIMITS: usize = 4;
        let changes = match self {
            Transfer::Hold(hold) => hold.changes.len(),
            Transfer::Finish(_, finalization) => finalization.changes.as_ref().map_or(LIMITS, Vec::len),
        };
        BASE + CHANGE * changes
    }

    /// About how much work it is to measure its answer.
    fn measure_weight(&self) -> usize {
        if self.ends_all_holds() { self.weight() } else { 1 + self.weight() / 16 }
    }

    /// Whether the answer's size depends on the stored operation: the transfer ends all its holds, up to 1,024.
    fn ends_all_holds(&self) -> bool {
        matches!(self, Transfer::Finish(_, Finalization { changes: None, .. }))
    }
}

/// Does as much of the batch as one turn may do.
pub(crate) fn run(
    ledger: &mut Ledger,
    turn: &mut Turn<'_>,
    transfers: &[Transfer],
    progress: &mut Progress,
    slice: &mut Slice,
    max_answer: usize,
) -> Result<Sliced, CannotRun> {
    if let Sliced::Unfinished =
        measure(ledger, turn.view(), transfers, &mut progress.measure, slice, max_answer)?
    {
        return Ok(Sliced::Unfinished);
    }
    for transfer in &transfers[progress.results.len()..] {
        if slice.is_used_up() {
            return Ok(Sliced::Unfinished);
        }
        let bytes = turn.changes.bytes();
        let result = match apply_transfer(ledger, turn, transfer) {
            Ok(result) => result,
            Err(CannotRun::Unreadable) => Err(Refusal::Unreadable),
            // The next turn fetches this record together with those of the transfers behind it.
            Err(CannotRun::Missing(_)) if slice.is_begun() => return Ok(Sliced::Unfinished),
            Err(stop @ (CannotRun::Missing(_) | CannotRun::TooLarge)) => return Err(stop),
        };
        slice.spend(transfer.weight() + Slice::work_of_bytes(turn.changes.bytes() - bytes));
        progress.results.push(result);
    }
    Ok(Sliced::Done)
}

pub(super) fn apply_transfer(
    ledger: &mut Ledger,
    turn: &mut Turn<'_>,
    transfer: &Transfer,
) -> Result<Result<Reply, Refusal>, CannotRun> {
    if let Err(refusal) = ledger.check_not_reserved(transfer.operation_id()) {
        return Ok(Err(refusal));
    }
    match transfer {
        Transfer::Hold(hold) => hold::apply(ledger, turn, hold),
        Transfer::Finish(finish, request) => commit_rollback::apply(ledger, turn, *finish, request),
    }
}

/// Fails with the records that the next turn will probably need.
pub(crate) fn prefetch(
    view: View<'_>,
    transfers: &[Transfer],
    progress: &Progress,
    slice: &Slice,
) -> Result<(), CannotRun> {
    let key = |transfer: &Transfer| keys::operation(view.namespace, transfer.operation_id());
    let mut left = slice.left();
    let mut fits = |weight: usize| {
        let is_first = left == slice.left();
        let does_fit = is_first || weight <= left;
        left = left.saturating_sub(weight);
        does_fit
    };
    let unmeasured = &transfers[progress.measure.items.min(transfers.len())..];
    let measured: Vec<_> = unmeasured.iter().take_while(|transfer| fits(transfer.measure_weight())).collect();
    let sized = measured.iter().filter(|transfer| transfer.ends_all_holds()).map(|transfer| key(transfer));
    // The transfers are done in this turn only if all of them are measured by then.
    let is_measured = measured.len() == unmeasured.len();
    let next = &transfers[if is_measured { progress.results.len() } else { transfers.len() }..];
    let done = next
        .iter()
        .take_while(|transfer| fits(transfer.weight()))
        .filter(|transfer| measured.is_empty() || !transfer.ends_all_holds());
    view.prefetch(sized.chain(done.map(key)))
}

/// Measures the answer. Fails if it would be too large.
fn measure(
    ledger: &Ledger,
    view: View<'_>,
    transfers: &[Transfer],
    measure: &mut Measure,
    slice: &mut Slice,
    max_answer: usize,
) -> Result<Sliced, CannotRun> {
    while let Some(transfer) = transfers.get(measure.items) {
        if slice.is_used_up() {
            return Ok(Sliced::Unfinished);
        }
        let bytes = match answer_bytes(ledger, view, transfer, measure.has_exact_ids) {
            Err(CannotRun::Missing(_)) if slice.is_begun() => return Ok(Sliced::Unfinished),
            bytes => bytes?,
        };
        let budget = measure.budget.get_or_insert_with(|| AnswerBudget::new(max_answer));
        match budget.spend(bytes) {
            Ok(()) => measure.items += 1,
            Err(too_large) if measure.has_exact_ids => return Err(too_large.into()),
            Err(_) => *measure = Measure { has_exact_ids: true, ..Measure::default() },
        }
        slice.spend(if measure.has_exact_ids { transfer.weight() } else { transfer.measure_weight() });
    }
    Ok(Sliced::Done)
}

/// An upper bound of the bytes of a transfer's answer.
fn answer_bytes(
    ledger: &Ledger,
    view: View<'_>,
    transfer: &Transfer,
    has_exact_ids: bool,
) -> Result<usize, CannotRun> {
    let id_of = |number: u32| match &ledger.limit(number).terms.limit_id {
        Some(id) => answer_size::text(id.as_bytes()),
        None => 0,
    };
    // A problem document contains a name up to five times: in the detail, where it is escaped twice, and in up to three
    // members.
    let value = |name: &Name, id: usize| VALUE_BYTES + 5 * answer_size::text(name.as_bytes()) + id;
    let named = |name: &Name| match has_exact_ids {
        true => value(name, ledger.find(name).map_or(0, id_of)),
        false => value(name, LONGEST_TEXT),
    };
    let values: usize = match transfer {
        Transfer::Hold(hold) => hold.changes.iter().map(|change| named(&change.limit_name)).sum(),
        Transfer::Finish(_, Finalization { changes: Some(changes), .. }) => {
            changes.iter().map(|change| named(&change.limit_name)).sum()
        }
        Transfer::Finish(_, Finalization { changes: None, operation_id, .. }) if !has_exact_ids => {
            match view.read(|reader| operations::count_holds(reader, view.namespace, operation_id)) {
                Ok(holds) => holds.unwrap_or(0) * (VALUE_BYTES + 6 * LONGEST_TEXT),
                // The item itself will be refused as unreadable.
                Err(CannotRun::Unreadable) => 0,
                Err(stop) => return Err(stop),
            }
        }
        Transfer::Finish(_, Finalization { changes: None, operation_id, .. }) => {
            match view.read(|reader| operations::find(ledger, reader, view.namespace, operation_id)) {
                Ok(Some(operation)) => {
                    let limits = operation.holds.iter().map(|hold| hold.limit).filter(|n| ledger.has(*n));
                    limits.map(|number| value(&ledger.limit(number).terms.name, id_of(number))).sum()
                }
                // The item itself will be refused as unreadable.
                Ok(None) | Err(CannotRun::Unreadable) => 0,
                Err(stop) => return Err(stop),
            }
        }
    };
    Ok(values + ITEM_BYTES + 3 * answer_size::text(transfer.operation_id().as_bytes()))
}
