//! The ledger: limits as accounts; hold, commit and rollback; values now and as of any operation.
//!
//! A limit keeps three sums: what is committed, the positive open holds, and the negative open holds. The last two are kept
//! apart because a hold is decided by the worst case: whichever of the open holds are committed or rolled back later, no
//! ceiling is exceeded and no sum overflows.
//!
//! Limits are resident. Operations, entries and the names of deleted limits are paged. The key of an entry is (limit, position) and it contains the sums
//! after it, so that the values of a limit as of any position are one look-up.

mod balance;
pub(crate) mod batch;
mod command;
mod commit_rollback;
mod entries;
mod expiry;
mod hold;
pub(crate) mod keys;
mod limits;
pub(crate) mod operations;
pub(crate) mod parts;
mod reply;
mod state;
mod values;

pub use command::{Batch, Command, Finish, OperationFilter, Transfer};
pub use limina_api::{
    Context, Patch,
    ledger::{
        AsOf, Change, Entry, EntryType, Extend, Finalization, FinalizationChange, FinalizationReply, Hold,
        HoldReply, Limit, LimitPatch, LimitValue, MAX_CHANGES, NewLimit, Operation, OperationHold, State,
        Values, ValuesReply,
    },
};
pub use operations::MAX_LIMITS_PER_OPERATION;
pub use reply::{ExceededLimit, HoldState, Nearness, Refusal, RefusedHold, Reply};
pub(crate) use state::{Ledger, expiry_bytes};

use crate::{
    Name,
    turn::{CannotRun, Turn, View},
};

/// A limit as it is now.
pub(crate) fn find_limit(ledger: &Ledger, name: &Name) -> Option<Limit> {
    limits::get(ledger, name).ok()
}

/// Runs a command that is not a batch, or returns the records that must be fetched first. A command changes nothing before it
/// has all its records.
pub(crate) fn apply(
    ledger: &mut Ledger,
    turn: &mut Turn<'_>,
    command: &Command,
    max_answer: usize,
) -> Result<Result<Reply, Refusal>, CannotRun> {
    turn.begin_family(ledger.resident_bytes());
    match command {
        Command::CreateLimit(new) => Ok(limits::create(ledger, turn, new).map(Reply::Limit)),
        Command::PatchLimit { name, patch } => Ok(limits::patch(ledger, turn, name, patch).map(Reply::Limit)),
        Command::DeleteLimit(name) => Ok(limits::delete(ledger, turn, name)),
        Command::Transfer(transfer) => batch::apply_transfer(ledger, turn, transfer),
        Command::Extend(extend) => expiry::extend(ledger, turn, extend),
        Command::Batch(_) => unreachable!("a batch is run in slices"),
        Command::GetLimit(_)
        | Command::ListLimits(_)
        | Command::ListLimitsByUse(_)
        | Command::Values(_)
        | Command::GetOperation(_)
        | Command::ListOperations { .. }
        | Command::ListEntries { .. } => read(ledger, turn.view(), command, max_answer),
    }
}

/// Fails with the records that the command will probably need.
pub(crate) fn missing(
    ledger: &Ledger,
    view: View<'_>,
    command: &Command,
    max_answer: usize,
) -> Result<(), CannotRun> {
    match command {
        // A write needs the record of its operation. A repeated write also needs old values; it asks for them when it runs.
        Command::Transfer(transfer) => {
            view.prefetch([keys::operation(view.namespace, transfer.operation_id())].into_iter())
        }
        Command::Extend(extend) => {
            view.prefetch([keys::operation(view.namespace, &extend.operation_id)].into_iter())
        }
        Command::CreateLimit(_)
        | Command::PatchLimit { .. }
        | Command::DeleteLimit(_)
        | Command::Batch(_) => Ok(()),
        _ => read(ledger, view, command, max_answer).map(|_| ()),
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
        Command::Values(values) => match values::read(ledger, view, &values.limit_names, &values.as_of()) {
            Err(CannotRun::Unreadable) => Ok(Err(Refusal::LimitsValuesReadingException)),
            other => other,
        },
        Command::GetOperation(id) => operations::get(ledger, view, id),
        Command::ListOperations { filter, page } => operations::list(ledger, view, filter, page, max_answer),
        Command::ListEntries { limit_name, page } => entries::list(ledger, view, limit_name, page),
        Command::GetLimit(name) => Ok(limits::get(ledger, name).map(Reply::Limit)),
        Command::ListLimits(page) => Ok(Ok(limits::list(ledger, page, max_answer))),
        Command::ListLimitsByUse(page) => Ok(Ok(limits::list_by_use(ledger, page, max_answer))),
        Command::CreateLimit(_)
        | Command::PatchLimit { .. }
        | Command::DeleteLimit(_)
        | Command::Transfer(_)
        | Command::Extend(_)
        | Command::Batch(_) => unreachable!("writes take a turn"),
    }
}

pub(crate) use commit_rollback::expire;
