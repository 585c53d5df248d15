//! The limiter of one namespace, in memory: rules, groups, counters, leases, and the changes of rules under way.

use super::{
    counters::Counters,
    garbage::Garbage,
    groups::Groups,
    lease::Leases,
    lease_waiters::LeaseWaiters,
    reply::{Refusal, Reply},
    rule::Rule,
    rule_changes::RuleChangeQueue,
    rules::Rules,
    slot_queues::SlotQueues,
};
use crate::{Name, Time, WaitId, ids::NamespaceId, turn::BatchChanges};
use alloc::{boxed::Box, vec::Vec};
use core::cell::Cell;

/// The limiter of a namespace.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    pub(super) rules: Rules,
    pub(super) groups: Groups,
    pub(super) counters: Counters,
    pub(super) leases: Leases,
    /// The queues of requests that wait for limits without a window.
    pub(super) slots: SlotQueues,
    pub(super) lease_waiters: LeaseWaiters,
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
            + self.leases.resident_bytes()
            + self.lease_waiters.resident_bytes()
            + self.slots.resident_bytes()
            + self.rule_changes.resident_bytes()
    }

    /// The sizes and the resident bytes, summed up anew.
    pub(crate) fn recount(&self) -> (Sizes, u64) {
        let (overrides, rules) = self.rules.recount();
        let counted = rules + self.groups.recount_bytes() + self.counters.recount_bytes();
        let leases = self.leases.recount_bytes() + self.lease_waiters.recount_bytes();
        let waiting = self.slots.recount_bytes() + self.rule_changes.recount_bytes();
        (Sizes { overrides, ..self.sizes() }, counted + leases + waiting)
    }

    pub(super) fn rule(&self, name: &Name) -> Option<&Rule> {
        self.rules.by_name(name)
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

    /// The earliest of the requests that have come to the head of a queue, or whose group has more room.
    pub(crate) fn first_woken(&self) -> Option<WaitId> {
        self.slots.first_woken()
    }

    pub(crate) fn handle_woken(&mut self, wait: WaitId) {
        self.slots.handle_woken(wait);
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
        let leases: Vec<WaitId> = self.lease_waiters.places().collect();
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
        let waiting = self.lease_waiters.into_leftovers(self.slots.into_leftovers());
        let maps = [Garbage::Maps(self.leases.into_leftovers(look_ups)), Garbage::Maps(waiting)];
        rules.into_iter().chain(counts).chain(maps)
    }
}
