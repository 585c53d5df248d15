//! The first half of a change of rules or overrides: check everything that could refuse it, and make the plan that `finish`
//! carries out. Changes of rule sets are planned in `prepare_set`.

use super::{
    command::Change,
    insert_rule::{RuleSizes, check_quotas, insert_inactive, insert_replacement},
    overrides::{Override, Overrides, StoredOverride},
    plan::{NewActiveRule, Plan, PlannedReply, Step},
    prepare_set,
    reply::{ManagedRule, Refusal},
    rule::RuleNumber,
    state::Limiter,
    terms::{NewOverride, NewRule, OverridePatch, RulePatch, Window},
};
use crate::{Name, turn::Turn};
use alloc::vec::Vec;

/// Checks everything that could refuse the change, and inserts, inactive, what must be backfilled. A refused change has
/// changed nothing.
pub(super) fn prepare(limiter: &mut Limiter, turn: &mut Turn<'_>, change: &Change) -> Result<Plan, Refusal> {
    match change {
        Change::CreateRule(new) => {
            if limiter.rule(&new.name).is_some() {
                return Err(Refusal::RuleAlreadyExists { rule: new.name.clone() });
            }
            create_rule(limiter, turn, new)
        }
        Change::PutRule(new) => match limiter.rules.number(&new.name) {
            Some(_) => {
                let number = find_editable(limiter, &new.name)?;
                let terms = new.clone().replacing(limiter.rules.at(number).terms());
                change_rule(limiter, turn, number, terms)
            }
            None => create_rule(limiter, turn, new),
        },
        Change::PatchRule { name, patch } => {
            let number = find_editable(limiter, name)?;
            let terms = patched(limiter.rules.at(number).terms(), patch);
            change_rule(limiter, turn, number, terms)
        }
        Change::DeleteRule(name) => {
            let number = find_editable(limiter, name)?;
            Ok(Plan::with_step(PlannedReply::RuleDeleted, Step::DeleteRule(number)))
        }
        Change::CreateOverride { rule, new } => {
            let number = find_open(limiter, rule)?;
            let kept = &limiter.rules.at(number).overrides;
            if let Some(other) = kept.get(&new.name).or_else(|| kept.by_key_values(&new.key_values)) {
                return Err(already_exists(rule, other));
            }
            put_override(limiter, turn, number, new)
        }
        Change::PutOverride { rule, new } => {
            let number = find_editable_override(limiter, rule, &new.name)?;
            put_override(limiter, turn, number, new)
        }
        Change::PatchOverride { rule, name, patch } => {
            let number = find_editable_override(limiter, rule, name)?;
            let kept = limiter.rules.at(number);
            let new = match kept.overrides.get(name) {
                Some(item) => patched_override(&item.stored.terms, patch),
                None => return Err(override_not_found(rule, name)),
            };
            put_override(limiter, turn, number, &new)
        }
        Change::DeleteOverride { rule, name } => {
            let number = find_editable_override(limiter, rule, name)?;
            if limiter.rules.at(number).overrides.get(name).is_none() {
                return Err(override_not_found(rule, name));
            }
            Ok(Plan::with_step(PlannedReply::OverrideDeleted, Step::DeleteOverride(number, name.clone())))
        }
        Change::PutRuleSet { set, new, author } => prepare_set::put(limiter, turn, set, new, *author),
        Change::DeleteRuleSet { set, author } => prepare_set::delete(limiter, set, *author),
    }
}

/// Finds a rule that can be changed by itself: a rule of a set is changed with its set.
fn find_editable(limiter: &Limiter, name: &Name) -> Result<RuleNumber, Refusal> {
    let number = find(limiter, name)?;
    match &limiter.rules.at(number).stored.managed_by {
        Some(set) => Err(managed_by(set, name)),
        None => Ok(number),
    }
}

/// Finds a rule of which clients may make overrides: one of no set, or of an open one.
fn find_open(limiter: &Limiter, name: &Name) -> Result<RuleNumber, Refusal> {
    let number = find(limiter, name)?;
    match &limiter.rules.at(number).stored.managed_by {
        Some(set) if !limiter.rules.sets.is_open(set) => Err(managed_by(set, name)),
        _ => Ok(number),
    }
}

/// Finds the rule of an override that clients may put, change or delete: the override does not belong to a set.
fn find_editable_override(limiter: &Limiter, rule: &Name, name: &Name) -> Result<RuleNumber, Refusal> {
    let number = find_open(limiter, rule)?;
    let found = limiter.rules.at(number);
    match &found.stored.managed_by {
        Some(set) if found.overrides.get(name).is_some_and(|item| item.stored.is_of_set) => {
            Err(managed_by(set, rule))
        }
        _ => Ok(number),
    }
}

fn find(limiter: &Limiter, name: &Name) -> Result<RuleNumber, Refusal> {
    limiter.rules.number(name).ok_or_else(|| Refusal::RuleNotFound { rule: name.clone() })
}

fn managed_by(set: &Name, rule: &Name) -> Refusal {
    Refusal::RuleManagedBySet { rules: Vec::from([ManagedRule { rule: rule.clone(), set: set.clone() }]) }
}

fn override_not_found(rule: &Name, name: &Name) -> Refusal {
    Refusal::OverrideNotFound { rule: rule.clone(), name: name.clone() }
}

fn already_exists(rule: &Name, other: &Override) -> Refusal {
    Refusal::OverrideAlreadyExists { rule: rule.clone(), name: other.stored.terms.name.clone() }
}

