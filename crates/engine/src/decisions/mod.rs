//! Decisions: take, hold, lock and submit at one instant, or nothing; settle the actual later.
//!
//! A decision is one operation over the four families. Every part is asked and none is moved; then all move at one position,
//! or nothing has happened. Until it ends, its parts live and end with it: they have no timers of their own, and nobody can
//! finish one of them alone. This module knows the families, and no family knows it. Each has a module `parts` with what it
//! does for decisions.
//!
//! Open decisions are resident, and each is one record. Ended ones are paged.
//!
//! Read in this order: `command`, `reply`, `open`, `record`, `state`, `make`, `waiting`, `decide`, `end`, `ended`.

pub(crate) mod batch;
mod command;
mod decide;
mod end;
mod ended;
mod families;
pub(crate) mod keys;
mod lists;
mod loading;
mod make;
mod open;
mod prefetch;
mod record;
mod reply;
mod state;
mod waiters;
mod waiting;

pub(crate) use command::weight;
pub use command::{Batch, BatchItem, Command, DecideRequest};
pub(crate) use end::{expire, force};
pub(crate) use ended::drop_oldest as drop_ended;
pub(crate) use families::Families;
pub use limina_api::decisions::{
    ActualHits, ActualValue, CommitDecision, Decide, PartCheck, PartEvent, Parts, Settle, State,
};
pub(crate) use lists::repeat_results;
pub(crate) use prefetch::missing;
pub use reply::{Decision, HoldOfDecision, Refusal, Refused, Reply};
pub(crate) use state::Decisions;
pub(crate) use waiting::{end_wait, end_waits, grant_next};

use crate::{
    Time, WaitId,
    turn::{Attempt, CannotRun, Turn},
};
use alloc::boxed::Box;

/// Runs a command, or returns the records that must be fetched first. A command changes nothing before it has all its records.
/// If it waits, `wait` identifies it when it completes.
pub(crate) fn apply(
    decisions: &mut Decisions,
    families: &mut Families<'_>,
    turn: &mut Turn<'_>,
    command: &Command,
    wait: WaitId,
    max_answer: usize,
) -> Result<Attempt<Result<Reply, Refusal>>, CannotRun> {
    turn.begin_waits(decisions.waiters.len());
    if let Some(refusal) = waiting::refuse(decisions, command) {
        return Ok(Attempt::Done(Err(refusal)));
    }
    Ok(Attempt::Done(match command {
        Command::Decide(request) => {
            return decide::decide(decisions, families, turn, request, wait, max_answer);
        }
        Command::Settle(settle) => end::commit(decisions, families, turn, settle, max_answer)?,
        Command::Rollback(id) => end::roll_back(decisions, families, turn, id, max_answer)?,
        Command::Heartbeat(id) => lists::heartbeat(decisions, families, turn, id, max_answer)?,
        Command::Batch(_) => unreachable!("a batch is run in slices"),
        Command::Abandon { operation_id, waiter } => {
            waiting::abandon(decisions, families, turn, operation_id, waiter, max_answer);
            Ok(Reply::Abandoned)
        }
        Command::Get(id) => lists::get(decisions, families, turn, id, max_answer)?,
        Command::List { owner, older_than, page } => {
            Ok(lists::list(decisions, families, turn.now, owner.as_ref(), *older_than, page))
        }
    }))
}

/// The kept reply to a repeated request, as of now. `None` if the request must be decided again, because the decision of the
/// kept reply has ended.
pub(crate) fn repeat_reply(
    decisions: &Decisions,
    families: &Families<'_>,
    now: Time,
    reply: Reply,
    max_answer: usize,
) -> Option<Reply> {
    match reply {
        Reply::Decided(kept) => {
            let decision = lists::repeat(decisions, families, now, &kept, max_answer)?;
            Some(Reply::Decided(Box::new(Decision { repeated: true, ..decision })))
        }
        Reply::Extended(kept) => {
            let decision = lists::repeat(decisions, families, now, &kept, max_answer)?;
            Some(Reply::Extended(Box::new(decision)))
        }
        Reply::Batch(mut results) => {
            repeat_results(decisions, families, now, &mut results);
            Some(Reply::Batch(results))
        }
        other => Some(other),
    }
}
