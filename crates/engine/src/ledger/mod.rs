//! The ledger: limits as accounts; hold, commit and rollback; values now and as of any operation.
//!
//! A limit keeps three sums: what is committed, and what is held open upwards and downwards. The two directions are
//! kept apart because ceilings and overflow are judged by the worst case: whichever of the open holds are committed
//! or rolled back later, no ceiling is passed and nothing overflows.
//!
//! Limits are resident. Operations and entries are paged: an entry stands under (limit, position) and bears the sums
//! after it, so that a limit's values as of any position are one look-up.

mod command;
mod entries;
mod finalization;
mod hold;
mod limits;
mod operations;
mod reply;
mod state;
mod values;

#[cfg(test)]
mod tests;

pub use command::{
    AsOf, Change, Command, Context, Finalization, FinalizationChange, Finish, Hold, NewLimit, Patch, Transfer,
};
pub use entries::EntryKind;
pub use operations::{HoldState, MAX_LIMITS_PER_OPERATION};
pub use reply::{
    EntryInfo, FinalizationReply, HeldLimitInfo, HoldReply, LimitInfo, OperationInfo, Refusal, Reply, Value,
    ValuesReply,
};
pub(crate) use state::Ledger;

use crate::{
    namespace::{Stop, Turn},
    request::Job,
};

/// Runs a ledger command, or says what must be fetched first. Nothing is changed before everything is at hand; of a
/// batch, what is done already stays in the job.
pub(crate) fn apply(
    ledger: &mut Ledger,
    turn: &mut Turn<'_>,
    job: &mut Job,
) -> Result<Result<Reply, Refusal>, Stop> {
    let crate::Command::Ledger(command) = &job.request.command else {
        unreachable!("the engine sends only ledger commands here");
    };
    match command {
        Command::CreateLimit(new) => Ok(limits::create(ledger, turn, new).map(Reply::Limit)),
        Command::PatchLimit { name, ceiling, context } => {
            Ok(limits::patch(ledger, turn, name, ceiling, context).map(Reply::Limit))
        }
        Command::GetLimit(name) => Ok(limits::get(ledger, name).map(Reply::Limit)),
        Command::ListLimits(page) => Ok(Ok(limits::list(ledger, page))),
        Command::Transfer(transfer) => apply_transfer(ledger, turn, transfer),
        Command::Batch(transfers) => {
            if job.batch_results.is_empty() {
                turn.prefetch(transfers.iter().map(|t| turn.keys.operation(t.operation_id())))?;
            }
            for transfer in &transfers[job.batch_results.len()..] {
                let result = match apply_transfer(ledger, turn, transfer) {
                    Ok(result) => result,
                    Err(Stop::Unreadable) => Err(Refusal::Unreadable),
                    Err(Stop::Missing(missing)) => return Err(Stop::Missing(missing)),
                };
                job.batch_results.push(result);
            }
            Ok(Ok(Reply::Batch(core::mem::take(&mut job.batch_results))))
        }
        Command::Values { limit_names, as_of } => match values::read(ledger, turn, limit_names, as_of) {
            Err(Stop::Unreadable) => Ok(Err(Refusal::LimitsValuesReadingException)),
            other => other,
        },
        Command::GetOperation(id) => operations::get(ledger, turn, id),
        Command::ListOperations { only_held, page } => operations::list(ledger, turn, *only_held, page),
        Command::ListEntries { limit_name, page } => entries::list(ledger, turn, limit_name, page),
    }
}

fn apply_transfer(
    ledger: &mut Ledger,
    turn: &mut Turn<'_>,
    transfer: &Transfer,
) -> Result<Result<Reply, Refusal>, Stop> {
    match transfer {
        Transfer::Hold(hold) => hold::apply(ledger, turn, hold),
        Transfer::Finish(finalization) => finalization::apply(ledger, turn, finalization),
    }
}

pub(crate) use finalization::expire;
