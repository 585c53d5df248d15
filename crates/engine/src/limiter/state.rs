//! The limiter of one namespace, in memory: rules, groups, counters, leases, and the changes of rules under way.

use super::{
    backfill::RuleChangeQueue,
    counters::Counters,
    garbage::Garbage,
    groups::{GroupKey, GroupOwner, Groups},
    keys,
    leases::Lease,
    overrides::{Override, StoredOverride},
    reply::{Refusal, Reply},
    resident_bytes,
    rule::{Rule, StoredRule},
    rule_index::RuleNumber,
    rule_sets::StoredRuleSet,
    rules::Rules,
    terms::{Limit, Window},
    waiting::{FIRST_WAITER_BYTES, LeaseWaiter, SlotQueues},
    window::{BucketClock, Meter},
};
use crate::{
    Millis, Name, Position, Time, WaitId,
    ids::NamespaceId,
    key_values::KeyValues,
    record::{self, Malformed, key::ResidentKey},
    resident,
    slab::SlabIndex,
    small_bytes::ByteBuffer,
    timers::Timers,
    turn::{BatchChanges, Turn},
};
use alloc::{boxed::Box, collections::BTreeMap, sync::Arc, vec::Vec};
use core::cell::Cell;
use hashbrown::HashMap;

/// An estimate of the bytes of a stored counter without its key-values.
const COUNTER_BYTES: usize = 32;

/// The limiter of a namespace.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    pub(super) rules: Rules,
    pub(super) groups: Groups,
    pub(super) counters: Counters,
    pub(super) leases: BTreeMap<Name, Lease>,
    /// The resident bytes of all leases, and of those that wait.
    pub(super) lease_bytes: u64,
    /// The queues of requests that wait for limits without a window.
    pub(super) slots: SlotQueues,
    pub(super) lease_waiters: BTreeMap<WaitId, LeaseWaiter>,
    /// The waiting leases, by their ids.
    pub(super) lease_waits: HashMap<Name, WaitId>,
    /// Replies to leases that waited.
    pub(super) completed: Vec<(WaitId, Result<Reply, Refusal>)>,
    pub(super) rule_changes: RuleChangeQueue,
    pub(super) is_write_timer_set: bool,
    pub(super) is_idle_timer_set: bool,
    /// Work that was done and that the weights of requests do not contain: see [`Limiter::charge`].
    work: Cell<usize>,
    /// The latest time at which a lease or a decision took from limits. Not stored: at an opening it is the last stored time.
    pub(super) last_taken_at: Option<Time>,
}

/// How much the limiter holds in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Rules.
    pub rules: usize,
    /// Overrides of all rules.
    pub overrides: usize,
    /// Groups of rules and overrides that are not in their initial state.
    pub groups: usize,
    /// Counters above zero.
    pub counters: usize,
    /// Leases that have neither been released nor expired.
    pub leases: usize,
}

impl Sizes {
    /// Replaces one namespace's contribution to a sum.
    pub(crate) fn change(&mut self, before: Sizes, after: Sizes) {
        self.rules = self.rules + after.rules - before.rules;
        self.overrides = self.overrides + after.overrides - before.overrides;
        self.groups = self.groups + after.groups - before.groups;
        self.counters = self.counters + after.counters - before.counters;
        self.leases = self.leases + after.leases - before.leases;
    }
}

impl Limiter {
    /// Counts the work of a request to which so many rules and groups apply. How many they are is not known beforehand.
    pub(super) fn charge(&self, applying: usize) {
        /// So much is in the weight of a request.
        const WEIGHED: usize = 64;
        // What was found is asked and taken from later.
        self.work.set(self.work.get() + (2 * applying).saturating_sub(WEIGHED));
    }

    /// Takes the work since the last call.
    pub(crate) fn take_work(&self) -> usize {
        self.work.take()
    }

