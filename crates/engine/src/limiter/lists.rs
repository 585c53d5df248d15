//! Reads of rules, overrides and counters, one at a time or in pages.

use super::{
    counters,
    reply::{CounterId, Refusal, Reply},
    rule::Rule,
    state::Limiter,
};
use crate::{
    ByteBuffer, Name, Page,
    answer_size::{self, AnswerBudget, TooLarge},
    key_values::KeyValues,
    lists::{looked_at, pick},
    selection::Query,
};
use alloc::vec::Vec;
use limina_api::limiter::{RuleMatch, RuleSet, RuleSetInfo};

pub(super) fn rule(limiter: &Limiter, name: &Name) -> Result<Reply, Refusal> {
    Ok(Reply::Rule(find_rule(limiter, name)?.info()))
}

pub(super) fn override_of(limiter: &Limiter, rule: &Name, name: &Name) -> Result<Reply, Refusal> {
    let found = find_rule(limiter, rule)?;
    match found.overrides.get(name).filter(|item| item.is_active) {
        Some(item) => Ok(Reply::Override(found.override_info(item))),
        None => Err(Refusal::OverrideNotFound { rule: rule.clone(), name: name.clone() }),
    }
}

pub(super) fn find_rule<'a>(limiter: &'a Limiter, name: &Name) -> Result<&'a Rule, Refusal> {
    limiter.rule(name).ok_or_else(|| Refusal::RuleNotFound { rule: name.clone() })
}

pub(super) fn rules(limiter: &Limiter, query: &Query, page: &Page<Name>) -> Reply {
    let rules = limiter.rules.after(page.after.as_ref());
    Reply::Rules(pick(
        rules,
        page.limit(),
        looked_at(query.weight()),
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
    let rule = find_rule(limiter, name)?;
    Ok(Reply::Overrides(pick(
        rule.overrides.after(page.after.as_ref()).filter(|item| item.is_active),
        page.limit(),
        looked_at(query.weight()),
        |item| query.finds(&item.stored.terms.key_values).then(|| rule.override_info(item)),
        |item| item.stored.terms.name.clone(),
    )))
}

/// A rule set with its rules and the overrides that belong to it.
pub(super) fn rule_set(
    limiter: &Limiter,
    name: &Name,
    mut budget: AnswerBudget,
) -> Result<Result<Reply, Refusal>, TooLarge> {
    let sets = &limiter.rules.sets;
    let Some(set) = sets.get(name) else {
        return Ok(Err(Refusal::RuleSetNotFound { set: name.clone() }));
    };
    let mut rules = Vec::new();
    for rule in sets.rules_of(name).filter_map(|name| limiter.rule(name)) {
        let of_set = rule.overrides.iter().map(|(_, item)| item).filter(|item| item.stored.is_of_set);
        let Some(mut of_rule) = rule.info_of_set() else { continue };
        budget.spend(answer_size::estimate(&of_rule))?;
        for item in of_set {
            let info = rule.override_info(item);
            budget.spend(answer_size::estimate(&info))?;
            of_rule.overrides.push(info);
        }
        rules.push(of_rule);
    }
    let RuleSetInfo { name, rules: _, overrides, created_position } = sets.info(set);
    Ok(Ok(Reply::RuleSet(RuleSet { name, rules, overrides, created_position })))
}

pub(super) fn rule_sets(limiter: &Limiter, page: &Page<Name>) -> Reply {
    let sets = &limiter.rules.sets;
    Reply::RuleSets(pick(
        sets.after(page.after.as_ref()),
        page.limit(),
        looked_at(1),
        |set| Some(sets.info(set)),
        |set| set.name.clone(),
    ))
}

pub(super) fn counters(limiter: &Limiter, query: &Query, page: &Page<CounterId>) -> Reply {
    let from = page.after.map_or(0, |CounterId(after)| after.saturating_add(1));
    Reply::Counters(pick(
        limiter.counters.iter_from(from),
        page.limit(),
        looked_at(query.weight()),
        |(_, key_values, counter)| query.finds(key_values).then(|| counters::info(key_values, counter)),
        |(index, ..)| CounterId(*index),
    ))
}

/// The active rules and overrides that apply to the key-values, by name.
pub(super) fn matches(
    limiter: &Limiter,
    key_values: &KeyValues,
    mut budget: AnswerBudget,
) -> Result<Reply, TooLarge> {
    let mut matches = Vec::new();
    let mut scratch = ByteBuffer::new();
    let mut fits = Ok(());
    limiter.rules.for_each_match(key_values, |rule, group| {
        if !rule.is_active || fits.is_err() {
            return;
        }
        let found = RuleMatch { rule: rule.info(), group: group.clone(), matching_overrides: Vec::new() };
        fits = budget.spend(answer_size::estimate(&(&found.rule, &found.group)));
        matches.push(found);
        let overrides = &mut matches.last_mut().expect("it was just pushed").matching_overrides;
        for item in rule.overrides.applying(key_values, &mut scratch).filter(|item| item.is_active) {
            let info = rule.override_info(item);
            fits = fits.and_then(|()| budget.spend(answer_size::estimate(&info)));
            if fits.is_err() {
                return;
            }
            overrides.push(info);
        }
        overrides.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    });
    fits?;
    matches.sort_unstable_by(|a, b| a.rule.name.cmp(&b.rule.name));
    Ok(Reply::Matches(matches))
}
