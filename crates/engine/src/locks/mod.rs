//! Locks: leases on sets of key-values, exclusive or shared, fair and fenced.
//!
//! A request joins the queues of all its locks in one step, and is granted all of them at one instant: when no holder
//! and no earlier waiter conflicts with it in any of them. Nobody holds a part of what it asked for while it waits, so
//! there is no deadlock; nobody passes an earlier request that it conflicts with, so nobody starves.
//!
//! What is held is stored; who waits is not. All of it is resident.
//!
//! Read in this order: `command`, `reply`, `queue`, `state`, `acquire`, `listeners`, `holders`.

mod acquire;
mod command;
mod holders;
pub(crate) mod keys;
mod listeners;
mod lists;
mod queue;
mod reply;
mod state;

pub use command::{Acquire, Command, Lock, MAX_LOCKS, Mode};
pub use reply::{Blocked, GrantInfo, Holder, Refusal, Reply};
pub(crate) use state::Locks;
pub use state::Sizes;

use crate::{
    Position, WaitId,
    turn::{Attempt, Turn},
};

/// Runs a command. Nothing has to be fetched for it. `wait` names the request if its answer comes later.
pub(crate) fn apply(
    locks: &mut Locks,
    turn: &mut Turn<'_>,
    command: &Command,
    wait: WaitId,
) -> Attempt<Result<Reply, Refusal>> {
    Attempt::Done(match command {
        Command::Acquire(wanted) => return acquire::acquire(locks, turn, wanted, wait),
        Command::Abandon(id) => Ok(acquire::abandon(locks, turn, id)),
        Command::Heartbeat { id, session } => holders::heartbeat(locks, turn, id, session),
        Command::Release { id, session } => holders::release(locks, turn, id, session.as_ref()),
        Command::Get(id) => lists::get(locks, turn.now, id),
        Command::List { query, page } => Ok(lists::list(locks, turn.now, query, page)),
    })
}

/// A kept reply that is returned again to this command. `None` if the command is to be decided afresh. (A kept reply is
/// found by the idempotency key alone, so the command may be one of another family.)
pub(crate) fn repeat_reply(
    locks: &mut Locks,
    turn: &mut Turn<'_>,
    command: Option<&Command>,
    reply: Reply,
) -> Option<Reply> {
    let request = match command {
        Some(Command::Acquire(wanted)) => Some(&wanted.id),
        _ => None,
    };
    acquire::repeat_reply(locks, turn, request, reply)
}

/// A holder's time has run out.
pub(crate) fn expire(locks: &mut Locks, turn: &mut Turn<'_>, token: Position) {
    holders::expire(locks, turn, token);
}

/// A waiter's time has run out.
pub(crate) fn end_wait(locks: &mut Locks, turn: &mut Turn<'_>, wait: WaitId) {
    acquire::time_out(locks, turn, wait);
}
