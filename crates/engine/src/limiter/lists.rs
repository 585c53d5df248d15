//! Lists and queries.

use super::{
    Limiter,
    command::CounterId,
    counters,
    reply::{OverrideInfo, Refusal, Reply, RuleMatch},
};
use crate::{Name, Page, key_values::KeyValues, lists::pick, selection::Query};
use alloc::vec::Vec;

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
