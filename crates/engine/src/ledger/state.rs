//! The resident part of the ledger: every limit with its sums.

use super::{
    balance::Balance,
    keys,
    reply::{Nearness, Refusal},
};
use crate::{
    Name, Position, Quota, QuotaExceeded, Time,
    ids::NamespaceId,
    leftovers::Leftovers,
    record::{self, Malformed, key::ResidentKey},
    resident::Heap,
    resident::{self, Shrink},
    timers::{TIMER_BYTES, Timer, TimerKey, TimerSource, Timers},
    turn::{BatchChanges, Turn},
};
use alloc::{boxed::Box, collections::BTreeMap, vec::Vec};
use hashbrown::HashMap;
use limina_api::{
    Context,
    ledger::{self as api, LimitValue},
};
use serde::{Deserialize, Serialize};

/// All limits of a namespace. Limits are numbered in the order of creation, from 0. The number of a deleted limit is not used
/// again: operations still refer to it, and its history is removed later.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Each limit has an allocation of its own, so that the map moves little when it grows.
    limits: HashMap<u32, Box<Limit>>,
    next_number: u32,
    by_name: HashMap<Name, u32>,
    /// The same names, sorted, for lists.
    names: BTreeMap<Name, u32>,
    /// The numbers of the limits that the next flush writes, each once.
    changed: Vec<u32>,
    /// The ids of operations that are more than their holds, with the times at which they expire: only their owner changes
    /// the holds. The owner counts their bytes.
    pub(super) reserved: HashMap<Name, Time>,
    /// The resident bytes of all limits, and of the timers of holds.
    bytes: u64,
}

/// A limit without its texts.
const LIMIT_BYTES: u64 = resident::heap(size_of::<Limit>())
    + resident::hash_slot::<(u32, Box<Limit>)>()
    + resident::hash_slot::<(Name, u32)>()
    + resident::tree_slot::<(Name, u32)>();
/// What the first limit takes besides.
const FIRST_LIMIT_BYTES: u64 = resident::first_in_hash::<(u32, Box<Limit>)>()
    + resident::first_in_hash::<(Name, u32)>()
    + resident::first_in_tree::<(Name, u32)>();

#[derive(Debug)]
pub(crate) struct Limit {
    pub(crate) terms: Terms,
    pub(crate) balance: Balance,
    /// The number of open holds. The sums do not show it: a hold of 0 is a hold.
    pub(crate) open_holds: u64,
    /// Whether the limit has a history, and operations that refer to it.
    was_held: bool,
    terms_changed: bool,
    balance_changed: bool,
}

impl Limit {
    /// The values of the limit with this balance, which it has now or had once.
    fn value(&self, balance: Balance) -> LimitValue {
        let (commit_value, hold_value) = (balance.commit, balance.hold_value());
        LimitValue {
            limit_name: self.terms.name.clone(),
            limit_id: self.terms.limit_id.clone(),
            commit_value,
            hold_value,
            // It cannot overflow, because every hold is checked for the worst case.
            total_value: commit_value + hold_value,
        }
    }
}

/// What changes in a limit with each hold, as it is stored.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct StoredBalance {
    balance: Balance,
    open_holds: u64,
}

/// What is stored of a deleted limit, for the operations that held in it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct DeletedLimit {
    pub(crate) name: Name,
    pub(crate) limit_id: Option<Name>,
}

/// What a client has set for a limit. It changes seldom, so it is a record of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Terms {
    pub(crate) name: Name,
    pub(crate) limit_id: Option<Name>,
    pub(crate) context: Context,
    pub(crate) ceiling: Option<i64>,
    pub(crate) created_at: Position,
}

impl Terms {
    /// The resident bytes of a limit with these terms.
    pub(crate) fn resident_bytes(&self) -> u64 {
        limit_bytes(&self.name, self.limit_id.as_ref(), &self.context)
    }

    /// An estimate of the bytes of the stored record.
    fn stored_bytes(&self) -> usize {
        /// The bytes without the context.
        const TERMS_BYTES: usize = 512;
        let context = self.context.iter().map(|(key, value)| key.len() + value.len() + 4);
        TERMS_BYTES + context.sum::<usize>()
    }
}

/// The resident bytes of a limit.
pub(crate) fn limit_bytes(name: &Name, limit_id: Option<&Name>, context: &Context) -> u64 {
    let texts = context.iter().map(|(key, value)| resident::heap(key.len()) + resident::heap(value.len()));
    let context = resident::small_tree::<(Box<str>, Box<str>)>(context.len()) + texts.sum::<u64>();
    LIMIT_BYTES + name.heap() + limit_id.map_or(0, Name::heap) + context
}

