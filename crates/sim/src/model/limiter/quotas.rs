//! Quotas of the limiter. Rules, overrides, counters and leases are counted exactly. Of the groups only those are known that
//! count what is in use: windows that are back in their initial state are dropped at some time, and so are the groups of
//! rules that were deleted or refused.

use super::{Limiter, Order};
use crate::model::{Branch, Changed};
use limina_engine::{KeyValues, Name, Quota, QuotaExceeded};
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

    /// Whether there may be groups that the model does not know, so that it does not know whether a quota refuses.
    pub(super) fn may_be_full(&self) -> bool {
        self.bounds.limit(Quota::Groups).is_some()
    }

    /// The state after a refusal by this quota, if the refusal is right. `ways` are all states that the command could lead to
    /// without quotas. A check has several `entries`, any other command has one.
    pub(super) fn refused_by<'a>(
        &self,
        exceeded: &QuotaExceeded,
        order: Order,
        entries: usize,
        mut ways: impl Iterator<Item = &'a Limiter>,
    ) -> Result<Vec<Branch<Limiter>>, String> {
        let QuotaExceeded { quota, limit, used } = *exceeded;
        if self.bounds.limit(quota) != Some(limit) {
            return Err(format!("no refusal by {quota}: the bounds are {:?}", self.bounds));
        }
        let count = self.count(quota) as u64;
        let is_right = match quota {
            Quota::Groups => used >= count,
            // Earlier entries of the same check may have created or removed some, and later ones may remove them again.
            _ if entries > 1 => used.abs_diff(count) <= entries as u64 && used >= limit,
            _ => used >= count && ways.any(|way| way.count(quota) as u64 > limit.max(count)),
        };
        // A rule that was counted and then refused has used positions.
        let changed = if quota == Quota::Groups { Changed::Unclear } else { Changed::No };
        match is_right {
            true => Ok(vec![self.clone().way(order, changed)]),
            false => Err(format!("no refusal by {quota}: there are {count}")),
        }
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
