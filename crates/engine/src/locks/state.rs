//! All locks of a namespace: grants, waiting requests, and one queue for each lock.

use super::{
    GrantInfo, Lock, Mode,
    command::LockRequest,
    keys,
    listeners::{FIRST_LISTENERS_BYTES, Listeners},
    queue::Queue,
    reply::{Blocked, Holder, Refusal, Reply},
};
use crate::{
    Millis, Name, Position, Quota, QuotaExceeded, Time,
    ids::{NamespaceId, WaitId},
    key_values::KeyValues,
    leftovers::Leftovers,
    record::{self, Malformed, key::ResidentKey},
    resident::Heap,
    resident::{self, Shrink},
    timers::{TIMER_BYTES, Timer, TimerKey, TimerSource, Timers},
    turn::Turn,
};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

/// If the queues of a grant's locks have more waiters than this in total, [`Locks::waiting_for`] does not count each waiter
/// once.
const COUNTED: usize = 4_096;

/// The locks of a namespace.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    /// By fencing token.
    pub(super) grants: BTreeMap<Position, Grant>,
    /// The tokens of the grants, by their ids.
    pub(super) tokens: HashMap<Name, Position>,
    pub(super) waiters: BTreeMap<WaitId, Waiter>,
    /// The waiters, by the ids of their requests.
    pub(super) waits: HashMap<Name, WaitId>,
    /// By grant; only of grants that were returned to other requests than their own.
    pub(super) listeners: BTreeMap<Position, Listeners>,
    /// The same, by request.
    pub(super) listening: BTreeSet<(Name, Position)>,
    pub(super) queues: HashMap<KeyValues, Queue>,
    /// The resident bytes of all grants, waiters and listeners.
    pub(super) bytes: u64,
    /// Requests that may be granted, because a holder or a waiter has left one of their queues.
    woken: BTreeSet<WaitId>,
    /// The decisions among them, until they have entered the queues of their slots.
    freed: Vec<WaitId>,
    /// Replies to requests that waited.
    completed: Vec<(WaitId, Result<Reply, Refusal>)>,
}

/// A lock that is held or waited for, with the first node of its set of holders.
const QUEUE_BYTES: u64 = resident::hash_slot::<(KeyValues, Queue)>() + resident::small_tree::<Position>(1);
/// A grant without its locks and texts.
const GRANT_BYTES: u64 =
    resident::tree_slot::<(Position, Grant)>() + resident::hash_slot::<(Name, Position)>() + TIMER_BYTES;
/// A waiter without its locks and texts.
const WAITER_BYTES: u64 =
    resident::tree_slot::<(WaitId, Waiter)>() + resident::hash_slot::<(Name, WaitId)>() + TIMER_BYTES;

/// What the first grant takes besides.
const FIRST_GRANT_BYTES: u64 =
    resident::first_in_tree::<(Position, Grant)>() + resident::first_in_hash::<(Name, Position)>();
/// What the first waiter takes besides.
const FIRST_WAITER_BYTES: u64 =
    resident::first_in_tree::<(WaitId, Waiter)>() + resident::first_in_hash::<(Name, WaitId)>();
const FIRST_QUEUE_BYTES: u64 = resident::first_in_hash::<(KeyValues, Queue)>();

/// The resident bytes of the locks and texts of a grant or waiter. `place` is what each lock takes in its queue.
fn parts_bytes(id: &Name, session: &Name, owner: Option<&Name>, locks: &[Lock], place: u64) -> u64 {
    let texts = id.heap() + session.heap() + owner.map_or(0, Name::heap);
    let locks_bytes = resident::heap(size_of_val(locks));
    texts + locks_bytes + locks.iter().map(|lock| lock.key_values.heap() + place).sum::<u64>()
}

/// Locks that are held together, in memory and as stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Grant {
    pub(super) id: Name,
    pub(super) session: Name,
    #[serde(with = "stored_locks")]
    pub(super) locks: Vec<Lock>,
    pub(super) owner: Option<Name>,
    pub(super) ttl: Millis,
    pub(super) granted_at: Time,
    pub(super) expires_at: Time,
    pub(super) token: Position,
    /// The decision that the grant is a part of. The decision stores such a grant, and ends it.
    pub(super) operation_id: Option<Name>,
}