    pub(crate) fn sizes(&self) -> Sizes {
        Sizes {
            rules: self.rules.len(),
            overrides: self.rules.overrides(),
            groups: self.groups.len(),
            counters: self.counters.len(),
            leases: self.leases.len(),
        }
    }

    pub(crate) fn resident_bytes(&self) -> u64 {
        self.rules.resident_bytes()
            + self.groups.resident_bytes()
            + self.counters.resident_bytes()
            + self.lease_bytes
            + self.first_bytes()
            + self.slots.resident_bytes()
            + self.rule_changes.resident_bytes()
    }

    /// What the first lease and the first one that waits take besides.
    fn first_bytes(&self) -> u64 {
        resident::unless_empty(self.leases.len(), resident_bytes::FIRST_LEASE)
            + resident::unless_empty(self.lease_waiters.len(), FIRST_WAITER_BYTES)
    }

    /// The sizes and the resident bytes, summed up anew.
    pub(crate) fn recount(&self) -> (Sizes, u64) {
        let (overrides, rules) = self.rules.recount();
        let leases = self.leases.values().map(Lease::resident_bytes).sum::<u64>();
        let counted = rules + self.groups.recount_bytes() + self.counters.recount_bytes() + leases;
        let waiting = self.recount_waiters() + self.first_bytes() + self.slots.recount_bytes();
        (Sizes { overrides, ..self.sizes() }, counted + waiting + self.rule_changes.recount_bytes())
    }

    pub(super) fn rule(&self, name: &Name) -> Option<&Rule> {
        self.rules.by_name(name)
    }

    /// Sets a counter, and updates the groups of all rules and overrides that count it.
    pub(super) fn set_counter(
        &mut self,
        turn: &mut Turn<'_>,
        key_values: &KeyValues,
        unleased: u64,
        leased: u128,
    ) {
        let before = self.counters.get(key_values).total();
        let index = self.counters.set(key_values, unleased, leased, turn.namespace, turn.changes);
        let after = self.counters.get(key_values).total();
        if let Some(index) = index {
            turn.changes.will_write(COUNTER_BYTES + key_values.as_bytes().len());
            self.count(key_values, index, after as i128 - before as i128);
        }
    }

    /// Adds the change of a counter to every group that counts it. For a rule or override that is being backfilled, this is
    /// done only if the backfill has passed the counter: otherwise the backfill adds the counter's new total later.
    fn count(&mut self, key_values: &KeyValues, index: SlabIndex, change: i128) {
        let Limiter { rules, groups, rule_changes, .. } = self;
        let is_backfilled = rule_changes.has_counted(index);
        rules.for_each_match(key_values, |rule, group| {
            if rule.terms().window.is_none() && (rule.is_active || is_backfilled) {
                count_for_rule(rule, key_values, group.as_bytes(), groups, change, |item| {
                    is_backfilled || (rule.is_active && item.is_active)
                });
            }
        });
    }

    /// Counts one counter for a rule that is being backfilled, or for the overrides of an active rule that are.
    pub(super) fn count_for_backfill(&mut self, number: RuleNumber, key_values: &KeyValues, total: u128) {
        let Limiter { rules, groups, .. } = self;
        let mut group = ByteBuffer::new();
        let rule = rules.at(number);
        if rule.terms().window.is_some() || !rule.applies(key_values, &mut group) {
            return;
        }
        match rule.is_active {
            true => count_for_overrides(rule, key_values, groups, total as i128, |item| !item.is_active),
            false => count_for_rule(rule, key_values, group.as_slice(), groups, total as i128, |_| true),
        }
    }

    /// Scans up to `limit` slab indexes, and drops groups that are idle or whose rule no longer exists. Returns whether the
    /// scan has reached the end.
    pub(super) fn drop_idle(&mut self, turn: &mut Turn<'_>, limit: usize) -> bool {
        let Limiter { rules, groups, .. } = self;
        let now = turn.now;
        groups.drop_idle(limit, turn.namespace, turn.changes, |key, state| match meter_of(rules, key) {
            Some(meter) => meter.is_idle(state, now),
            None => true,
        })
    }

