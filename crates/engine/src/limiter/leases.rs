//! Leases: what a lease holds is given back automatically when its holder stops extending it.

use super::{
    check_request::Take,
    command::NewLease,
    keys,
    lease::Lease,
    reply::{Checked, Refusal, Reply},
    state::Limiter,
};
use crate::{
    Effect, Millis, Name, Page, Time,
    lists::{LOOKED_AT, pick},
    turn::Turn,
};

/// What the lease takes.
pub(super) fn entry_of(new: &NewLease) -> Take {
    Take { key_values: new.key_values.clone(), hits: new.hits as i64, limit: None }
}

/// The answer to a retry by a node that does not know the result of the first attempt. `None` if there is no such lease.
pub(super) fn find_taken(limiter: &Limiter, now: Time, new: &NewLease) -> Option<Result<Reply, Refusal>> {
    let lease = limiter.leases.get(&new.id)?;
    Some(match lease.operation_id.clone() {
        Some(operation_id) => Err(Refusal::PartOfOperation { lease_id: new.id.clone(), operation_id }),
        None => Ok(lease.taken(now, Checked::without_limits(true))),
    })
}

/// Makes the lease. What it holds was taken.
pub(super) fn make(limiter: &mut Limiter, turn: &mut Turn<'_>, new: &NewLease, decision: Checked) -> Reply {
    let lease = Lease {
        id: new.id.clone(),
        session: new.session.clone(),
        key_values: new.key_values.clone(),
        hits: new.hits,
        owner: new.owner.clone(),
        ttl: new.ttl,
        taken_at: turn.now,
        expires_at: turn.now.after(new.ttl),
        token: turn.advance(),
        operation_id: None,
        ends_with_client: new.wait > Millis(0),
    };
    let reply = lease.taken(turn.now, decision);
    keep(turn, &lease);
    limiter.leases.insert(lease);
    limiter.last_taken_at = Some(turn.now);
    reply
}

pub(super) fn extend(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    id: &Name,
    session: &Name,
) -> Result<Reply, Refusal> {
    check_session(limiter, id, Some(session))?;
    let lease = limiter.leases.get_mut(id).expect("it was just found");
    turn.timers.cancel(lease.timer_key(turn.namespace));
    lease.expires_at = turn.now.after(lease.ttl);
    turn.advance();
    let lease = lease.clone();
    keep(turn, &lease);
    Ok(Reply::Lease(lease.info(turn.now)))
}

/// Ends a lease, and gives back what it holds. `session` is `None` for an operator, who needs none.
pub(super) fn release(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    id: &Name,
    session: Option<&Name>,
) -> Result<Reply, Refusal> {
    check_session(limiter, id, session)?;
    end(limiter, turn, id);
    Ok(Reply::LeaseReleased)
}

/// Fails if there is no such lease, or if another session holds it.
fn check_session(limiter: &Limiter, id: &Name, session: Option<&Name>) -> Result<(), Refusal> {
    match limiter.leases.get(id) {
        None => Err(Refusal::LeaseNotFound { lease_id: id.clone() }),
        Some(lease) if session.is_some_and(|session| *session != lease.session) => {
            Err(Refusal::SessionMismatch { lease_id: id.clone() })
        }
        Some(_) => Ok(()),
    }
}

/// Gives back what the lease holds. Returns whether there was a lease.
pub(super) fn end(limiter: &mut Limiter, turn: &mut Turn<'_>, id: &Name) -> bool {
    let Some(lease) = limiter.leases.remove(id) else { return false };
    turn.timers.cancel(lease.timer_key(turn.namespace));
    turn.advance();
    turn.remove(keys::lease(turn.namespace, lease.token));
    give_back(limiter, turn, &lease);
    true
}

/// Gives back what a lease held that has ended.
pub(super) fn give_back(limiter: &mut Limiter, turn: &mut Turn<'_>, lease: &Lease) {
    let counter = limiter.counters.get(&lease.key_values);
    let leased = counter.leased.saturating_sub(u128::from(lease.hits));
    limiter.set_counter(turn, &lease.key_values, counter.unleased, leased);
    limiter.wake_by_counter(&lease.key_values);
}

/// Gives back what the lease holds, because its ttl has passed.
pub(super) fn expire(limiter: &mut Limiter, turn: &mut Turn<'_>, id: &Name) {
    if end(limiter, turn, id) {
        turn.effect(Effect::LeaseExpired { namespace: turn.head.name.clone(), lease_id: id.clone() });
    }
}

pub(super) fn get(limiter: &Limiter, now: Time, id: &Name) -> Result<Reply, Refusal> {
    match limiter.leases.get(id) {
        Some(lease) => Ok(Reply::Lease(lease.info(now))),
        None => Err(Refusal::LeaseNotFound { lease_id: id.clone() }),
    }
}

pub(super) fn list(limiter: &Limiter, now: Time, owner: Option<&Name>, page: &Page<Name>) -> Reply {
    let leases = limiter.leases.after(page.after.as_ref());
    let find = |lease: &&Lease| (owner.is_none() || lease.owner.as_ref() == owner).then(|| lease.info(now));
    Reply::Leases(pick(leases, page.limit(), LOOKED_AT, find, |lease| lease.id.clone()))
}

/// A kept reply, with the lease as it is now. `None` if the lease has ended.
pub(super) fn repeat_reply(limiter: &mut Limiter, now: Time, reply: &Reply) -> Option<Reply> {
    match reply {
        Reply::LeaseTaken { lease, decision, .. } => {
            let lease = limiter.leases.get_mut(&lease.lease_id)?;
            lease.ends_with_client = false;
            Some(lease.taken(now, decision.clone()))
        }
        // The reply to a heartbeat.
        Reply::Lease(lease) => Some(Reply::Lease(limiter.leases.get(&lease.lease_id)?.info(now))),
        other => Some(other.clone()),
    }
}

/// Stores the lease and sets the timer of its expiry.
fn keep(turn: &mut Turn<'_>, lease: &Lease) {
    turn.put(keys::lease(turn.namespace, lease.token), lease);
    turn.timers.set(lease.timer_key(turn.namespace), lease.timer());
}
