//! `acquire`: grant, wait or refuse; and the ends of a wait.

use super::{
    command::LockRequest,
    parts,
    reply::{Refusal, Reply},
    state::{Locks, Waiter},
};
use crate::{
    Millis, Name, WaitId,
    turn::{Attempt, Turn},
};

/// The largest number of waiting requests of a namespace.
const MAX_WAITING: usize = 131_072;

pub(super) fn acquire(
    locks: &mut Locks,
    turn: &mut Turn<'_>,
    request: &LockRequest,
    wait: WaitId,
) -> Attempt<Result<Reply, Refusal>> {
    // This is a retry by a node that does not know the result of the first attempt. It must not wait behind itself.
    if let Some(earlier) = locks.waits.get(&request.id).copied() {
        time_out(locks, turn, earlier);
    }
    if let Some(grant) = locks.by_id(&request.id) {
        if let Some(refusal) = parts::refuse(grant) {
            return Attempt::Done(Err(refusal));
        }
        let (token, session) = (grant.token, grant.session.clone());
        locks.listen(turn, token, Some(&request.id));
        let grant = locks.info(turn.now, &locks.grants[&token]);
        return Attempt::Done(Ok(Reply::Granted { grant, session }));
    }
    let Some(blocked) = locks.blocked(turn.now, request.wanted.locks(), wait) else {
        if let Err(exceeded) = locks.check_grant(turn, request) {
            return Attempt::Done(Err(exceeded.into()));
        }
        let grant = locks.grant(turn, request);
        return Attempt::Done(Ok(Reply::Granted { grant, session: request.session.clone() }));
    };
    if request.wanted.wait() == Millis(0) {
        return Attempt::Done(Err(Refusal::LockHeld(blocked)));
    }
    if locks.waiters.len() >= MAX_WAITING {
        return Attempt::TooManyWaiting;
    }
    if let Err(exceeded) = locks.check_wait(turn, request) {
        return Attempt::Done(Err(exceeded.into()));
    }
    let until = turn.now.after(request.wanted.wait());
    locks.join(turn, Waiter { request: request.clone(), wait, until });
    Attempt::Waits
}

/// Refuses a waiting request because it has waited for as long as it may. If it was just woken, it is granted.
pub(super) fn time_out(locks: &mut Locks, turn: &mut Turn<'_>, wait: WaitId) {
    let Some(waiter) = locks.waiters.get(&wait) else { return };
    match locks.blocked(turn.now, waiter.request.wanted.locks(), wait) {
        Some(blocked) => locks.leave(turn, wait, Refusal::LockWaitTimeout(blocked)),
        None => locks.ask_again(turn, wait),
    }
}

/// Handles the hang-up of a request: its wait ends, and so does a grant that was returned to no other request.
pub(super) fn abandon(locks: &mut Locks, turn: &mut Turn<'_>, request: &Name) -> Reply {
    if let Some(wait) = locks.waits.get(request).copied() {
        time_out(locks, turn, wait);
    }
    locks.hang_up(turn, request);
    Reply::Abandoned
}

/// Returns a kept grant, or a kept heartbeat, to another request, as the grant is now. `None` if the grant has ended.
pub(super) fn repeat_reply(
    locks: &mut Locks,
    turn: &mut Turn<'_>,
    request: Option<&Name>,
    kept: Reply,
) -> Option<Reply> {
    match kept {
        Reply::Granted { grant, session } => {
            let token = locks.by_id(&grant.lock_id)?.token;
            locks.listen(turn, token, request);
            Some(Reply::Granted { grant: locks.info(turn.now, &locks.grants[&token]), session })
        }
        Reply::Extended(grant) => Some(Reply::Extended(locks.info(turn.now, locks.by_id(&grant.lock_id)?))),
        other => Some(other),
    }
}
