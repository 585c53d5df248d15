//! Locks: leases on sets of key-values, exclusive or shared, fair and fenced.
//!
//! A request joins the queues of all its locks in one step, and is granted all of them at one instant: when no holder and no
//! earlier waiter of any of them conflicts with it. A waiting request holds none of its locks, so there is no deadlock. No
//! request is granted before an earlier one that it conflicts with, so there is no starvation.
//!
//! Decisions wait in the same queues. Locks only wake them; `decisions` grants them, in one order with leases that wait.
//!
//! Grants are stored; waiting requests are not. All of it is resident.
//!
//! Read in this order: `command`, `reply`, `queue`, `state`, `acquire`, `listeners`, `holders`.

mod acquire;
mod command;
mod holders;
pub(crate) mod keys;
mod listeners;
mod lists;
pub(crate) mod parts;
mod queue;
mod reply;
mod state;

pub use command::{Command, LockRequest};
pub use limina_api::locks::{Acquire, GrantInfo, Lock, Mode};
pub use parts::RefusedLock;
pub use reply::{Blocked, Holder, Refusal, Reply};
pub use state::Sizes;
pub(crate) use state::{Locks, stored_locks};

use crate::{
    Name, Position, Time, WaitId,
    turn::{Attempt, Turn},
};

/// A grant as it is now.
pub(crate) fn find_grant(locks: &Locks, now: Time, id: &Name) -> Option<GrantInfo> {
    match lists::get(locks, now, id) {
        Ok(Reply::Grant(info)) => Some(info),
        _ => None,
    }
}

/// Runs a command. It needs no stored record. If it waits, `wait` identifies it when it completes.
pub(crate) fn apply(
    locks: &mut Locks,
    turn: &mut Turn<'_>,
    command: &Command,
    wait: WaitId,
) -> Attempt<Result<Reply, Refusal>> {
    turn.begin_family(locks.resident_bytes());
    turn.begin_waits(locks.sizes().waiting);
    Attempt::Done(match command {
        Command::Acquire(request) => return acquire::acquire(locks, turn, request, wait),
        Command::Abandon(id) => Ok(acquire::abandon(locks, turn, id)),
        Command::Heartbeat { id, session } => holders::heartbeat(locks, turn, id, session),
        Command::Release { id, session } => holders::release(locks, turn, id, session.as_ref()),
        Command::Get(id) => lists::get(locks, turn.now, id),
        Command::List { query, page } => Ok(lists::list(locks, turn.now, query, page)),
    })
}

/// The kept reply to a repeated command, as of now. `None` if the command must be decided again, because the grant of the
/// kept reply has ended. `command` is `None` if it is one of another family: a kept reply is found by the idempotency key
/// alone.
pub(crate) fn repeat_reply(
    locks: &mut Locks,
    turn: &mut Turn<'_>,
    command: Option<&Command>,
    reply: Reply,
) -> Option<Reply> {
    let request = match command {
        Some(Command::Acquire(request)) => Some(&request.id),
        _ => None,
    };
    acquire::repeat_reply(locks, turn, request, reply)
}

/// Ends a grant because its ttl has passed without a heartbeat.
pub(crate) fn expire(locks: &mut Locks, turn: &mut Turn<'_>, token: Position) {
    turn.begin_family(locks.resident_bytes());
    holders::expire(locks, turn, token);
}

/// Refuses a waiting request because it has waited for as long as it may.
pub(crate) fn end_wait(locks: &mut Locks, turn: &mut Turn<'_>, wait: WaitId) {
    turn.begin_family(locks.resident_bytes());
    acquire::time_out(locks, turn, wait);
}