impl Grant {
    pub(super) fn resident_bytes(&self) -> u64 {
        let place = resident::tree_slot::<Position>();
        let operation = self.operation_id.as_ref().map_or(0, Name::heap);
        GRANT_BYTES
            + parts_bytes(&self.id, &self.session, self.owner.as_ref(), &self.locks, place)
            + operation
    }

    pub(super) fn timer_key(&self, namespace: NamespaceId) -> TimerKey {
        TimerKey { due: self.expires_at, namespace, source: TimerSource::Change(self.token) }
    }

    /// Stores the grant and sets the timer of its expiry.
    pub(super) fn keep(&self, turn: &mut Turn<'_>) {
        turn.put(keys::grant(turn.namespace, self.token), self);
        turn.timers.set(self.timer_key(turn.namespace), Timer::LockExpiry { token: self.token });
    }
}

/// Locks as they are stored, in grants and in the audit: the key-values, and whether the lock is shared.
pub(crate) mod stored_locks {
    use crate::{
        key_values::KeyValues,
        locks::{Lock, Mode},
    };
    use alloc::vec::Vec;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(locks: &[Lock], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(locks.iter().map(|lock| (&lock.key_values, lock.mode == Mode::Shared)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Lock>, D::Error> {
        let stored = Vec::<(KeyValues, bool)>::deserialize(deserializer)?;
        let lock = |(key_values, is_shared)| {
            let mode = if is_shared { Mode::Shared } else { Mode::Exclusive };
            Lock { key_values, mode }
        };
        Ok(stored.into_iter().map(lock).collect())
    }
}

/// A waiting request.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(super) request: LockRequest,
    pub(crate) wait: WaitId,
    pub(super) until: Time,
}

impl LockRequest {
    /// The resident bytes of the grant that this request may get.
    pub(super) fn grant_bytes(&self) -> u64 {
        let place = resident::tree_slot::<Position>();
        GRANT_BYTES + self.parts_bytes(place)
    }

    /// The resident bytes of this request while it waits.
    pub(super) fn waiter_bytes(&self) -> u64 {
        let place = 2 * resident::tree_slot::<(WaitId, Mode)>();
        WAITER_BYTES + self.parts_bytes(place)
    }

    fn parts_bytes(&self, place: u64) -> u64 {
        let LockRequest { id, session, wanted } = self;
        parts_bytes(id, session, wanted.owner(), wanted.locks(), place)
    }
}

impl Waiter {
    pub(crate) fn timer_key(&self, namespace: NamespaceId) -> TimerKey {
        TimerKey { due: self.until, namespace, source: TimerSource::Wait(self.wait) }
    }
}

/// How much there is in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Grants.
    pub held: usize,
    /// Waiting requests.
    pub waiting: usize,
}

impl Sizes {
    /// Replaces one namespace's contribution to a sum.
    pub(crate) fn change(&mut self, before: Sizes, after: Sizes) {
        self.held = self.held + after.held - before.held;
        self.waiting = self.waiting + after.waiting - before.waiting;
    }
}

impl Locks {
    pub(crate) fn sizes(&self) -> Sizes {
        Sizes { held: self.grants.len(), waiting: self.waiters.len() }
    }

    pub(crate) fn resident_bytes(&self) -> u64 {
        self.bytes + self.container_bytes()
    }

    /// The resident bytes of the queues, and what the first entries of the containers take besides.
    fn container_bytes(&self) -> u64 {
        self.queues.len() as u64 * QUEUE_BYTES
            + resident::unless_empty(self.queues.len(), FIRST_QUEUE_BYTES)
            + resident::unless_empty(self.grants.len(), FIRST_GRANT_BYTES)
            + resident::unless_empty(self.waiters.len(), FIRST_WAITER_BYTES)
            + resident::unless_empty(self.listeners.len(), FIRST_LISTENERS_BYTES)
    }

