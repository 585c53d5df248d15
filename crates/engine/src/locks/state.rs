//! All locks of a namespace: what is held, who waits, and one queue for each lock.

use super::{
    command::{Acquire, Lock},
    keys,
    listeners::Listeners,
    queue::Queue,
    reply::{Blocked, GrantInfo, Holder, Refusal, Reply},
};
use crate::{
    Millis, Name, Position, Time,
    ids::{NamespaceId, WaitId},
    key_values::KeyValues,
    record::{self, Malformed, key::ResidentKey},
    timers::{Timer, TimerKey, TimerSource, Timers},
    turn::Turn,
};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

/// Where more than so many wait for the locks of one grant, they are not counted one by one.
const COUNTED: usize = 4_096;

/// Everything about locks in a namespace.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    pub(super) grants: BTreeMap<Position, Grant>,
    pub(super) tokens: HashMap<Name, Position>,
    pub(super) waiters: BTreeMap<WaitId, Waiter>,
    pub(super) waits: HashMap<Name, WaitId>,
    /// The listeners of grants that others than the request that made them were told of.
    pub(super) listeners: BTreeMap<Position, Listeners>,
    /// The same by request.
    pub(super) listening: BTreeSet<(Name, Position)>,
    queues: HashMap<KeyValues, Queue>,
    /// Answers to requests that waited.
    completed: Vec<(WaitId, Result<Reply, Refusal>)>,
}

/// Locks that are held together, as they are kept and stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Grant {
    pub(super) id: Name,
    pub(super) session: Name,
    pub(super) locks: Vec<Lock>,
    pub(super) owner: Option<Name>,
    pub(super) ttl: Millis,
    pub(super) granted_at: Time,
    pub(super) expires_at: Time,
    pub(super) token: Position,
}

impl Grant {
    pub(super) fn timer_key(&self, namespace: NamespaceId) -> TimerKey {
        TimerKey { due: self.expires_at, namespace, source: TimerSource::Change(self.token) }
    }

    /// Writes it down, and sees to it that it is taken back in time.
    pub(super) fn keep(&self, turn: &mut Turn<'_>) {
        turn.put(keys::grant(turn.namespace, self.token), self);
        turn.timers.set(self.timer_key(turn.namespace), Timer::LockExpiry { token: self.token });
    }
}

/// A request that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(super) wanted: Acquire,
    pub(crate) wait: WaitId,
    pub(super) until: Time,
}

impl Waiter {
    pub(crate) fn timer_key(&self, namespace: NamespaceId) -> TimerKey {
        TimerKey { due: self.until, namespace, source: TimerSource::Wait(self.wait) }
    }
}

/// How much there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Grants that live.
    pub held: usize,
    /// Requests that wait.
    pub waiting: usize,
}

impl Sizes {
    /// One namespace has become larger or smaller.
    pub(crate) fn change(&mut self, before: Sizes, after: Sizes) {
        self.held = self.held + after.held - before.held;
        self.waiting = self.waiting + after.waiting - before.waiting;
    }
}

impl Locks {
    pub(crate) fn sizes(&self) -> Sizes {
        Sizes { held: self.grants.len(), waiting: self.waiters.len() }
    }

    pub(super) fn by_id(&self, id: &Name) -> Option<&Grant> {
        self.tokens.get(id).and_then(|token| self.grants.get(token))
    }

    /// What keeps a request from being granted, if anything does.
    pub(super) fn blocked(&self, now: Time, locks: &[Lock], wait: WaitId) -> Option<Blocked> {
        let in_the_way = |lock: &&Lock| {
            self.queues.get(&lock.key_values).is_some_and(|queue| !queue.admits(lock.mode, wait))
        };
        let lock = locks.iter().find(in_the_way)?;
        let queue = &self.queues[&lock.key_values];
        let holder = queue.holder().map(|token| {
            let Grant { id, owner, expires_at, .. } = &self.grants[&token];
            let expires_in = Millis(expires_at.0.saturating_sub(now.0));
            Holder { lock_id: id.clone(), owner: owner.clone(), expires_in }
        });
        let key_values = lock.key_values.clone();
        let waiting = queue.waiters().len() - usize::from(self.waiters.contains_key(&wait));
        Some(Blocked { key_values, holder, waiting })
    }

