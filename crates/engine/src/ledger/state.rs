//! The resident part of the ledger: every limit with its sums.

use super::{Context, LimitInfo, Value, keys, operations::Operation};
use crate::{
    Name, Position,
    ids::NamespaceId,
    leftovers::Leftovers,
    record::{self, Malformed, key::ResidentKey},
    resident,
    timers::{TIMER_BYTES, Timer, TimerKey, TimerSource, Timers},
    turn::BatchChanges,
};
use alloc::{boxed::Box, collections::BTreeMap, vec::Vec};
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

/// All limits of a namespace. Limits are numbered in the order of creation, from 0.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    limits: Vec<Limit>,
    by_name: HashMap<Name, u32>,
    /// The same names, sorted, for lists.
    names: BTreeMap<Name, u32>,
    /// The numbers of the limits that the next flush writes, each once.
    changed: Vec<u32>,
    /// The resident bytes of all limits, and of the timers of holds.
    bytes: u64,
}

/// A limit without its texts.
const LIMIT_BYTES: u64 = resident::vec_slot::<Limit>()
    + resident::hash_slot::<(Name, u32)>()
    + resident::tree_slot::<(Name, u32)>();

#[derive(Debug)]
pub(crate) struct Limit {
    pub(crate) terms: Terms,
    pub(crate) balance: Balance,
    terms_changed: bool,
    balance_changed: bool,
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

/// The sums of a limit. `held_up` is the sum of the positive open holds, `held_down` that of the negative ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Balance {
    pub(crate) commit: i64,
    pub(crate) held_up: i64,
    pub(crate) held_down: i64,
}

impl Balance {
    pub(crate) fn hold_value(&self) -> i64 {
        self.held_up + self.held_down
    }

    /// The balance with one more open hold. `None` if a sum could overflow, whichever holds are committed later.
    pub(crate) fn hold(self, value: i64) -> Option<Balance> {
        let mut next = self;
        if value >= 0 {
            next.held_up = next.held_up.checked_add(value)?;
            next.commit.checked_add(next.held_up)?;
        } else {
            next.held_down = next.held_down.checked_add(value)?;
            next.commit.checked_add(next.held_down)?;
        }
        Some(next)
    }

    /// Whether one more hold could exceed the ceiling, if all positive open holds are committed. A negative hold never does.
    pub(crate) fn exceeds_ceiling(&self, value: i64, ceiling: i64) -> bool {
        value > 0
            && i128::from(self.commit) + i128::from(self.held_up) + i128::from(value) > i128::from(ceiling)
    }

    /// The balance after an open hold of `held` has ended and `committed` of it was committed.
    pub(crate) fn end_hold(mut self, held: i64, committed: i64) -> Balance {
        if held >= 0 {
            self.held_up -= held;
        } else {
            self.held_down -= held;
        }
        self.commit += committed;
        self
    }
}

impl Ledger {
    pub(crate) fn len(&self) -> usize {
        self.limits.len()
    }

    /// All memory of the ledger of a deleted namespace.
    pub(crate) fn into_leftovers(self) -> Leftovers {
        Leftovers::of(self.names).and(self.by_name).and(self.limits)
    }

    pub(crate) fn find(&self, name: &Name) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn limit(&self, number: u32) -> &Limit {
        &self.limits[number as usize]
    }

    /// The numbers of the limits whose names follow `after`, by name.
    pub(crate) fn names_after(&self, after: Option<&Name>) -> impl Iterator<Item = u32> {
        use core::ops::Bound::{Excluded, Unbounded};
        self.names.range::<Name, _>((after.map_or(Unbounded, Excluded), Unbounded)).map(|(_, number)| *number)
    }

    pub(crate) fn create(&mut self, terms: Terms) -> u32 {
        let number = self.limits.len() as u32;
        self.bytes += terms.resident_bytes();
        self.by_name.insert(terms.name.clone(), number);
        self.names.insert(terms.name.clone(), number);
        let balance = Balance::default();
        self.limits.push(Limit { terms, balance, terms_changed: false, balance_changed: false });
        self.mark(number, true);
        number
    }