    /// The resident bytes, summed up anew.
    pub(crate) fn recount_bytes(&self) -> u64 {
        let grants = self.grants.values().map(Grant::resident_bytes).sum::<u64>();
        let waiters = self.waiters.values().map(|waiter| waiter.request.waiter_bytes()).sum::<u64>();
        let listeners = self.listeners.values().map(Listeners::resident_bytes).sum::<u64>();
        grants + waiters + listeners + self.container_bytes()
    }

    /// Checks that the namespace may have one more grant.
    pub(super) fn check_grant(&self, turn: &Turn<'_>, request: &LockRequest) -> Result<(), QuotaExceeded> {
        turn.check_quota(Quota::LocksHeld, self.grants.len(), 1)?;
        turn.check_bytes(
            self.resident_bytes(),
            request.grant_bytes() + self.new_queue_bytes(request.wanted.locks()),
        )
    }

    /// Checks that the namespace may have one more waiting request.
    pub(super) fn check_wait(&self, turn: &Turn<'_>, request: &LockRequest) -> Result<(), QuotaExceeded> {
        turn.check_quota(Quota::LocksWaiting, turn.other_waiting + self.waiters.len(), 1)?;
        turn.check_bytes(
            self.resident_bytes(),
            request.waiter_bytes() + self.new_queue_bytes(request.wanted.locks()),
        )
    }

    pub(super) fn new_queue_bytes(&self, locks: &[Lock]) -> u64 {
        locks.iter().filter(|lock| !self.queues.contains_key(&lock.key_values)).count() as u64 * QUEUE_BYTES
    }

    pub(super) fn by_id(&self, id: &Name) -> Option<&Grant> {
        self.tokens.get(id).and_then(|token| self.grants.get(token))
    }

    /// The first lock that a request cannot have now, and why. `None` if all its locks can be granted.
    pub(super) fn blocked(&self, now: Time, locks: &[Lock], wait: WaitId) -> Option<Blocked> {
        let in_the_way = |lock: &&Lock| {
            self.queues.get(&lock.key_values).is_some_and(|queue| !queue.admits(lock.mode, wait))
        };
        let lock = locks.iter().find(in_the_way)?;
        let queue = &self.queues[&lock.key_values];
        let holder = queue.holder().map(|token| {
            let Grant { id, owner, expires_at, .. } = &self.grants[&token];
            let expires_in = expires_at.since(now);
            Holder { lock_id: id.clone(), owner: owner.clone(), expires_in }
        });
        let key_values = lock.key_values.clone();
        let waiting = queue.waiters().len() - usize::from(self.waiters.contains_key(&wait));
        Some(Blocked { key_values, holder, waiting })
    }

    /// Grants a request that is not blocked.
    pub(super) fn grant(&mut self, turn: &mut Turn<'_>, request: &LockRequest) -> GrantInfo {
        let grant = Grant {
            id: request.id.clone(),
            session: request.session.clone(),
            locks: request.wanted.locks().to_vec(),
            owner: request.wanted.owner().cloned(),
            ttl: request.wanted.ttl(),
            granted_at: turn.now,
            expires_at: turn.now.after(request.wanted.ttl()),
            token: turn.advance(),
            operation_id: None,
        };
        grant.keep(turn);
        let is_possible = self.insert(grant.clone());
        assert!(is_possible, "a lock is held by two");
        self.info(turn.now, &grant)
    }

    /// Inserts a grant. Returns false if it conflicts with another grant: that is a bug, or a damaged record.
    pub(super) fn insert(&mut self, grant: Grant) -> bool {
        let mut is_possible = true;
        self.bytes += grant.resident_bytes();
        for lock in &grant.locks {
            is_possible &=
                self.queues.entry(lock.key_values.clone()).or_default().hold(grant.token, lock.mode);
        }
        is_possible &= self.tokens.insert(grant.id.clone(), grant.token).is_none();
        is_possible && self.grants.insert(grant.token, grant).is_none()
    }