    /// Grants a request that nothing keeps from it.
    pub(super) fn grant(&mut self, turn: &mut Turn<'_>, wanted: &Acquire) -> GrantInfo {
        let grant = Grant {
            id: wanted.id.clone(),
            session: wanted.session.clone(),
            locks: wanted.locks.clone(),
            owner: wanted.owner.clone(),
            ttl: wanted.ttl,
            granted_at: turn.now,
            expires_at: turn.now.after(wanted.ttl),
            token: turn.advance(),
        };
        grant.keep(turn);
        let is_possible = self.insert(grant.clone());
        assert!(is_possible, "a lock is held by two");
        self.info(turn.now, &grant)
    }

    /// Says whether none of its locks is held by another that conflicts.
    fn insert(&mut self, grant: Grant) -> bool {
        let mut is_possible = true;
        for lock in &grant.locks {
            is_possible &=
                self.queues.entry(lock.key_values.clone()).or_default().hold(grant.token, lock.mode);
        }
        is_possible &= self.tokens.insert(grant.id.clone(), grant.token).is_none();
        is_possible && self.grants.insert(grant.token, grant).is_none()
    }

    /// Takes back what is held under this token, and grants what waited for it.
    pub(super) fn end_grant(&mut self, turn: &mut Turn<'_>, token: Position) -> Option<Grant> {
        let grant = self.grants.remove(&token)?;
        self.tokens.remove(&grant.id);
        turn.timers.cancel(grant.timer_key(turn.namespace));
        turn.advance();
        turn.remove(keys::grant(turn.namespace, token));
        if self.forget_listeners(token) {
            turn.remove(keys::listeners(turn.namespace, token));
        }
        self.change_queues(&grant.locks, |queue| queue.release(token));
        self.grant_next(turn, &grant.locks);
        Some(grant)
    }

    pub(super) fn join(&mut self, turn: &mut Turn<'_>, waiter: Waiter) {
        let wait = waiter.wait;
        for lock in &waiter.wanted.locks {
            self.queues.entry(lock.key_values.clone()).or_default().join(wait, lock.mode);
        }
        turn.timers.set(waiter.timer_key(turn.namespace), Timer::LockWait { wait });
        self.waits.insert(waiter.wanted.id.clone(), wait);
        self.waiters.insert(wait, waiter);
    }

    /// One waits no more, and is told so before what waited only behind it is granted.
    pub(super) fn leave(&mut self, turn: &mut Turn<'_>, wait: WaitId, refusal: Refusal) {
        if let Some(Waiter { wanted, .. }) = self.remove_waiter(turn, wait) {
            self.completed.push((wait, Err(refusal)));
            self.grant_next(turn, &wanted.locks);
        }
    }

    fn remove_waiter(&mut self, turn: &mut Turn<'_>, wait: WaitId) -> Option<Waiter> {
        let waiter = self.waiters.remove(&wait)?;
        self.waits.remove(&waiter.wanted.id);
        turn.timers.cancel(waiter.timer_key(turn.namespace));
        self.change_queues(&waiter.wanted.locks, |queue| queue.leave(wait));
        Some(waiter)
    }

