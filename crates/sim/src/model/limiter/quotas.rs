//! Quotas of the limiter. Rules, overrides, counters and leases are counted exactly. Of the groups only those are known that
//! count what is in use: windows that are back in their initial state are dropped at some time, and so are the groups of
//! rules that were deleted or refused.

use super::{
    Done, Lease, Limiter, Order,
    decide::{Case, Mode},
    expect,
};
use limina_engine::{
    KeyValues, Name, Quota, QuotaExceeded,
    limiter::{Command, EntryMode, Take},
};
use std::collections::BTreeSet;

const EXACT: [Quota; 4] = [Quota::Rules, Quota::Overrides, Quota::Counters, Quota::Leases];

impl Limiter {
    /// Whether the quotas allow that a command makes this of it.
    pub(super) fn may_become(&self, after: &Limiter) -> bool {
        self.allows(after, EXACT.into_iter().chain([Quota::Groups]))
    }

    /// Whether the quotas allow these rules and overrides. Their groups are counted only when they are made.
    pub(super) fn may_have_rules(&self, after: &Limiter) -> bool {
        self.allows(after, [Quota::Rules, Quota::Overrides].into_iter())
    }

    fn allows(&self, after: &Limiter, mut quotas: impl Iterator<Item = Quota>) -> bool {
        quotas.all(|quota| {
            let (before, after) = (self.count(quota), after.count(quota));
            after <= before || self.bounds.limit(quota).is_none_or(|limit| after as u64 <= limit)
        })
    }

    /// A command was refused by this quota. The error says why that is wrong.
    pub(super) fn refused_by(
        &self,
        now: u64,
        order: &mut Order,
        command: &Command,
        exceeded: &QuotaExceeded,
    ) -> Result<Done, String> {
        let taking = |entries: &[Take], mode| {
            let mut after = self.clone();
            let case = Case::new(now, false, entries, mode);
            entries.iter().for_each(|take| after.take(&case, EntryMode::Take, take, true));
            vec![after]
        };
        let (entries, after) = match command {
            Command::Check(check) => (check.entries().len(), taking(check.entries(), Mode::Check)),
            Command::CheckSet(set) => (set.entries().len(), taking(set.entries(), Mode::Check)),
            Command::MoveCounter(change) | Command::SetCounter(change) => {
                let take = Take::new(change.key_values().clone(), change.amount().max(0));
                (1, taking(&[take.expect("a counter is within the limits")], Mode::Move))
            }
            Command::TakeLease(new) => {
                let lease = Lease::new(now, *order, new);
                (1, taking(&[lease.take()], Mode::Lease(&lease)))
            }
            Command::Change(change) => {
                let ways = self.changes(now, *order, change).into_iter();
                (1, ways.map(|way| way.limiter).collect())
            }
            _ => return Err("no refusal by a quota".into()),
        };
        let mut wrong = String::new();
        for after in after {
            match self.refused_after(order, exceeded, entries, &after) {
                Ok(()) => return Ok(Done::NOTHING),
                Err(text) => wrong = text,
            }
        }
        Err(wrong)
    }

    /// Whether this quota refuses what a command would make of it. A check has several `entries`, any other command has one.
    pub(super) fn refused_after(
        &self,
        order: &mut Order,
        exceeded: &QuotaExceeded,
        entries: usize,
        after: &Limiter,
    ) -> Result<(), String> {
        let QuotaExceeded { quota, limit, used } = *exceeded;
        if self.bounds.limit(quota) != Some(limit) {
            return Err(format!("no refusal by {quota}: the bounds are {:?}", self.bounds));
        }
        let count = self.count(quota) as u64;
        let is_right = match quota {
            Quota::Groups => used >= count,
            // Earlier entries of the same check may have created or removed some, and later ones may remove them again.
            _ if entries > 1 => used.abs_diff(count) <= entries as u64 && used >= limit,
            _ => used >= count && after.count(quota) as u64 > limit.max(count),
        };
        // A rule that was counted and then refused has used positions.
        if quota == Quota::Groups {
            order.grow(0);
        }
        expect(is_right, || format!("no refusal by {quota}: there are {count}"))
    }

    /// The number, or the least number of groups.
    fn count(&self, quota: Quota) -> usize {
        match quota {
            Quota::Rules => self.rules.len(),
            Quota::Overrides => self.rules.iter().map(|rule| rule.overrides.len()).sum(),
            Quota::Counters => self.counters().len(),
            Quota::Leases => self.leases.len(),
            Quota::Groups => self.groups_in_use().len(),
            _ => 0,
        }
    }

    fn groups_in_use(&self) -> BTreeSet<(&Name, KeyValues)> {
        let mut groups = BTreeSet::new();
        for counter in self.counters() {
            for rule in self.rules_for(&counter.key_values).filter(|rule| rule.terms.window.is_none()) {
                let own = rule.overrides_for(&counter.key_values).filter(|item| !rule.is_exact(item));
                groups.extend(own.map(|item| (&rule.terms.name, item.item.key_values.clone())));
                groups.extend(rule.group(&counter.key_values).map(|group| (&rule.terms.name, group)));
            }
        }
        groups
    }
}