    /// Ends a grant, and wakes the requests that waited for its locks.
    pub(super) fn end_grant(&mut self, turn: &mut Turn<'_>, token: Position) -> Option<Grant> {
        let grant = self.remove_grant(token)?;
        turn.timers.cancel(grant.timer_key(turn.namespace));
        turn.advance();
        turn.remove(keys::grant(turn.namespace, token));
        if self.forget_listeners(token) {
            turn.remove(keys::listeners(turn.namespace, token));
        }
        self.wake(&grant.locks);
        Some(grant)
    }

    /// Removes a grant from memory, and from the queues of its locks.
    pub(super) fn remove_grant(&mut self, token: Position) -> Option<Grant> {
        let grant = self.grants.remove(&token)?;
        self.bytes -= grant.resident_bytes();
        self.tokens.remove(&grant.id);
        self.tokens.shrink();
        self.change_queues(&grant.locks, |queue| queue.release(token));
        Some(grant)
    }

    pub(super) fn join(&mut self, turn: &mut Turn<'_>, waiter: Waiter) {
        let wait = waiter.wait;
        for lock in waiter.request.wanted.locks() {
            self.queues.entry(lock.key_values.clone()).or_default().join(wait, lock.mode);
        }
        turn.timers.set(waiter.timer_key(turn.namespace), Timer::LockWait { wait });
        self.bytes += waiter.request.waiter_bytes();
        self.waits.insert(waiter.request.id.clone(), wait);
        self.waiters.insert(wait, waiter);
    }

    /// Refuses a waiting request, and wakes those behind it.
    pub(super) fn leave(&mut self, turn: &mut Turn<'_>, wait: WaitId, refusal: Refusal) {
        if let Some(Waiter { request, .. }) = self.remove_waiter(turn, wait) {
            self.completed.push((wait, Err(refusal)));
            self.wake(request.wanted.locks());
        }
    }

    fn remove_waiter(&mut self, turn: &mut Turn<'_>, wait: WaitId) -> Option<Waiter> {
        let waiter = self.waiters.remove(&wait)?;
        self.bytes -= waiter.request.waiter_bytes();
        self.waits.remove(&waiter.request.id);
        self.waits.shrink();
        turn.timers.cancel(waiter.timer_key(turn.namespace));
        self.change_queues(waiter.request.wanted.locks(), |queue| queue.leave(wait));
        Some(waiter)
    }

    /// Wakes the requests at the heads of these queues, after a holder or a waiter of these locks has left them. The engine asks for them again at
    /// the end of its step, the earliest first. A new grant unblocks nothing: as a holder it blocks the same requests as it did as a
    /// waiter. So it is enough to wake the heads.
    pub(super) fn wake(&mut self, locks: &[Lock]) {
        let mut next = self.next_in_line(locks);
        self.freed.extend(next.iter().filter(|wait| !self.waiters.contains_key(*wait)));
        self.woken.append(&mut next);
    }

    /// The waiting decisions that were woken since the last call.
    pub(super) fn take_freed(&mut self) -> Vec<WaitId> {
        core::mem::take(&mut self.freed)
    }

    /// The earliest of the woken requests.
    pub(crate) fn first_woken(&self) -> Option<WaitId> {
        self.woken.first().copied()
    }

    pub(crate) fn handle_woken(&mut self, wait: WaitId) {
        self.woken.remove(&wait);
    }

    /// Grants a waiting request if nothing blocks it any more. If a quota refuses it, it leaves its queues, and the requests
    /// behind it are woken.
    pub(crate) fn ask_again(&mut self, turn: &mut Turn<'_>, wait: WaitId) {
        let Some(waiter) = self.waiters.get(&wait) else { return };
        if self.blocked(turn.now, waiter.request.wanted.locks(), wait).is_some() {
            return;
        }
        let Some(Waiter { request, .. }) = self.remove_waiter(turn, wait) else { return };
        let result = match self.check_grant(turn, &request) {
            Ok(()) => {
                let grant = self.grant(turn, &request);
                Ok(Reply::Granted { grant, session: request.session })
            }
            Err(exceeded) => {
                self.wake(request.wanted.locks());
                Err(exceeded.into())
            }
        };
        self.completed.push((wait, result));
    }