    /// Writes the after-images of counters and windows that have changed since the last call.
    pub(crate) fn flush(&mut self, namespace: NamespaceId, changes: &mut BatchChanges) {
        self.counters.flush(namespace, changes);
        self.groups.flush(namespace, changes);
    }

    /// Whether [`Limiter::flush`] would write anything.
    pub(crate) fn has_to_write(&self) -> bool {
        self.groups.has_to_write_now() || self.counters.has_to_write()
    }

    /// Whether a change of rules is being backfilled.
    pub(crate) fn is_backfilling(&self) -> bool {
        self.rule_changes.is_busy()
    }

    /// The replies to changes of rules, and then those to leases, that waited and were completed since the last call, in order.
    pub(crate) fn take_completed(&mut self) -> Vec<(WaitId, Result<Reply, Refusal>)> {
        let mut completed = self.rule_changes.take_completed();
        completed.append(&mut self.completed);
        completed
    }

    /// Drops all changes of rules that wait or are being backfilled, and all leases that wait. Returns the requests.
    pub(crate) fn stop_waits(&mut self) -> impl Iterator<Item = WaitId> + use<> {
        let leases: Vec<WaitId> = self.lease_waiters.keys().copied().collect();
        core::mem::take(&mut self.rule_changes).into_waiting().chain(leases)
    }

    /// Memory that went out of use since the last call.
    pub(crate) fn take_garbage(&mut self) -> Option<Garbage> {
        let removed = self.rules.take_removed();
        (!removed.is_empty()).then_some(Garbage::Rules(removed))
    }

    /// All memory of the limiter of a deleted namespace.
    pub(crate) fn into_garbage(self) -> impl Iterator<Item = Garbage> {
        let (rules, look_ups) = self.rules.into_garbage();
        let rules = (!rules.is_empty()).then_some(Garbage::Rules(rules));
        let has_counts = self.groups.len() + self.counters.len() > 0;
        let counts = has_counts.then(|| Garbage::Counts(Box::new((self.groups, self.counters))));
        let waiting = self.slots.into_leftovers().and(self.lease_waiters).and(self.lease_waits);
        let maps = [Garbage::Maps(look_ups.and(self.leases)), Garbage::Maps(waiting)];
        rules.into_iter().chain(counts).chain(maps)
    }
}

/// Loading of stored records.
impl Limiter {
    /// Loads a stored record. Records come in the order of their keys: rules, overrides, windows, counters, leases,
    /// rule sets.
    pub(crate) fn load(&mut self, key: ResidentKey<'_>, bytes: &[u8]) -> Result<(), Malformed> {
        match keys::parse(key).ok_or(Malformed)? {
            keys::Resident::Rule(id) => self.load_rule(id, bytes),
            keys::Resident::Override { rule, .. } => self.load_override(rule, bytes),
            keys::Resident::Window(index) => self.groups.load(index, bytes),
            keys::Resident::Counter(index) => self.counters.load(index, bytes),
            keys::Resident::Lease(_) => self.load_lease(bytes),
            keys::Resident::RuleSet(id) => self.load_rule_set(id, bytes),
        }
    }

    fn load_rule(&mut self, id: Position, bytes: &[u8]) -> Result<(), Malformed> {
        let stored: StoredRule = record::decode(bytes)?;
        if stored.id != id || self.rule(&stored.terms.name).is_some() {
            return Err(Malformed);
        }
        self.rules.insert(Rule::new(stored, Arc::default(), true));
        Ok(())
    }

    /// An override without a rule is left over from a deleted rule, and a pending sweep removes it.
    fn load_override(&mut self, rule: Position, bytes: &[u8]) -> Result<(), Malformed> {
        let stored: StoredOverride = record::decode(bytes)?;
        if let Some(number) = self.rules.number_of(rule) {
            let item = Override { stored, is_active: true };
            self.rules.change_overrides(number, |overrides| overrides.insert(item));
        }
        Ok(())
    }

