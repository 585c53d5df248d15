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
    namespace::{Turn, Waiting},
};

/// What became of a command.
pub(crate) enum Applied {
    Done(Result<Reply, Refusal>),
    /// It is answered later.
    Waits,
    /// Too many wait already.
    Refused,
}

/// Runs a command. Nothing of it need be fetched. `waiting` is who is answered later, if not at once.
pub(crate) fn apply(locks: &mut Locks, turn: &mut Turn<'_>, command: &Command, waiting: &Waiting) -> Applied {
    Applied::Done(match command {
        Command::Acquire(wanted) => return acquire::acquire(locks, turn, wanted, waiting),
        Command::Abandon(id) => Ok(acquire::abandon(locks, turn, id)),
        Command::Heartbeat { id, session } => holders::heartbeat(locks, turn, id, session),
        Command::Release { id, session } => holders::release(locks, turn, id, session.as_ref()),
        Command::Get(id) => lists::get(locks, turn.now, id),
        Command::List { query, page } => Ok(lists::list(locks, turn.now, query, page)),
    })
}

/// A kept reply that is given again, to this command; none if the request is to be decided afresh.
pub(crate) fn again(
    locks: &mut Locks,
    turn: &mut Turn<'_>,
    command: &crate::Command,
    reply: Reply,
) -> Option<Reply> {
    let request = match command {
        crate::Command::Locks(Command::Acquire(wanted)) => Some(&wanted.id),
        _ => None,
    };
    acquire::again(locks, turn, request, reply)
}

/// A holder's time has run out.
pub(crate) fn expire(locks: &mut Locks, turn: &mut Turn<'_>, token: Position) {
    holders::expire(locks, turn, token);
}

/// A waiter's time has run out.
pub(crate) fn end_wait(locks: &mut Locks, turn: &mut Turn<'_>, wait: WaitId) {
    acquire::time_out(locks, turn, wait);
}