/// The resident bytes of a hold request that expires. Other holds are paged.
pub(crate) fn expiry_bytes(operation_id: &Name) -> u64 {
    TIMER_BYTES + operation_id.heap()
}

impl Ledger {
    pub(crate) fn len(&self) -> usize {
        self.limits.len()
    }

    /// All memory of the ledger of a deleted namespace.
    pub(crate) fn into_leftovers(self) -> Leftovers {
        Leftovers::of(self.names).and(self.by_name).and(self.limits).and(self.reserved)
    }

    pub(crate) fn find(&self, name: &Name) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// The limit with this number, which exists.
    pub(crate) fn limit(&self, number: u32) -> &Limit {
        &self.limits[&number]
    }

    fn limit_mut(&mut self, number: u32) -> &mut Limit {
        self.limits.get_mut(&number).expect("the limit exists")
    }

    /// Whether the limit exists. A limit of a stored operation may have been deleted.
    pub(crate) fn has(&self, number: u32) -> bool {
        self.limits.contains_key(&number)
    }

    /// Whether the limit exists or has existed.
    pub(crate) fn has_had(&self, number: u32) -> bool {
        number < self.next_number
    }

    /// Fails if only the owner of the operation may change its holds.
    pub(super) fn check_not_reserved(&self, operation_id: &Name) -> Result<(), Refusal> {
        match self.reserved.contains_key(operation_id) {
            true => Err(Refusal::PartOfOperation { operation_id: operation_id.clone() }),
            false => Ok(()),
        }
    }

    /// The numbers of the limits whose names follow `after`, by name.
    pub(crate) fn names_after(&self, after: Option<&Name>) -> impl Iterator<Item = u32> {
        use core::ops::Bound::{Excluded, Unbounded};
        self.names.range::<Name, _>((after.map_or(Unbounded, Excluded), Unbounded)).map(|(_, number)| *number)
    }

    pub(crate) fn create(&mut self, turn: &mut Turn<'_>, terms: Terms) -> u32 {
        turn.changes.will_write(terms.stored_bytes());
        let number = self.next_number;
        self.next_number += 1;
        self.names.insert(terms.name.clone(), number);
        self.by_name.insert(terms.name.clone(), number);
        self.add(number, terms);
        self.mark(number, true);
        number
    }

    fn add(&mut self, number: u32, terms: Terms) {
        self.bytes += terms.resident_bytes();
        let limit = Limit {
            terms,
            balance: Balance::default(),
            open_holds: 0,
            was_held: false,
            terms_changed: false,
            balance_changed: false,
        };
        self.limits.insert(number, Box::new(limit));
    }

    /// Deletes a limit without open holds. A sweep removes its history.
    pub(crate) fn delete(&mut self, turn: &mut Turn<'_>, number: u32) {
        let limit = self.limits.remove(&number).expect("the limit exists");
        let Terms { name, limit_id, .. } = &limit.terms;
        self.bytes -= limit.terms.resident_bytes();
        self.by_name.remove(name);
        self.names.remove(name);
        self.limits.shrink();
        self.by_name.shrink();
        turn.put(keys::next_limit(turn.namespace), &self.next_number);
        turn.remove(keys::limit(turn.namespace, number));
        if limit.was_held {
            turn.remove(keys::balance(turn.namespace, number));
            let deleted = DeletedLimit { name: name.clone(), limit_id: limit_id.clone() };
            turn.put(keys::deleted(turn.namespace, number), &deleted);
            turn.sweep(keys::entries_from(turn.namespace, number, Position(0)));
        }
    }

    /// Fails if the namespace must not have so many more limits, or if there are no numbers left for them.
    pub(crate) fn check_limits(&self, turn: &Turn<'_>, more: usize) -> Result<(), QuotaExceeded> {
        let left = u32::MAX - self.next_number;
        if more > left as usize {
            let (limit, used) = (u32::MAX.into(), self.next_number.into());
            return Err(QuotaExceeded { quota: Quota::LedgerLimits, limit, used });
        }
        turn.check_quota(Quota::LedgerLimits, self.len(), more)
    }