    fn load_rule_set(&mut self, id: Position, bytes: &[u8]) -> Result<(), Malformed> {
        let stored: StoredRuleSet = record::decode(bytes)?;
        if stored.id != id || self.rules.sets.get(&stored.name).is_some() {
            return Err(Malformed);
        }
        self.rules.sets.insert(stored);
        Ok(())
    }

    /// Replaces a stored record, or removes it. Returns false if that is not possible.
    pub(crate) fn amend(
        &mut self,
        key: ResidentKey<'_>,
        bytes: Option<&[u8]>,
        now: Time,
        timers: &mut Timers,
    ) -> Result<bool, Malformed> {
        self.last_taken_at = Some(now);
        match keys::parse(key).ok_or(Malformed)? {
            keys::Resident::Window(index) => {
                let is_amended = self.groups.amend(index, bytes)?;
                if !self.is_idle_timer_set {
                    self.set_idle_timer(now, key.namespace, timers);
                }
                Ok(is_amended)
            }
            keys::Resident::Counter(index) => {
                let Some(changes) = self.counters.amend(index, bytes)? else { return Ok(false) };
                changes.iter().for_each(|(key_values, change)| self.count(key_values, index, *change));
                Ok(true)
            }
            keys::Resident::Rule(_)
            | keys::Resident::Override { .. }
            | keys::Resident::Lease(_)
            | keys::Resident::RuleSet(_) => Ok(false),
        }
    }

    /// Sets the timers and counts all counters for the rules without windows. To be called after the last record.
    pub(crate) fn finish_load(&mut self, now: Time, id: NamespaceId, timers: &mut Timers) {
        self.set_lease_timers(id, timers);
        self.set_idle_timer(now, id, timers);
        self.last_taken_at = Some(now);
        let Limiter { rules, groups, counters, .. } = self;
        for (_, key_values, counter) in counters.iter_from(0) {
            rules.for_each_match(key_values, |rule, group| {
                if rule.terms().window.is_none() {
                    let total = counter.total() as i128;
                    count_for_rule(rule, key_values, group.as_bytes(), groups, total, |_| true);
                }
            });
        }
    }
}

/// Adds a change to the rule's group and to the groups of those overrides that `which` selects.
fn count_for_rule(
    rule: &Rule,
    key_values: &KeyValues,
    group: &[u8],
    groups: &mut Groups,
    change: i128,
    which: impl Fn(&Override) -> bool,
) {
    groups.count(GroupOwner::Rule(rule.stored.generation), group, change);
    count_for_overrides(rule, key_values, groups, change, which);
}

/// An override for a whole group has no group of its own: it uses the rule's.
fn count_for_overrides(
    rule: &Rule,
    key_values: &KeyValues,
    groups: &mut Groups,
    change: i128,
    which: impl Fn(&Override) -> bool,
) {
    let mut scratch = ByteBuffer::new();
    for item in rule.overrides.applying(key_values, &mut scratch) {
        let own = &item.stored.terms.key_values;
        if which(item) && !rule.is_exact(own) {
            let owner = GroupOwner::Override { generation: rule.stored.generation, id: item.stored.id };
            groups.count(owner, own.as_bytes(), change);
        }
    }
}

/// The meter of a group. `None` if its rule or override no longer exists.
pub(super) fn meter_of(rules: &Rules, key: &GroupKey) -> Option<Meter> {
    let (generation, override_id) = match key.owner {
        GroupOwner::Rule(generation) => (generation, None),
        GroupOwner::Override { generation, id } => (generation, Some(id)),
        GroupOwner::Request(per) => return Some(request_meter(Limit::Unlimited, per)),
    };
    rules.by_generation(generation)?.meter_of(override_id, &key.values)
}

/// The meter of a limit that comes with a request.
pub(super) fn request_meter(limit: Limit, per: Millis) -> Meter {
    Meter::new(limit, Some(Window::Fixed { per }), None, BucketClock::UNUSED)
}
