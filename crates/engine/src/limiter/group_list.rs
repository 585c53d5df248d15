//! Which groups of a rule use the most of their limits.
//!
//! A namespace may have millions of groups, and they are not sorted by what they use. So one command looks at a few thousand
//! of them, and returns those that use more than the caller knows already. [`MostUsed`] collects the parts. Other requests run
//! in between, so the parts show different instants.

use super::{
    command::Command,
    groups::{GroupKey, GroupOwner},
    lists::find_rule,
    reply::{GroupId, Refusal, Reply, Usage},
    rule::Rule,
    slot_queues::SlotQueues,
    state::Limiter,
    window::GroupState,
};
use crate::{
    Invalid, Listed, Name, Page, Time, answer_size,
    key_values::KeyValues,
    lists::{LOOKED_AT, pick},
    slab::SlabIndex,
};
use alloc::{collections::BTreeSet, vec::Vec};
use limina_api::limiter::{Group, Groups};

/// The groups of a rule that use more than `above`, from the next [`LOOKED_AT`] slab indexes.
pub(super) fn groups(
    limiter: &Limiter,
    now: Time,
    name: &Name,
    above: Option<Usage>,
    page: &Page<GroupId>,
) -> Result<Reply, Refusal> {
    let rule = find_rule(limiter, name)?;
    let from = page.after.map_or(0, |GroupId(after)| after.saturating_add(1));
    // The bound is one of indexes, because many of them may be unused.
    let until = from.saturating_add(LOOKED_AT as SlabIndex);
    let groups = limiter.groups.iter_from(from).take_while(|(index, ..)| *index < until);
    let mut listed = pick(
        groups,
        page.limit(),
        LOOKED_AT,
        |(_, key, state)| {
            info(&limiter.slots, rule, key, state, now).filter(|found| Some(Usage::from(found)) > above)
        },
        |(index, ..)| GroupId(*index),
    );
    if listed.next.is_none() && until < limiter.groups.end() {
        listed.next = Some(GroupId(until - 1));
    }
    Ok(Reply::Groups(listed))
}

/// The group, if it is one of the rule's and counts anything.
fn info(slots: &SlotQueues, rule: &Rule, key: &GroupKey, state: &GroupState, now: Time) -> Option<Group> {
    let item = match key.owner {
        GroupOwner::Rule(generation) if generation == rule.stored.generation => {
            rule.overrides.exact(&rule.keys, &key.values)
        }
        GroupOwner::Override { generation, id } if generation == rule.stored.generation => {
            Some(rule.overrides.by_id(id).filter(|item| item.is_active)?)
        }
        GroupOwner::Rule(_) | GroupOwner::Override { .. } | GroupOwner::Request(_) => return None,
    };
    let meter = item.map_or_else(|| rule.meter(), |item| rule.override_meter(item));
    let used = meter.used(Some(state), now);
    let limit = meter.reported_limit();
    (used > 0).then(|| Group {
        override_name: item.map(|item| item.stored.terms.name.clone()),
        group: key.values.clone(),
        limit,
        used,
        remaining: limit.remaining(used),
        reset_ms: meter.resets_after(Some(state), now),
        waiting: slots.waiting_in(key),
    })
}

/// Collects the groups of a rule that use the most of their limits: send [`MostUsed::command`], pass the answer to
/// [`MostUsed::add`], and repeat this until the list ends.
#[derive(Debug)]
pub struct MostUsed {
    rule: Name,
    limit: usize,
    /// The first has used the most.
    found: Vec<Group>,
    next: Next,
    /// Whether groups were left out because they would have made the answer too large.
    is_cut: bool,
}

/// Where the next part begins.
#[derive(Debug)]
enum Next {
    First,
    After(GroupId),
    End,
}

impl MostUsed {
    /// Looks for up to `limit` groups of the rule.
    pub fn new(rule: Name, limit: usize) -> Result<MostUsed, Invalid> {
        Page::<GroupId>::new(None, limit)?;
        Ok(MostUsed { rule, limit, found: Vec::new(), next: Next::First, is_cut: false })
    }