    /// The name must stay.
    pub(crate) fn set_terms(&mut self, turn: &mut Turn<'_>, number: u32, terms: Terms) {
        turn.changes.will_write(terms.stored_bytes());
        self.mark(number, true);
        let bytes = terms.resident_bytes();
        let old = core::mem::replace(&mut self.limit_mut(number).terms, terms);
        self.bytes = self.bytes + bytes - old.resident_bytes();
    }

    /// Counts the timer of a hold request that was set.
    pub(crate) fn add_expiry(&mut self, operation_id: &Name) {
        self.bytes += expiry_bytes(operation_id);
    }

    /// Counts the timer of a hold request that has fired or was cancelled.
    pub(crate) fn end_expiry(&mut self, operation_id: &Name) {
        self.bytes -= expiry_bytes(operation_id);
    }

    pub(crate) fn resident_bytes(&self) -> u64 {
        self.bytes + resident::unless_empty(self.limits.len(), FIRST_LIMIT_BYTES)
    }

    /// The resident bytes of all limits, summed up anew.
    pub(crate) fn recount_bytes(&self) -> u64 {
        let limits = self.limits.values().map(|limit| limit.terms.resident_bytes()).sum::<u64>();
        limits + resident::unless_empty(self.limits.len(), FIRST_LIMIT_BYTES)
    }

    /// Adds an open hold, which the decision has checked, and returns the new balance.
    pub(crate) fn begin_hold(&mut self, number: u32, value: i64) -> Balance {
        let limit = self.mark(number, false);
        limit.balance = limit.balance.hold(value).expect("the decision has checked the range");
        limit.open_holds += 1;
        limit.was_held = true;
        limit.balance
    }

    /// Ends an open hold of which `committed` is committed, and returns the new balance.
    pub(crate) fn end_hold(&mut self, number: u32, held: i64, committed: i64) -> Balance {
        let limit = self.mark(number, false);
        limit.balance = limit.balance.end_hold(held, committed);
        limit.open_holds -= 1;
        limit.balance
    }

    /// Commits a value that is not held, which the decision has checked, and returns the new balance.
    pub(crate) fn book(&mut self, number: u32, value: i64) -> Balance {
        let limit = self.mark(number, false);
        limit.balance.commit += value;
        limit.balance
    }

    fn mark(&mut self, number: u32, terms: bool) -> &mut Limit {
        let limit = self.limits.get_mut(&number).expect("the limit exists");
        if !limit.terms_changed && !limit.balance_changed {
            self.changed.push(number);
        }
        if terms {
            limit.terms_changed = true;
        } else {
            limit.balance_changed = true;
        }
        limit
    }

    /// Writes the after-images of the limits that have changed since the last call.
    pub(crate) fn flush(&mut self, namespace: NamespaceId, changes: &mut BatchChanges) {
        for number in core::mem::take(&mut self.changed) {
            // A limit that has changed may have been deleted since.
            let Some(limit) = self.limits.get_mut(&number) else { continue };
            if core::mem::take(&mut limit.terms_changed) {
                changes.put(&keys::limit(namespace, number), &limit.terms);
            }
            if core::mem::take(&mut limit.balance_changed) {
                let Limit { balance, open_holds, .. } = **limit;
                changes.put(&keys::balance(namespace, number), &StoredBalance { balance, open_holds });
            }
        }
    }

    /// Loads a stored record. Records come in the order of their keys.
    pub(crate) fn load(
        &mut self,
        key: ResidentKey<'_>,
        bytes: &[u8],
        timers: &mut Timers,
    ) -> Result<(), Malformed> {
        match keys::parse(key).ok_or(Malformed)? {
            keys::Resident::Limit(number) => self.load_limit(number, bytes),
            keys::Resident::Balance(number) => self.load_balance(number, bytes),
            keys::Resident::NextLimit => {
                let next: u32 = record::decode(bytes)?;
                self.next_number = self.next_number.max(next);
                Ok(())
            }
            keys::Resident::Expiry(due, held_at) => {
                let operation_id: Name = record::decode(bytes)?;
                self.add_expiry(&operation_id);
                let timer = Timer::HoldExpiry { operation_id, held_at, due };
                let source = TimerSource::Change(held_at);
                timers.set(TimerKey { due, namespace: key.namespace, source }, timer);
                Ok(())
            }
        }
    }

