//! What a command would add to the limiter, and whether the quotas of the namespace allow it.

use super::{
    check_request::Take,
    counters::counter_bytes,
    groups::{GroupOwner, group_bytes},
    state::Limiter,
    touched_groups::TouchedGroup,
    window::GroupState,
};
use crate::{ByteBuffer, Quota, QuotaExceeded, Time, key_values::KeyValues, turn::Turn};

/// What a command would add.
#[derive(Debug, Default)]
pub(super) struct Growth {
    pub(super) groups: usize,
    pub(super) counters: usize,
    pub(super) leases: usize,
    pub(super) bytes: u64,
}

impl Growth {
    fn add_group(&mut self, values: &KeyValues, state: &GroupState) {
        self.groups += 1;
        self.bytes += group_bytes(values, state);
    }
}

impl Limiter {
    /// Fails if a quota of the namespace forbids it.
    pub(super) fn check_growth(&self, turn: &Turn<'_>, growth: &Growth) -> Result<(), QuotaExceeded> {
        turn.check_quota(Quota::Groups, self.groups.len(), growth.groups)?;
        turn.check_quota(Quota::Counters, self.counters.len(), growth.counters)?;
        turn.check_quota(Quota::Leases, self.leases.len(), growth.leases)?;
        turn.check_bytes(self.resident_bytes(), growth.bytes)
    }

    /// What an entry of a check would add by taking. `groups` are those that the entry touches, looked up.
    pub(super) fn growth_by_take(
        &self,
        now: Time,
        entry: &Take,
        groups: &[TouchedGroup],
        is_counted: bool,
    ) -> Growth {
        let mut growth =
            if is_counted { self.growth_by_counter(&entry.key_values) } else { Growth::default() };
        for group in groups.iter().filter(|group| !group.is_count()) {
            match group.index.and_then(|index| self.groups.at(index)) {
                Some((_, state)) => growth.bytes += group.meter.growth(state, now),
                None => {
                    let initial = group.meter.initial();
                    growth.add_group(&group.values, &initial);
                    growth.bytes += group.meter.growth(&initial, now);
                }
            }
        }
        growth
    }

    /// What the counter would add if it became larger than 0: itself, and the groups of all rules and overrides that have no
    /// other counter. A rule that is being backfilled counts the counter now or later. A counter that exists adds nothing:
    /// its groups exist too, or a backfill adds them and is refused itself if they are too many.
    pub(super) fn growth_by_counter(&self, key_values: &KeyValues) -> Growth {
        let mut growth = Growth::default();
        if self.counters.contains(key_values) {
            return growth;
        }
        growth.counters = 1;
        growth.bytes = counter_bytes(key_values);
        let mut scratch = ByteBuffer::new();
        let mut add = |owner, values: &[u8]| {
            if self.groups.find(owner, values).is_none() {
                growth.add_group(&KeyValues::from_projected(values), &GroupState::Count(0));
            }
        };
        self.rules.for_each_match(key_values, |rule, group| {
            if rule.terms().window.is_some() {
                return;
            }
            let generation = rule.stored.generation;
            add(GroupOwner::Rule(generation), group.as_bytes());
            for item in rule.overrides.applying(key_values, &mut scratch) {
                let own = &item.stored.terms.key_values;
                if !rule.is_exact(own) {
                    add(GroupOwner::Override { generation, id: item.stored.id }, own.as_bytes());
                }
            }
        });
        growth
    }
}
