//! Leases: what a lease holds is given back automatically when its holder stops extending it.

use super::{
    Limiter, check,
    command::{NewLease, Take},
    keys,
    reply::{Decision, LeaseInfo, Refusal, Reply},
    resident_bytes,
};
use crate::{
    Effect, Millis, Name, Page, Position, Time,
    ids::NamespaceId,
    key_values::KeyValues,
    lists::{LOOKED_AT, pick},
    record::{self, Malformed},
    timers::{Timer, TimerKey, TimerSource, Timers},
    turn::Turn,
};
use alloc::boxed::Box;
use serde::{Deserialize, Serialize};

/// A lease, in memory and as stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Lease {
    pub(super) id: Name,
    pub(super) session: Name,
    pub(super) key_values: KeyValues,
    pub(super) hits: u64,
    pub(super) owner: Option<Name>,
    pub(super) ttl: Millis,
    pub(super) taken_at: Time,
    pub(super) expires_at: Time,
    pub(super) token: Position,
    /// The decision that the lease is a part of. The decision stores such a lease, and ends it.
    pub(super) operation_id: Option<Name>,
    /// Whether the lease ends if the client that waited for it has gone: no other request was answered with it. This is not
    /// stored. After an opening, its ttl ends a lease that nobody has heard of.
    #[serde(skip)]
    pub(super) ends_with_client: bool,
}

impl Lease {
    fn timer_key(&self, namespace: NamespaceId) -> TimerKey {
        TimerKey { due: self.expires_at, namespace, source: TimerSource::Change(self.token) }
    }

    fn timer(&self) -> Timer {
        Timer::LeaseExpiry { id: self.id.clone() }
    }

    pub(super) fn resident_bytes(&self) -> u64 {
        resident_bytes::of_lease_parts(&self.id, &self.session, &self.key_values, self.owner.as_ref())
            + self.operation_id.as_ref().map_or(0, Name::heap)
    }

    /// The answer to the client that has taken the lease. No other answer contains the session.
    fn taken(&self, now: Time, decision: Decision) -> Reply {
        Reply::LeaseTaken { lease: Box::new(self.info(now)), session: self.session.clone(), decision }
    }

    fn info(&self, now: Time) -> LeaseInfo {
        LeaseInfo {
            id: self.id.clone(),
            key_values: self.key_values.clone(),
            hits: self.hits,
            owner: self.owner.clone(),
            ttl: self.ttl,
            taken_at: self.taken_at,
            expires_at: self.expires_at,
            fencing_token: self.token,
            operation_id: self.operation_id.clone(),
            now,
        }
    }
}

/// What the lease takes.
pub(super) fn entry_of(new: &NewLease) -> Take {
    Take { key_values: new.key_values.clone(), hits: new.hits as i64, limit: None }
}

/// The answer to a retry by a node that does not know the result of the first attempt. `None` if there is no such lease.
pub(super) fn find_taken(limiter: &Limiter, now: Time, new: &NewLease) -> Option<Result<Reply, Refusal>> {
    let lease = limiter.leases.get(&new.id)?;
    Some(match lease.operation_id.clone() {
        Some(operation_id) => Err(Refusal::PartOfOperation { lease_id: new.id.clone(), operation_id }),
        None => Ok(lease.taken(now, check::allowed_without_limits())),
    })
}

/// Makes the lease. What it holds was taken.
pub(super) fn make(limiter: &mut Limiter, turn: &mut Turn<'_>, new: &NewLease, decision: Decision) -> Reply {
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
    limiter.lease_bytes += lease.resident_bytes();
    limiter.leases.insert(new.id.clone(), lease);
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
    limiter.lease_bytes -= lease.resident_bytes();
    turn.timers.cancel(lease.timer_key(turn.namespace));
    turn.advance();
    turn.remove(keys::lease(turn.namespace, lease.token));
    let counter = limiter.counters.get(&lease.key_values);
    let leased = counter.leased.saturating_sub(u128::from(lease.hits));
    limiter.set_counter(turn, &lease.key_values, counter.unleased, leased);
    limiter.wake_by_counter(&lease.key_values);
    true
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
    use core::ops::Bound::{Excluded, Unbounded};
    let range = (page.after.as_ref().map_or(Unbounded, Excluded), Unbounded);
    let leases = limiter.leases.range::<Name, _>(range);
    let find = |(_, lease): &(&Name, &Lease)| {
        (owner.is_none() || lease.owner.as_ref() == owner).then(|| lease.info(now))
    };
    let id = |(id, _): &(&Name, &Lease)| (*id).clone();
    Reply::Leases(pick(leases, page.limit(), LOOKED_AT, find, id))
}

/// A kept reply, with the lease as it is now. `None` if the lease has ended.
pub(super) fn repeat_reply(limiter: &mut Limiter, now: Time, reply: &Reply) -> Option<Reply> {
    match reply {
        Reply::LeaseTaken { lease, decision, .. } => {
            let lease = limiter.leases.get_mut(&lease.id)?;
            lease.ends_with_client = false;
            Some(lease.taken(now, decision.clone()))
        }
        // The reply to a heartbeat.
        Reply::Lease(lease) => Some(Reply::Lease(limiter.leases.get(&lease.id)?.info(now))),
        other => Some(other.clone()),
    }
}

/// Stores the lease and sets the timer of its expiry.
fn keep(turn: &mut Turn<'_>, lease: &Lease) {
    turn.put(keys::lease(turn.namespace, lease.token), lease);
    turn.timers.set(lease.timer_key(turn.namespace), lease.timer());
}

impl Limiter {
    /// Loads a stored lease. All counters must be loaded before.
    pub(super) fn load_lease(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        let lease: Lease = record::decode(bytes)?;
        self.counters.load_lease(&lease.key_values, lease.hits);
        self.lease_bytes += lease.resident_bytes();
        match self.leases.insert(lease.id.clone(), lease) {
            None => Ok(()),
            Some(_) => Err(Malformed),
        }
    }

    /// Gives each lease at least its whole ttl from `now` on.
    pub(crate) fn apply_grace_period(&mut self, now: Time, namespace: NamespaceId, timers: &mut Timers) {
        for lease in self.leases.values_mut().filter(|lease| lease.operation_id.is_none()) {
            timers.cancel(lease.timer_key(namespace));
            lease.expires_at = lease.expires_at.max(now.after(lease.ttl));
            timers.set(lease.timer_key(namespace), lease.timer());
        }
    }

    /// Sets the timers of the loaded leases.
    pub(super) fn set_lease_timers(&self, namespace: NamespaceId, timers: &mut Timers) {
        for lease in self.leases.values().filter(|lease| lease.operation_id.is_none()) {
            timers.set(lease.timer_key(namespace), lease.timer());
        }
    }
}
