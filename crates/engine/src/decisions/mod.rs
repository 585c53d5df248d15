//! Decisions: take, hold, lock and submit at one instant, or nothing; settle the actual later.
//!
//! A decision is one operation over the four families. Every part is asked and none is moved; then all move at one position,
//! or nothing has happened. Until it ends, its parts live and end with it: they have no timers of their own, and nobody can
//! finish one of them alone. This module knows the families, and no family knows it. Each has a module `parts` with what it
//! does for decisions.
//!
//! Open decisions are resident, and each is one record. Ended ones are paged.
//!
//! Read in this order: `command`, `reply`, `state`, `decide`, `waiting`, `end`, `ended`.

pub(crate) mod batch;
mod command;
mod decide;
mod end;
mod ended;
pub(crate) mod keys;
mod lists;
mod reply;
mod state;
mod waiting;

pub use command::{Batch, BatchItem, Command, Decide, PartCheck, Parts, Settle};
pub(crate) use lists::repeat_results;
pub use reply::{Decision, HoldOfDecision, Refusal, Refused, Reply, State};
pub(crate) use state::Decisions;
pub(crate) use waiting::{end_waits, grant_next};

use crate::{
    Name, Position, Time, WaitId,
    events::Events,
    ledger::{self, Ledger},
    limiter::Limiter,
    locks::Locks,
    reads::{ReadError, Reader},
    turn::{Attempt, CannotRun, Turn, View},
};
use alloc::boxed::Box;

/// The state of the families that decisions are made about.
pub(crate) struct Families<'a> {
    pub(crate) ledger: &'a mut Ledger,
    pub(crate) limiter: &'a mut Limiter,
    pub(crate) locks: &'a mut Locks,
    pub(crate) events: &'a mut Events,
}

impl Families<'_> {
    fn resident_bytes(&self) -> u64 {
        self.ledger.resident_bytes()
            + self.limiter.resident_bytes()
            + self.locks.resident_bytes()
            + self.events.resident_bytes()
    }
}

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
    turn.begin_waits(decisions.waiting.len());
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

/// Ends the wait of a decision because it has lasted for as long as it may.
pub(crate) fn end_wait(
    decisions: &mut Decisions,
    families: &mut Families<'_>,
    turn: &mut Turn<'_>,
    place: WaitId,
    max_answer: usize,
) {
    waiting::time_out(decisions, families, turn, place, max_answer);
}

/// Fails with the records that the command will probably need.
pub(crate) fn missing(decisions: &Decisions, view: View<'_>, command: &Command) -> Result<(), CannotRun> {
    let (id, is_new) = match command {
        Command::Decide(request) => (&request.operation_id, true),
        Command::Settle(settle) => (&settle.operation_id, settle.record),
        Command::Rollback(id) | Command::Heartbeat(id) | Command::Get(id) => (id, false),
        Command::List { .. } | Command::Batch(_) | Command::Abandon { .. } => return Ok(()),
    };
    view.read(|reader| {
        want(decisions, reader, view, id, is_new);
        if reader.has_missing() { Err(ReadError::NotFetched) } else { Ok(()) }
    })
}

/// Notes the records that a command about this operation needs. `is_new` says that it may make or book something.
fn want(decisions: &Decisions, reader: &Reader<'_>, view: View<'_>, id: &Name, is_new: bool) {
    if decisions.find(id).is_none() && !decisions.waiting.has(id) {
        ended::want(reader, view, id);
        if is_new {
            reader.want(ledger::keys::operation(view.namespace, id));
        }
    }
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

/// Rolls an open decision back, because an operator has released one of its parts.
pub(crate) fn force(
    decisions: &mut Decisions,
    families: &mut Families<'_>,
    turn: &mut Turn<'_>,
    operation_id: &Name,
    max_answer: usize,
) {
    end::force(decisions, families, turn, operation_id, max_answer);
}

/// Ends an open decision because its ttl has passed. `due` is when that was.
pub(crate) fn expire(
    decisions: &mut Decisions,
    families: &mut Families<'_>,
    turn: &mut Turn<'_>,
    position: Position,
    due: Time,
    max_answer: usize,
) {
    end::expire(decisions, families, turn, position, due, max_answer);
}

/// Drops the oldest decisions that have ended and held nothing.
pub(crate) fn drop_ended(decisions: &mut Decisions, turn: &mut Turn<'_>) {
    ended::drop_oldest(decisions, turn);
}