    /// Replaces a stored record, or removes it. Returns false if that is not possible.
    pub(crate) fn amend(
        &mut self,
        key: ResidentKey<'_>,
        bytes: Option<&[u8]>,
        timers: &mut Timers,
    ) -> Result<bool, Malformed> {
        match (keys::parse(key).ok_or(Malformed)?, bytes) {
            (keys::Resident::Limit(number), Some(bytes)) if !self.limits.contains_key(&number) => {
                let next = self.next_number;
                self.load_limit(number, bytes)?;
                self.next_number = self.next_number.max(next);
                self.names.insert(self.limit(number).terms.name.clone(), number);
                Ok(true)
            }
            (keys::Resident::Balance(_) | keys::Resident::NextLimit, Some(bytes)) => {
                self.load(key, bytes, timers).map(|()| true)
            }
            (keys::Resident::Expiry(due, held_at), bytes) => {
                let source = TimerSource::Change(held_at);
                let timer = TimerKey { due, namespace: key.namespace, source };
                if let Some(Timer::HoldExpiry { operation_id, .. }) = timers.get(timer) {
                    let operation_id = operation_id.clone();
                    self.end_expiry(&operation_id);
                    timers.cancel(timer);
                }
                bytes.map_or(Ok(()), |bytes| self.load(key, bytes, timers)).map(|()| true)
            }
            // A limit that was changed or deleted.
            (keys::Resident::Limit(_) | keys::Resident::Balance(_) | keys::Resident::NextLimit, _) => {
                Ok(false)
            }
        }
    }

    fn load_limit(&mut self, number: u32, bytes: &[u8]) -> Result<(), Malformed> {
        let terms: Terms = record::decode(bytes)?;
        if self.by_name.insert(terms.name.clone(), number).is_some() {
            return Err(Malformed);
        }
        self.next_number = number.checked_add(1).ok_or(Malformed)?;
        self.add(number, terms);
        Ok(())
    }

    /// All records are loaded. The names are sorted all at once, which takes a fraction of the time of an insertion for each.
    pub(crate) fn finish_load(&mut self) {
        let name = |number: u32| &self.limits[&number].terms.name;
        let Some(first) = self.limits.values().next().map(|limit| limit.terms.name.as_bytes()) else {
            return;
        };
        // Comparing two names waits for memory twice. The first bytes in which names differ are copied into the list that is
        // sorted, so that most comparisons need no other memory.
        let common = self.limits.values().fold(first.len(), |common, limit| {
            let pairs = first[..common].iter().zip(limit.terms.name.as_bytes());
            pairs.take_while(|(a, b)| a == b).count()
        });
        let head = |number: u32| {
            let mut head = [0; 8];
            let bytes = &name(number).as_bytes()[common..];
            let length = bytes.len().min(head.len());
            head[..length].copy_from_slice(&bytes[..length]);
            u64::from_be_bytes(head)
        };
        let mut sorted: Vec<(u64, u32)> = self.limits.keys().map(|number| (head(*number), *number)).collect();
        sorted.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| name(a.1).cmp(name(b.1))));
        self.names = sorted.into_iter().map(|(_, number)| (name(number).clone(), number)).collect();
    }

    fn load_balance(&mut self, number: u32, bytes: &[u8]) -> Result<(), Malformed> {
        let limit = self.limits.get_mut(&number).ok_or(Malformed)?;
        let StoredBalance { balance, open_holds } = record::decode(bytes)?;
        (limit.balance, limit.open_holds, limit.was_held) = (balance, open_holds, true);
        Ok(())
    }

    pub(crate) fn value(&self, number: u32, balance: Balance) -> LimitValue {
        self.limit(number).value(balance)
    }

    pub(crate) fn value_now(&self, number: u32) -> LimitValue {
        let limit = self.limit(number);
        limit.value(limit.balance)
    }

    pub(crate) fn info(&self, number: u32) -> api::Limit {
        let Limit { terms, balance, .. } = self.limit(number);
        let LimitValue { limit_name, limit_id, commit_value, hold_value, total_value } =
            self.value_now(number);
        api::Limit {
            name: limit_name,
            limit_id,
            context: terms.context.clone(),
            ceiling: terms.ceiling,
            commit_value,
            hold_value,
            total_value,
            available: terms.ceiling.map(|ceiling| balance.available(ceiling)),
            created_position: terms.created_at,
        }
    }

    pub(crate) fn nearness(&self, number: u32) -> Nearness {
        let Limit { terms, balance, .. } = self.limit(number);
        Nearness::new(terms.ceiling, terms.ceiling.map(|ceiling| balance.available(ceiling)))
    }
}