    /// Grants what nothing keeps any more, in the order in which it came, after somebody left these queues. A grant
    /// makes way for nobody: as a holder it is in the way of the same requests as it was as a waiter. So those who were
    /// next in line before the first grant are all that need be looked at.
    fn grant_next(&mut self, turn: &mut Turn<'_>, locks: &[Lock]) {
        let queues = locks.iter().filter_map(|lock| self.queues.get(&lock.key_values));
        let next: BTreeSet<WaitId> = queues.flat_map(Queue::next_in_line).collect();
        for wait in next {
            if self.blocked(turn.now, &self.waiters[&wait].wanted.locks, wait).is_some() {
                continue;
            }
            if let Some(Waiter { wanted, .. }) = self.remove_waiter(turn, wait) {
                let grant = self.grant(turn, &wanted);
                self.completed.push((wait, Ok(Reply::Granted { grant, session: wanted.session })));
            }
        }
    }

    fn change_queues(&mut self, locks: &[Lock], change: impl Fn(&mut Queue)) {
        for lock in locks {
            if let Some(queue) = self.queues.get_mut(&lock.key_values) {
                change(queue);
                if queue.is_unused() {
                    self.queues.remove(&lock.key_values);
                }
            }
        }
    }

    pub(super) fn info(&self, now: Time, grant: &Grant) -> GrantInfo {
        GrantInfo {
            id: grant.id.clone(),
            owner: grant.owner.clone(),
            locks: grant.locks.clone(),
            ttl: grant.ttl,
            granted_at: grant.granted_at,
            expires_at: grant.expires_at,
            fencing_token: grant.token,
            waiting: self.waiting_for(&grant.locks),
            now,
        }
    }

    /// How many wait for any of these.
    fn waiting_for(&self, locks: &[Lock]) -> usize {
        let queues = || locks.iter().filter_map(|lock| self.queues.get(&lock.key_values));
        let longest = queues().map(|queue| queue.waiters().len()).max().unwrap_or(0);
        let sum: usize = queues().map(|queue| queue.waiters().len()).sum();
        match sum == longest || sum > COUNTED {
            true => longest,
            false => queues().flat_map(Queue::waiters).collect::<BTreeSet<WaitId>>().len(),
        }
    }

    /// Nobody waits any more.
    pub(crate) fn end_waits(&mut self) -> Vec<Waiter> {
        self.waits.clear();
        let waiters = core::mem::take(&mut self.waiters);
        for (wait, waiter) in &waiters {
            self.change_queues(&waiter.wanted.locks, |queue| queue.leave(*wait));
        }
        waiters.into_values().collect()
    }

    /// The answers to requests that waited, since the last call, in order.
    pub(crate) fn take_completed(&mut self) -> Vec<(WaitId, Result<Reply, Refusal>)> {
        core::mem::take(&mut self.completed)
    }

    /// Loads a stored record. A grant comes before its listeners.
    pub(crate) fn load(&mut self, key: ResidentKey<'_>, bytes: &[u8]) -> Result<(), Malformed> {
        match keys::parse(key).ok_or(Malformed)? {
            keys::Resident::Grant(token) => self.load_grant(token, bytes),
            keys::Resident::Listeners(token) => self.load_listeners(token, bytes),
        }
    }

    fn load_grant(&mut self, token: Position, bytes: &[u8]) -> Result<(), Malformed> {
        let grant: Grant = record::decode(bytes)?;
        match grant.token == token && self.insert(grant) {
            true => Ok(()),
            false => Err(Malformed),
        }
    }

    /// Sets the timers of what was taken in.
    pub(crate) fn finish_load(&self, namespace: NamespaceId, timers: &mut Timers) {
        for grant in self.grants.values() {
            timers.set(grant.timer_key(namespace), Timer::LockExpiry { token: grant.token });
        }
    }

    /// Each grant lives for at least its whole ttl from now on.
    pub(crate) fn apply_grace_period(&mut self, now: Time, namespace: NamespaceId, timers: &mut Timers) {
        for grant in self.grants.values_mut() {
            timers.cancel(grant.timer_key(namespace));
            grant.expires_at = grant.expires_at.max(now.after(grant.ttl));
            timers.set(grant.timer_key(namespace), Timer::LockExpiry { token: grant.token });
        }
    }
}
