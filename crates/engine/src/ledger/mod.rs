//! The ledger: limits as accounts; hold, commit and rollback; values now and as of any operation.
//!
//! A limit keeps three sums: what is committed, the positive open holds, and the negative open holds. The last two are kept
//! apart because a hold is decided by the worst case: whichever of the open holds are committed or rolled back later, no
//! ceiling is exceeded and no sum overflows.
//!
//! Limits are resident. Operations and entries are paged. The key of an entry is (limit, position) and it contains the sums
//! after it, so that the values of a limit as of any position are one look-up.

mod command;
mod commit_rollback;
mod entries;
mod hold;
pub(crate) mod keys;
mod limits;
mod operations;
mod reply;
mod state;
mod values;

pub use command::{
    AsOf, Batch, Change, Command, Context, Finalization, FinalizationChange, Finish, Hold, MAX_CHANGES,
    NewLimit, Patch, Transfer, Values,
};
pub use entries::EntryKind;
pub use operations::{HoldState, MAX_LIMITS_PER_OPERATION};
pub use reply::{
    EntryInfo, FinalizationReply, HeldLimitInfo, HoldReply, LimitInfo, OperationInfo, Refusal, Reply, Value,
    ValuesReply,
};
pub(crate) use state::{Ledger, expiry_bytes};

use crate::{
    Name,
    answer_size::{self, AnswerBudget},
    turn::{CannotRun, Turn, View},
};
use alloc::vec::Vec;

/// The results of the items of a batch that are done. A batch that had to fetch records continues after them.
#[derive(Debug, Default)]
pub(crate) struct Progress(Vec<Result<Reply, Refusal>>);

impl Progress {
    pub(crate) fn is_begun(&self) -> bool {
        !self.0.is_empty()
    }
}

/// Runs a command, or returns the records that must be fetched first. A command changes nothing before it has all its
/// records. The items of a batch run one by one: those that are done stay done, and `progress` has their results.
pub(crate) fn apply(
    ledger: &mut Ledger,
    turn: &mut Turn<'_>,
    command: &Command,
    progress: &mut Progress,
    max_answer: usize,
) -> Result<Result<Reply, Refusal>, CannotRun> {
    turn.begin_family(ledger.resident_bytes());
    match command {
        Command::CreateLimit(new) => Ok(limits::create(ledger, turn, new).map(Reply::Limit)),
        Command::PatchLimit { name, ceiling, context } => {
            Ok(limits::patch(ledger, turn, name, ceiling, context).map(Reply::Limit))
        }
        Command::Transfer(transfer) => apply_transfer(ledger, turn, transfer),
        Command::Batch(transfers) => {
            if !progress.is_begun() {
                check_answer(ledger, turn.view(), transfers, max_answer)?;
            }
            for transfer in &transfers[progress.0.len()..] {
                let result = match apply_transfer(ledger, turn, transfer) {
                    Ok(result) => result,
                    Err(CannotRun::Unreadable) => Err(Refusal::Unreadable),
                    Err(stop @ (CannotRun::Missing(_) | CannotRun::TooLarge)) => return Err(stop),
                };
                progress.0.push(result);
            }
            Ok(Ok(Reply::Batch(core::mem::take(&mut progress.0))))
        }
        Command::GetLimit(_)
        | Command::ListLimits(_)
        | Command::Values(_)
        | Command::GetOperation(_)
        | Command::ListOperations { .. }
        | Command::ListEntries { .. } => read(ledger, turn.view(), command, max_answer),
    }
}

/// Fails with the records that the command will probably need, for a whole batch at once.
pub(crate) fn missing(
    ledger: &Ledger,
    view: View<'_>,
    command: &Command,
    max_answer: usize,
) -> Result<(), CannotRun> {
    match command.is_write() {
        true => prefetch(view, command),
        false => read(ledger, view, command, max_answer).map(|_| ()),
    }
}

/// A write needs the record of its operation. A repeated write also needs old values; it asks for them when it runs.
fn prefetch(view: View<'_>, command: &Command) -> Result<(), CannotRun> {
    let key = |transfer: &Transfer| keys::operation(view.namespace, transfer.operation_id());
    match command {
        Command::Transfer(transfer) => view.prefetch([key(transfer)].into_iter()),
        Command::Batch(transfers) => view.prefetch(transfers.iter().map(key)),
        _ => Ok(()),
    }
}

