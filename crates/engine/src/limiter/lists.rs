//! Lists and queries.

use super::{
    Limiter,
    command::CounterId,
    counters,
    reply::{Refusal, Reply, RuleMatch},
};
use crate::{
    Name, Page,
    answer::{self, Room, TooLarge},
    key_values::KeyValues,
    lists::pick,
    selection::Query,
};
use alloc::vec::Vec;

pub(super) fn rules(limiter: &Limiter, query: &Query, page: &Page<Name>) -> Reply {
    let rules = limiter.rules.after(page.after.as_ref());
    Reply::Rules(pick(
        rules,
        page.limit(),
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
        page.limit(),
        |item| query.finds(&item.stored.terms.key_values).then(|| rule.override_info(item)),
        |item| item.stored.terms.name.clone(),
    )))
}

pub(super) fn counters(limiter: &Limiter, query: &Query, page: &Page<CounterId>) -> Reply {
    let from = page.after.map_or(0, |CounterId(after)| after.saturating_add(1));
    Reply::Counters(pick(
        limiter.counters.iter_from(from),
        page.limit(),
        |(_, key_values, counter)| query.finds(key_values).then(|| counters::info(key_values, counter)),
        |(place, ..)| CounterId(*place),
    ))
}

pub(super) fn matches(limiter: &Limiter, key_values: &KeyValues, mut room: Room) -> Result<Reply, TooLarge> {
    let mut matches = Vec::new();
    let mut scratch = Vec::new();
    let mut fits = Ok(());
    limiter.rules.matching(key_values, |rule, group| {
        if !rule.is_active || fits.is_err() {
            return;
        }
        let found =
            RuleMatch { rule: rule.info(), group: KeyValues::from_projected(group), overrides: Vec::new() };
        fits = room.take(answer::estimate(&found));
        matches.push(found);
        let overrides = &mut matches.last_mut().expect("it was just put there").overrides;
        for item in rule.overrides.applying(key_values, &mut scratch).filter(|item| item.is_active) {
            let info = rule.override_info(item);
            fits = fits.and_then(|()| room.take(answer::estimate(&info)));
            if fits.is_err() {
                return;
            }
            overrides.push(info);
        }
        overrides.sort_unstable_by(|a, b| a.item.name.cmp(&b.item.name));
    });
    fits?;
    matches.sort_unstable_by(|a, b| a.rule.rule.name.cmp(&b.rule.rule.name));
    Ok(Reply::Matches(matches))
}
