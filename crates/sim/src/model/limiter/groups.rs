//! The groups of a rule: what each of them may show.

use super::{
    GroupKey, Limiter,
    window::{NEVER, Reading, remaining},
};
use limina_engine::{
    KeyValues, Listed, Name, Page,
    limiter::{self, GroupId, Limit, Usage},
};

/// A group, and what it shows.
#[derive(Debug)]
struct Group {
    override_name: Option<Name>,
    group: KeyValues,
    limit: Limit,
    reading: Reading,
}

impl Limiter {
    /// Whether a part of a list of groups is right.
    pub(super) fn check_groups(
        &self,
        now: u64,
        rule: &Name,
        above: Option<Usage>,
        page: &Page<GroupId>,
        shown: &Listed<limiter::Group, GroupId>,
    ) -> Result<(), String> {
        let mut all = self.groups_of(now, rule);
        let expected = format!("at most {} of these, each once: {all:?}", page.limit());
        for item in &shown.items {
            let place = all.iter().position(|group| group.may_show(item, above)).ok_or(&expected)?;
            all.swap_remove(place);
        }
        let is_whole = page.after.is_none() && shown.next.is_none();
        let is_missing = is_whole && all.iter().any(|group| group.must_be_shown(above));
        if is_missing || shown.items.len() > page.limit() { Err(expected) } else { Ok(()) }
    }

    fn groups_of(&self, now: u64, name: &Name) -> Vec<Group> {
        let rule = self.rule(name).expect("the answer showed its groups");
        let mut groups: Vec<(KeyValues, Option<&Name>)> = Vec::new();
        if rule.terms.window.is_none() {
            for counter in self.counters().iter().filter(|counter| rule.applies_to(&counter.key_values)) {
                groups.push((rule.group(&counter.key_values).expect("the rule applies"), None));
                let own = rule.overrides_for(&counter.key_values).filter(|item| !rule.is_exact(item));
                groups.extend(own.map(|item| (item.item.key_values.clone(), Some(&item.item.name))));
            }
        }
        groups.extend(self.groups.keys().filter_map(|key| match key {
            GroupKey::Group { rule, values } if rule == name => Some((values.clone(), None)),
            GroupKey::Own { rule: of, name: item } if of == name => {
                Some((rule.item(item)?.item.key_values.clone(), Some(item)))
            }
            _ => None,
        }));
        groups.sort();
        groups.dedup();
        let groups = groups.into_iter().map(|(group, own)| {
            let item = own.map_or_else(|| rule.exact(&group), |name| rule.item(name));
            let (limit, reading) = self.group_reading(rule, group.clone(), item, now);
            Group { override_name: item.map(|item| item.item.name.clone()), group, limit, reading }
        });
        groups.collect()
    }
}

impl Group {
    fn may_show(&self, item: &limiter::Group, above: Option<Usage>) -> bool {
        let reset = item.reset_ms.map_or(NEVER, |reset| reset.0);
        (&item.override_name, &item.group, item.limit) == (&self.override_name, &self.group, self.limit)
            && self.reading.used.contains(item.used)
            && self.reading.reset.contains(reset)
            && item.used > 0
            && item.remaining == remaining(item.limit, item.used)
            && item.waiting == 0
            && is_above(item.used, item.limit, above)
    }

    fn must_be_shown(&self, above: Option<Usage>) -> bool {
        self.reading.used.0 > 0 && is_above(self.reading.used.0, self.limit, above)
    }
}

/// Whether a larger part of the limit is used, or the same part of a larger limit.
fn is_above(used: u64, limit: Limit, above: Option<Usage>) -> bool {
    let Some(above) = above else { return true };
    let part = |used: u64, limit: Limit| match limit {
        Limit::Unlimited => 0.0,
        Limit::AtMost(limit) => used as f64 / limit as f64,
    };
    let (own, others) = (part(used, limit), part(above.used.max(1), above.limit));
    own > others || (own == others && used > above.used.max(1))
}