    /// Asks for the next part. `None` if there is none.
    pub fn command(&self) -> Option<Command> {
        let after = match self.next {
            Next::First => None,
            Next::After(after) => Some(after),
            Next::End => return None,
        };
        let is_full = self.is_cut || self.found.len() == self.limit;
        let above = self.found.last().filter(|_| is_full).map(Usage::from);
        let page = Page::new(after, self.limit).expect("the limit was checked");
        Some(Command::ListGroups { rule: self.rule.clone(), above, page })
    }

    /// Adds the next part, and keeps the groups that use the most.
    pub fn add(&mut self, part: Listed<Group, GroupId>) {
        self.next = part.next.map_or(Next::End, Next::After);
        // A group that was dropped and has come back may be listed twice. The later part is right.
        let again: BTreeSet<_> = part.items.iter().map(identity).collect();
        self.found.retain(|group| !again.contains(&identity(group)));
        drop(again);
        self.found.extend(part.items);
        self.found
            .sort_by(|a, b| Usage::from(b).cmp(&Usage::from(a)).then_with(|| identity(a).cmp(&identity(b))));
        self.found.truncate(self.limit);
        let mut bytes = 0;
        let fits = self.found.iter().take_while(|group| {
            bytes += answer_size::estimate(*group);
            bytes <= answer_size::PAGE_BYTES
        });
        let fits = fits.count();
        self.is_cut |= fits < self.found.len();
        self.found.truncate(fits);
    }

    /// The groups. They are complete if all groups were looked at, and none was left out because of its size.
    pub fn into_groups(self) -> Groups {
        let complete = matches!(self.next, Next::End) && !self.is_cut;
        Groups { items: self.found, next: None, complete }
    }
}

/// No two groups of a rule have the same.
fn identity(group: &Group) -> (Option<&Name>, &KeyValues) {
    (group.override_name.as_ref(), &group.group)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{key_values::Value, limiter::Limit};
    use alloc::{format, vec};

    fn group(user: &str, used: u64, limit: Limit) -> Group {
        let group = KeyValues::new(vec![("user", Value::String(user))]).unwrap();
        Group {
            override_name: None,
            group,
            limit,
            used,
            remaining: limit.remaining(used),
            reset_ms: None,
            waiting: 0,
        }
    }

    #[test]
    fn the_groups_that_use_the_most_are_kept() {
        let ten = Limit::AtMost(10);
        let mut most = MostUsed::new(Name::new("r").unwrap(), 3).unwrap();
        let above = |most: &MostUsed| match most.command() {
            Some(Command::ListGroups { above, page, .. }) => (above, page.after),
            other => panic!("{other:?}"),
        };
        assert_eq!(above(&most), (None, None));
        let first = vec![group("a", 1, ten), group("b", 99, Limit::Unlimited), group("c", 9, ten)];
        most.add(Listed { items: first, next: Some(GroupId(7)) });
        let unlimited = Usage { limit: Limit::Unlimited, used: 99 };
        assert_eq!(above(&most), (Some(unlimited), Some(GroupId(7))));
        // Group "c" has come back with another count, and is still one group.
        let second =
            vec![group("d", 1, Limit::AtMost(0)), group("c", 5, ten), group("e", 6, Limit::AtMost(12))];
        most.add(Listed { items: second, next: None });
        assert!(most.command().is_none());
        let Groups { items: groups, complete, .. } = most.into_groups();
        let shown: Vec<_> = groups.iter().map(|group| format!("{:?} {}", group.group, group.used)).collect();
        assert_eq!(shown, [r#"{"user": "d"} 1"#, r#"{"user": "e"} 6"#, r#"{"user": "c"} 5"#]);
        assert!(complete);
    }

    #[test]
    fn large_groups_are_cut() {
        let long = "x".repeat(1_024);
        let large = |number: u64| group(&format!("{}{number}", &long[..1_000]), number, Limit::AtMost(1_000));
        let mut most = MostUsed::new(Name::new("r").unwrap(), 1_000).unwrap();
        most.add(Listed { items: (1..=1_000).map(large).collect(), next: None });
        let Groups { items: groups, complete, .. } = most.into_groups();
        assert!((100..1_000).contains(&groups.len()), "{}", groups.len());
        assert_eq!((groups[0].used, complete), (1_000, false));
    }
}