fn patched(old: &NewRule, patch: &RulePatch) -> NewRule {
    let patch = patch.clone();
    NewRule {
        name: old.name.clone(),
        group_by: old.group_by.clone(),
        selection: patch.selection.unwrap_or_else(|| old.selection.clone()),
        limit: patch.limit.unwrap_or(old.limit),
        window: patch.window.unwrap_or(old.window),
        shadow: patch.shadow.unwrap_or(old.shadow),
        durability: patch.durability.unwrap_or(old.durability),
        description: patch.description.unwrap_or_else(|| old.description.clone()),
    }
}

fn patched_override(old: &NewOverride, patch: &OverridePatch) -> NewOverride {
    let patch = patch.clone();
    NewOverride {
        name: old.name.clone(),
        key_values: patch.key_values.unwrap_or_else(|| old.key_values.clone()),
        limit: patch.limit.unwrap_or(old.limit),
        burst: patch.burst.unwrap_or(old.burst),
    }
}

fn create_rule(limiter: &mut Limiter, turn: &mut Turn<'_>, new: &NewRule) -> Result<Plan, Refusal> {
    check_quotas(limiter, turn, RuleSizes::default(), RuleSizes::of_rule(new))?;
    let number = insert_inactive(limiter, turn, new.clone(), None, &[]);
    let reply = PlannedReply::Rule { name: new.name.clone(), is_new: true };
    Ok(Plan::with_rule(reply, NewActiveRule { number, replaces: None }))
}

/// Plans new terms for a rule: in place, or by a replacement if the rule must be counted anew.
fn change_rule(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    number: RuleNumber,
    terms: NewRule,
) -> Result<Plan, Refusal> {
    let rule = limiter.rules.at(number);
    let name = terms.name.clone();
    if *rule.terms() == terms {
        return Ok(Plan::new(PlannedReply::Rule { name, is_new: false }));
    }
    if let Some(other) = rule.overrides.first_without_keys(&terms.group_by) {
        return Err(Refusal::OverridesConflict { rule: name, name: other.clone() });
    }
    check_quotas(limiter, turn, RuleSizes::of_rule(rule.terms()), RuleSizes::of_rule(&terms))?;
    let reply = PlannedReply::Rule { name, is_new: false };
    if !rule.needs_backfill(&terms) {
        return Ok(Plan::with_step(reply, Step::ChangeRule(number, terms, None)));
    }
    let overrides = rule.overrides.clone();
    let replacement = insert_replacement(limiter, turn, number, terms, None, overrides);
    Ok(Plan::with_rule(reply, NewActiveRule { number: replacement, replaces: Some(number) }))
}

/// Plans an override that is created, or replaces the one of its name.
fn put_override(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    number: RuleNumber,
    new: &NewOverride,
) -> Result<Plan, Refusal> {
    let rule = limiter.rules.at(number);
    let rule_name = rule.terms().name.clone();
    if let Some(other) = rule.overrides.by_key_values(&new.key_values)
        && other.stored.terms.name != new.name
    {
        return Err(already_exists(&rule_name, other));
    }
    check_group_keys(rule.terms(), new)?;
    let old = rule.overrides.get(&new.name);
    // The override may have a burst from a time when its rule was a bucket. It keeps that for the time when the rule is a
    // bucket again.
    if old.is_none_or(|old| old.stored.terms.burst != new.burst) {
        check_burst(rule.terms(), new)?;
    }
    let before = old.map(|old| RuleSizes::of_override(&old.stored.terms)).unwrap_or_default();
    check_quotas(limiter, turn, before, RuleSizes::of_override(new))?;
    let reply = PlannedReply::Override { rule: rule_name, name: new.name.clone(), is_new: old.is_none() };
    let is_counted = rule.terms().window.is_none() && !rule.is_exact(&new.key_values);
    match old {
        Some(old) if old.stored.terms == *new => Ok(Plan::new(reply)),
        Some(old) if is_counted && old.stored.terms.key_values != new.key_values => {
            let created_at = old.stored.created_at;
            let mut overrides = Overrides::clone(&rule.overrides);
            overrides.remove(&new.name);
            let stored = StoredOverride::new(new.clone(), turn.advance(), turn.now, false);
            overrides.insert(Override { stored: StoredOverride { created_at, ..stored }, is_active: true });
            let (terms, set) = (rule.terms().clone(), rule.stored.managed_by.clone());
            let replacement = insert_replacement(limiter, turn, number, terms, set, overrides.into());
            Ok(Plan::with_rule(reply, NewActiveRule { number: replacement, replaces: Some(number) }))
        }
        None if is_counted => {
            let stored = StoredOverride::new(new.clone(), turn.advance(), turn.now, false);
            let item = Override { stored, is_active: false };
            limiter.rules.change_overrides(number, |overrides| overrides.insert(item));
            Ok(Plan { new_override: Some((number, new.name.clone())), ..Plan::new(reply) })
        }
        _ => {
            let (new, is_of_set, created_at) = (new.clone(), false, None);
            Ok(Plan::with_step(reply, Step::PutOverride { rule: number, new, is_of_set, created_at }))
        }
    }
}

fn check_group_keys(rule: &NewRule, new: &NewOverride) -> Result<(), Refusal> {
    match rule.group_by.iter().find(|key| new.key_values.get(key).is_none()) {
        Some(key) => Err(Refusal::GroupKeyMissing { rule: rule.name.clone(), key: key.clone() }),
        None => Ok(()),
    }
}

fn check_burst(rule: &NewRule, new: &NewOverride) -> Result<(), Refusal> {
    if new.burst.is_some() && !matches!(rule.window, Some(Window::Bucket { .. })) {
        return Err(Refusal::BurstWithoutBucket { rule: rule.name.clone() });
    }
    Ok(())
}
