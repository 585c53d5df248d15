//! `heartbeat`, `release` and the expiry of grants.

use super::{
    parts,
    reply::{Refusal, Reply},
    state::{Grant, Locks},
};
use crate::{Effect, Name, Position, turn::Turn};

pub(super) fn heartbeat(
    locks: &mut Locks,
    turn: &mut Turn<'_>,
    id: &Name,
    session: &Name,
) -> Result<Reply, Refusal> {
    let token = held(locks, id, Some(session))?.token;
    let grant = locks.grants.get_mut(&token).expect("it was just found");
    turn.timers.cancel(grant.timer_key(turn.namespace));
    grant.expires_at = turn.now.after(grant.ttl);
    turn.advance();
    grant.keep(turn);
    Ok(Reply::Extended(locks.info(turn.now, &locks.grants[&token])))
}

/// Ends a grant. `session` is `None` for an operator, who needs none.
pub(super) fn release(
    locks: &mut Locks,
    turn: &mut Turn<'_>,
    id: &Name,
    session: Option<&Name>,
) -> Result<Reply, Refusal> {
    let token = held(locks, id, session)?.token;
    locks.end_grant(turn, token);
    Ok(Reply::Released)
}

/// Ends a grant because its ttl has passed without a heartbeat.
pub(super) fn expire(locks: &mut Locks, turn: &mut Turn<'_>, token: Position) {
    if let Some(Grant { id: lock_id, owner, .. }) = locks.end_grant(turn, token) {
        turn.effect(Effect::LockExpired { namespace: turn.head.name.clone(), lock_id, owner });
    }
}

fn held<'a>(locks: &'a Locks, id: &Name, session: Option<&Name>) -> Result<&'a Grant, Refusal> {
    let grant = locks.by_id(id).ok_or_else(|| Refusal::LockNotFound { lock_id: id.clone() })?;
    if let Some(refusal) = parts::refuse(grant) {
        return Err(refusal);
    }
    match session.is_none_or(|session| *session == grant.session) {
        true => Ok(grant),
        false => Err(Refusal::SessionMismatch { lock_id: id.clone() }),
    }
}
