//! The locks of a decision: a grant that the decision stores, extends and ends together with its other parts.

use super::{
    Lock, Mode,
    reply::Refusal,
    state::{Grant, Locks},
};
use crate::{
    Millis, Name, Position, Quota, QuotaExceeded, Time, WaitId, key_values::KeyValues, resident, turn::Turn,
};
use alloc::{format, vec::Vec};
use serde::{Deserialize, Serialize};

/// A lock that cannot be had now, with the first that is in the way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RefusedLock {
    /// The lock.
    pub key_values: KeyValues,
    /// The mode that was asked for.
    pub mode: Mode,
    /// Whether somebody holds the lock. Otherwise earlier requests wait for it, and the fields about the holder are `None`.
    pub is_held: bool,
    /// The name that the holder gave itself; if several share the lock, that of the oldest.
    pub owner: Option<Name>,
    /// For how long the holder has held the lock.
    pub held: Option<Millis>,
    /// The time until the holder's grant expires, unless there is a heartbeat.
    pub expires_in: Option<Millis>,
    /// The number of requests that wait for the lock.
    pub waiting: usize,
}

/// The refusal to change a grant that is a part of a decision.
pub(super) fn refuse(grant: &Grant) -> Option<Refusal> {
    let operation_id = grant.operation_id.clone()?;
    Some(Refusal::PartOfOperation { lock_id: grant.id.clone(), operation_id })
}

/// A new grant for a decision. It begins now.
pub(crate) struct NewGrant<'a> {
    pub(crate) operation_id: &'a Name,
    pub(crate) owner: Option<&'a Name>,
    pub(crate) locks: &'a [Lock],
    pub(crate) ttl: Millis,
    pub(crate) taken_at: Time,
    pub(crate) expires_at: Time,
    pub(crate) token: Position,
}

/// The decision that the grant is a part of.
pub(crate) fn operation_of<'l>(locks: &'l Locks, lock_id: &Name) -> Option<&'l Name> {
    locks.by_id(lock_id)?.operation_id.as_ref()
}

/// The locks that a request at this place in the queues cannot have now.
pub(crate) fn ask(locks: &Locks, now: Time, wanted: &[Lock], place: WaitId) -> Vec<RefusedLock> {
    let refused = wanted.iter().filter_map(|lock| {
        let queue = locks.queues.get(&lock.key_values)?;
        if queue.admits(lock.mode, place) {
            return None;
        }
        let holder = queue.holder().map(|token| &locks.grants[&token]);
        Some(RefusedLock {
            key_values: lock.key_values.clone(),
            mode: lock.mode,
            is_held: holder.is_some(),
            owner: holder.and_then(|grant| grant.owner.clone()),
            held: holder.map(|grant| now.since(grant.granted_at)),
            expires_in: holder.map(|grant| grant.expires_at.since(now)),
            waiting: queue.waiters().len() - usize::from(queue.has_waiter(place)),
        })
    });
    refused.collect()
}

/// Whether a request at this place in the queues can have all these locks now.
pub(crate) fn are_free(locks: &Locks, wanted: &[Lock], place: WaitId) -> bool {
    let is_free =
        |lock: &Lock| locks.queues.get(&lock.key_values).is_none_or(|queue| queue.admits(lock.mode, place));
    wanted.iter().all(is_free)
}

/// The waiting decisions of which a lock has become free since the last call. Others of their locks may not be free.
pub(crate) fn take_freed(locks: &mut Locks) -> Vec<WaitId> {
    locks.take_freed()
}

/// Fails if the namespace must not have one more grant. Otherwise returns the bytes that it would take.
pub(crate) fn growth(locks: &Locks, turn: &Turn<'_>, new: &NewGrant<'_>) -> Result<u64, QuotaExceeded> {
    turn.check_quota(Quota::LocksHeld, locks.grants.len(), 1)?;
    Ok(grant(locks, new).resident_bytes() + locks.new_queue_bytes(new.locks))
}

/// Holds the locks, which can be had. The decision stores them.
pub(crate) fn hold(locks: &mut Locks, new: &NewGrant<'_>) {
    let grant = grant(locks, new);
    let is_possible = locks.insert(grant);
    assert!(is_possible, "a lock is held by two");
}

/// Holds the locks of a stored decision. Returns false if somebody else holds one of them: the record is damaged.
pub(crate) fn load(locks: &mut Locks, new: &NewGrant<'_>) -> bool {
    let grant = grant(locks, new);
    locks.insert(grant)
}

fn grant(locks: &Locks, new: &NewGrant<'_>) -> Grant {
    // The caller of an embedded engine draws the ids of its grants, so it could have drawn this one too.
    let mut text = format!("operation-{}", new.token.0);
    let id = loop {
        let id = Name::new(&text).expect("it is short and has no control characters");
        if !locks.tokens.contains_key(&id) {
            break id;
        }
        text.push('+');
    };
    Grant {
        id,
        session: new.operation_id.clone(),
        locks: new.locks.to_vec(),
        owner: new.owner.cloned(),
        ttl: new.ttl,
        granted_at: new.taken_at,
        expires_at: new.expires_at,
        token: new.token,
        operation_id: Some(new.operation_id.clone()),
    }
}

/// Says when the locks of a decision expire from now on.
pub(crate) fn extend(locks: &mut Locks, token: Position, expires_at: Time) {
    if let Some(grant) = locks.grants.get_mut(&token) {
        grant.expires_at = expires_at;
    }
}

/// Releases the locks of a decision, and wakes the waiting requests that they may have blocked.
pub(crate) fn end(locks: &mut Locks, token: Position) {
    if let Some(grant) = locks.remove_grant(token) {
        locks.wake(&grant.locks);
    }
}

/// The resident bytes of the places of a decision that waits for these locks.
pub(crate) fn places_bytes(wanted: &[Lock]) -> u64 {
    wanted.len() as u64 * 2 * resident::tree_slot::<(WaitId, Mode)>()
}

/// The resident bytes of the queues that a request for these locks would create.
pub(crate) fn new_queue_bytes(locks: &Locks, wanted: &[Lock]) -> u64 {
    locks.new_queue_bytes(wanted)
}

/// A decision waits for these locks.
pub(crate) fn join(locks: &mut Locks, place: WaitId, wanted: &[Lock]) {
    for lock in wanted {
        locks.queues.entry(lock.key_values.clone()).or_default().join(place, lock.mode);
    }
}

/// A decision no longer waits for these locks.
pub(crate) fn leave(locks: &mut Locks, place: WaitId, wanted: &[Lock]) {
    locks.handle_woken(place);
    locks.change_queues(wanted, |queue| queue.leave(place));
    locks.wake(wanted);
}