    /// The name must stay.
    pub(crate) fn set_terms(&mut self, number: u32, terms: Terms) {
        self.mark(number, true);
        let old = &mut self.limits[number as usize].terms;
        self.bytes = self.bytes + terms.resident_bytes() - old.resident_bytes();
        *old = terms;
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
        self.bytes
    }

    /// The resident bytes of all limits, summed up anew.
    pub(crate) fn recount_bytes(&self) -> u64 {
        self.limits.iter().map(|limit| limit.terms.resident_bytes()).sum()
    }

    pub(crate) fn set_balance(&mut self, number: u32, balance: Balance) {
        self.mark(number, false);
        self.limits[number as usize].balance = balance;
    }

    fn mark(&mut self, number: u32, terms: bool) {
        let limit = &mut self.limits[number as usize];
        if !limit.terms_changed && !limit.balance_changed {
            self.changed.push(number);
        }
        if terms {
            limit.terms_changed = true;
        } else {
            limit.balance_changed = true;
        }
    }

    /// Writes the after-images of the limits that have changed since the last call.
    pub(crate) fn flush(&mut self, namespace: NamespaceId, changes: &mut BatchChanges) {
        for number in self.changed.drain(..) {
            let limit = &mut self.limits[number as usize];
            if core::mem::take(&mut limit.terms_changed) {
                changes.put(&keys::limit(namespace, number), &limit.terms);
            }
            if core::mem::take(&mut limit.balance_changed) {
                changes.put(&keys::balance(namespace, number), &limit.balance);
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

    fn load_limit(&mut self, number: u32, bytes: &[u8]) -> Result<(), Malformed> {
        let terms: Terms = record::decode(bytes)?;
        if number as usize != self.limits.len() || self.by_name.insert(terms.name.clone(), number).is_some() {
            return Err(Malformed);
        }
        self.bytes += terms.resident_bytes();
        let balance = Balance::default();
        self.limits.push(Limit { terms, balance, terms_changed: false, balance_changed: false });
        Ok(())
    }

    /// All records are loaded. The names are sorted all at once, which takes a fraction of the time of an insertion for each.
    pub(crate) fn finish_load(&mut self) {
        let name = |number: u32| &self.limits[number as usize].terms.name;
        let Some(first) = self.limits.first().map(|limit| limit.terms.name.as_bytes()) else { return };
        // Comparing two names waits for memory twice. The first bytes in which names differ are copied into the list that is
        // sorted, so that most comparisons need no other memory.
        let common = self.limits.iter().fold(first.len(), |common, limit| {
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
        let mut sorted: Vec<(u64, u32)> =
            (0..self.limits.len() as u32).map(|number| (head(number), number)).collect();
        sorted.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| name(a.1).cmp(name(b.1))));
        self.names = sorted.into_iter().map(|(_, number)| (name(number).clone(), number)).collect();
    }

    fn load_balance(&mut self, number: u32, bytes: &[u8]) -> Result<(), Malformed> {
        self.limits.get_mut(number as usize).ok_or(Malformed)?.balance = record::decode(bytes)?;
        Ok(())
    }

    pub(crate) fn value(&self, number: u32, balance: Balance) -> Value {
        let terms = &self.limit(number).terms;
        Value {
            limit_name: terms.name.clone(),
            limit_id: terms.limit_id.clone(),
            commit_value: balance.commit,
            hold_value: balance.hold_value(),
        }
    }

    pub(crate) fn value_now(&self, number: u32) -> Value {
        self.value(number, self.limit(number).balance)
    }

    pub(crate) fn info(&self, number: u32) -> LimitInfo {
        let terms = &self.limit(number).terms;
        LimitInfo {
            value: self.value_now(number),
            context: terms.context.clone(),
            ceiling: terms.ceiling,
            created_at: terms.created_at,
        }
    }

    /// Whether every limit of a stored operation exists. If not, the record is damaged.
    pub(crate) fn has_all_limits_of(&self, operation: &Operation) -> bool {
        operation.holds.iter().all(|hold| (hold.limit as usize) < self.limits.len())
    }
}