    /// The waiters at the heads of these queues.
    fn next_in_line(&self, locks: &[Lock]) -> BTreeSet<WaitId> {
        let queues = locks.iter().filter_map(|lock| Some((self.queues.get(&lock.key_values)?, lock.mode)));
        queues.flat_map(|(queue, left)| queue.next_in_line(left)).collect()
    }

    pub(super) fn change_queues(&mut self, locks: &[Lock], change: impl Fn(&mut Queue)) {
        for lock in locks {
            if let Some(queue) = self.queues.get_mut(&lock.key_values) {
                change(queue);
                if queue.is_unused() {
                    self.queues.remove(&lock.key_values);
                }
            }
        }
        self.queues.shrink();
    }

    pub(super) fn info(&self, now: Time, grant: &Grant) -> GrantInfo {
        GrantInfo {
            lock_id: grant.id.clone(),
            operation_id: grant.operation_id.clone(),
            owner: grant.owner.clone(),
            locks: grant.locks.clone(),
            held_ms: now.since(grant.granted_at),
            expires_in_ms: grant.expires_at.since(now),
            ttl_ms: grant.ttl,
            fencing_token: grant.token,
            waiting: self.waiting_for(&grant.locks),
        }
    }

    /// The number of requests that wait for any of these locks. If there are very many, the length of the longest queue.
    fn waiting_for(&self, locks: &[Lock]) -> usize {
        let queues = || locks.iter().filter_map(|lock| self.queues.get(&lock.key_values));
        let longest = queues().map(|queue| queue.waiters().len()).max().unwrap_or(0);
        let sum: usize = queues().map(|queue| queue.waiters().len()).sum();
        match sum == longest || sum > COUNTED {
            true => longest,
            false => queues().flat_map(Queue::waiters).collect::<BTreeSet<WaitId>>().len(),
        }
    }

    /// The requests that wait in a deleted namespace, and the rest of its memory.
    pub(crate) fn into_waits_and_leftovers(self) -> (Vec<WaitId>, Leftovers) {
        let waits = self.waiters.keys().copied().collect();
        let grants = Leftovers::of(self.grants).and(self.tokens).and(self.queues);
        let waiters = grants.and(self.waiters).and(self.waits);
        (waits, waiters.and(self.listeners).and(self.listening))
    }

    /// Removes all waiting requests, without replies.
    pub(crate) fn end_waits(&mut self) -> Vec<Waiter> {
        self.waits = HashMap::new();
        let waiters = core::mem::take(&mut self.waiters);
        for (wait, waiter) in &waiters {
            self.bytes -= waiter.request.waiter_bytes();
            self.change_queues(waiter.request.wanted.locks(), |queue| queue.leave(*wait));
        }
        self.woken.clear();
        self.freed.clear();
        waiters.into_values().collect()
    }

    /// The replies to requests that waited, since the last call, in order.
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

    /// Sets the timers of the loaded grants.
    pub(crate) fn finish_load(&self, namespace: NamespaceId, timers: &mut Timers) {
        for grant in self.grants.values().filter(|grant| grant.operation_id.is_none()) {
            timers.set(grant.timer_key(namespace), Timer::LockExpiry { token: grant.token });
        }
    }

    /// Gives each grant at least its whole ttl from `now` on.
    pub(crate) fn apply_grace_period(&mut self, now: Time, namespace: NamespaceId, timers: &mut Timers) {
        for grant in self.grants.values_mut().filter(|grant| grant.operation_id.is_none()) {
            timers.cancel(grant.timer_key(namespace));
            grant.expires_at = grant.expires_at.max(now.after(grant.ttl));
            timers.set(grant.timer_key(namespace), Timer::LockExpiry { token: grant.token });
        }
    }
}