/// The commands that only read stored records.
fn read(
    ledger: &Ledger,
    view: View<'_>,
    command: &Command,
    max_answer: usize,
) -> Result<Result<Reply, Refusal>, CannotRun> {
    match command {
        Command::Values(values) => match values::read(ledger, view, &values.limit_names, &values.as_of) {
            Err(CannotRun::Unreadable) => Ok(Err(Refusal::LimitsValuesReadingException)),
            other => other,
        },
        Command::GetOperation(id) => operations::get(ledger, view, id),
        Command::ListOperations { only_held, page } => {
            operations::list(ledger, view, *only_held, page, max_answer)
        }
        Command::ListEntries { limit_name, page } => entries::list(ledger, view, limit_name, page),
        Command::GetLimit(name) => Ok(limits::get(ledger, name).map(Reply::Limit)),
        Command::ListLimits(page) => Ok(Ok(limits::list(ledger, page, max_answer))),
        Command::CreateLimit(_) | Command::PatchLimit { .. } | Command::Transfer(_) | Command::Batch(_) => {
            unreachable!("writes take a turn")
        }
    }
}

/// An upper bound of what an answer contains for each item of a batch: a whole problem document, if refused.
const ITEM_BYTES: usize = 512;
/// An upper bound of what an answer contains for each limit of an item without its name and its id.
const VALUE_BYTES: usize = 256;

/// Fails if the answer to a batch would be too large. A commit or rollback without a list of changes is about all limits of
/// its operation, up to 1,024.
fn check_answer(
    ledger: &Ledger,
    view: View<'_>,
    transfers: &[Transfer],
    max_answer: usize,
) -> Result<(), CannotRun> {
    // One round fetches the operations of all items.
    view.prefetch(transfers.iter().map(|transfer| keys::operation(view.namespace, transfer.operation_id())))?;
    // A problem document contains a name up to three times: in the detail, and in one or two members.
    let value =
        |name: &Name, id_bytes: usize| VALUE_BYTES + 3 * answer_size::text(name.as_bytes()) + id_bytes;
    let known_id = |limit: u32| match &ledger.limit(limit).terms.limit_id {
        Some(id) => answer_size::text(id.as_bytes()),
        None => 0,
    };
    let measure = |id_bytes: &dyn Fn(&Name) -> usize| -> Result<(), CannotRun> {
        let named = |name: &Name| value(name, id_bytes(name));
        let mut budget = AnswerBudget::new(max_answer);
        for transfer in transfers {
            budget.spend(ITEM_BYTES + 3 * answer_size::text(transfer.operation_id().as_bytes()))?;
            budget.spend(match transfer {
                Transfer::Hold(hold) => hold.changes.iter().map(|change| named(&change.limit_name)).sum(),
                Transfer::Finish(Finalization { changes: Some(changes), .. }) => {
                    changes.iter().map(|change| named(&change.limit_name)).sum()
                }
                Transfer::Finish(Finalization { changes: None, operation_id, .. }) => {
                    match view.read(|reader| operations::find(ledger, reader, view.namespace, operation_id)) {
                        Ok(Some(operation)) => {
                            let limits = operation.holds.iter().map(|hold| hold.limit);
                            limits.map(|n| value(&ledger.limit(n).terms.name, known_id(n))).sum()
                        }
                        // The item itself will be refused as unreadable.
                        Ok(None) | Err(CannotRun::Unreadable) => 0,
                        Err(stop) => return Err(stop),
                    }
                }
            })?;
        }
        Ok(())
    };
    // Looking up the ids of limits costs as much as the batch itself. So first assume the longest id: most batches are far
    // below the bound even then.
    match measure(&|_| answer_size::text(&[b'"'; Name::MAX_BYTES])) {
        Err(CannotRun::TooLarge) => measure(&|name| ledger.find(name).map_or(0, known_id)),
        other => other,
    }
}

fn apply_transfer(
    ledger: &mut Ledger,
    turn: &mut Turn<'_>,
    transfer: &Transfer,
) -> Result<Result<Reply, Refusal>, CannotRun> {
    match transfer {
        Transfer::Hold(hold) => hold::apply(ledger, turn, hold),
        Transfer::Finish(finalization) => commit_rollback::apply(ledger, turn, finalization),
    }
}

pub(crate) use commit_rollback::expire;
