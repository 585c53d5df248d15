//! Lists and queries. A command looks at a bounded number of objects, so that checks are not held up by millions.

use super::{
    Limiter,
    command::CounterId,
    counters,
    reply::{Listed, OverrideInfo, Refusal, Reply, RuleMatch},
};
use crate::{Name, Page, key_values::KeyValues, selection::Query};
use alloc::vec::Vec;

/// How many objects one command looks at.
const LOOKED_AT: usize = 4_096;

pub(super) fn rules(limiter: &Limiter, query: &Query, page: &Page<Name>) -> Reply {
    let rules = limiter.rules.after(page.after.as_ref());
    Reply::Rules(pick(
        rules,
        page.limit,
        |rule| query.finds_keys(&rule.keys).then(|| rule.info()),
        |rule| rule.terms().name.clone(),
    ))
}

pub(super) fn overrides(
    limiter: &Limiter,
    name: &Name,
    query: &Query,
    page: &Page<Name>,
) -> Result<Reply, Refusal> {
    let rule = limiter.rule(name).ok_or_else(|| Refusal::RuleNotFound { rule: name.clone() })?;
    Ok(Reply::Overrides(pick(
        rule.overrides.after(page.after.as_ref()).filter(|item| item.is_active),
        page.limit,
        |item| query.finds(&item.stored.terms.key_values).then(|| rule.override_info(item)),
        |item| item.stored.terms.name.clone(),
    )))
}

pub(super) fn counters(limiter: &Limiter, query: &Query, page: &Page<CounterId>) -> Reply {
    let from = page.after.map_or(0, |CounterId(after)| after.saturating_add(1));
    Reply::Counters(pick(
        limiter.counters.iter_from(from),
        page.limit,
        |(_, key_values, counter)| query.finds(key_values).then(|| counters::info(key_values, counter)),
        |(place, ..)| CounterId(*place),
    ))
}

pub(super) fn matches(limiter: &Limiter, key_values: &KeyValues) -> Reply {
    let mut matches = Vec::new();
    let mut scratch = Vec::new();
    limiter.rules.matching(key_values, |rule, group| {
        if rule.is_active {
            let applying = rule.overrides.applying(key_values, &mut scratch).filter(|item| item.is_active);
            let mut overrides: Vec<OverrideInfo> = applying.map(|item| rule.override_info(item)).collect();
            overrides.sort_unstable_by(|a, b| a.item.name.cmp(&b.item.name));
            matches.push(RuleMatch { rule: rule.info(), group: KeyValues::from_projected(group), overrides });
        }
    });
    matches.sort_unstable_by(|a, b| a.rule.rule.name.cmp(&b.rule.rule.name));
    Reply::Matches(matches)
}

/// Up to `limit` of what is found, and where to go on.
fn pick<O, T, C>(
    objects: impl Iterator<Item = O>,
    limit: usize,
    find: impl Fn(&O) -> Option<T>,
    cursor: impl Fn(&O) -> C,
) -> Listed<T, C> {
    let mut items = Vec::new();
    let mut last = None;
    for (number, object) in objects.enumerate() {
        if items.len() == limit || number == LOOKED_AT {
            return Listed { items, next: last };
        }
        items.extend(find(&object));
        last = Some(cursor(&object));
    }
    Listed { items, next: None }
}
