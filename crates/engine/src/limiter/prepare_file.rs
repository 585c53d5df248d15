//! The plan that makes a namespace's file-managed rules exactly those of the rules file.

use super::{
    Limiter,
    overrides::{Override, Overrides, StoredOverride},
    plan::{NewActiveRule, Plan, PlannedReply, Step},
    prepare::{RuleSizes, check_override, check_quotas, insert_inactive, insert_replacement},
    reply::{FileChanges, Refusal},
    resident_bytes::{of_override, of_rule},
    rule::Rule,
    rule_index::RuleNumber,
    terms::{FileRule, NewOverride, NewRule},
};
use crate::{Name, turn::Turn};
use alloc::{collections::BTreeSet, vec::Vec};

/// Plans to make the namespace's file-managed rules exactly `rules`. A refused file has changed nothing.
pub(super) fn prepare(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    rules: &[FileRule],
) -> Result<Plan, Refusal> {
    for FileRule { rule, overrides } in rules {
        let is_of_a_client = |kept: &Rule| !kept.stored.is_file_managed;
        if limiter.rule(&rule.name).is_some_and(is_of_a_client) {
            return Err(Refusal::RuleAlreadyExists { rule: rule.name.clone() });
        }
        overrides.iter().try_for_each(|new| check_override(rule, new))?;
        check_distinct(rule, overrides)?;
    }
    let mut names = BTreeSet::new();
    if let Some(twice) = rules.iter().find(|file| !names.insert(&file.rule.name)) {
        return Err(Refusal::RuleAlreadyExists { rule: twice.rule.name.clone() });
    }
    check_quotas(limiter, turn, sizes_of_managed(limiter), sizes_of_file(rules))?;
    let mut changes = FileChanges::default();
    let mut plan = Plan::new(PlannedReply::RuleDeleted);
    for FileRule { rule: terms, overrides } in rules {
        match limiter.rules.number(&terms.name) {
            None => {
                let number = insert_inactive(limiter, turn, terms.clone(), true, overrides);
                plan.rules.push(NewActiveRule { number, replaces: None });
                changes.created.push(terms.name.clone());
            }
            Some(number) => {
                if change_file_rule(limiter, turn, number, terms, overrides, &mut plan) {
                    changes.changed.push(terms.name.clone());
                }
            }
        }
    }
    let named: BTreeSet<&Name> = rules.iter().map(|file| &file.rule.name).collect();
    let missing =
        limiter.rules.by_name.iter().filter(|(name, number)| {
            limiter.rules.at(**number).stored.is_file_managed && !named.contains(name)
        });
    for (name, number) in missing {
        changes.deleted.push(name.clone());
        plan.steps.push(Step::DeleteRule(*number));
    }
    changes.created.sort_unstable();
    changes.changed.sort_unstable();
    plan.reply = PlannedReply::File(changes);
    Ok(plan)
}

/// The rules that the file replaces.
fn sizes_of_managed(limiter: &Limiter) -> RuleSizes {
    let managed = limiter.rules.after(None).filter(|rule| rule.stored.is_file_managed);
    managed.fold(RuleSizes::default(), |sum, rule| RuleSizes {
        rules: sum.rules + 1,
        overrides: sum.overrides + rule.overrides.len(),
        bytes: sum.bytes + rule.resident_bytes(),
    })
}

fn sizes_of_file(rules: &[FileRule]) -> RuleSizes {
    rules.iter().fold(RuleSizes::default(), |sum, file| RuleSizes {
        rules: sum.rules + 1,
        overrides: sum.overrides + file.overrides.len(),
        bytes: sum.bytes + of_rule(&file.rule) + file.overrides.iter().map(of_override).sum::<u64>(),
    })
}

/// Checks that no two overrides have the same name or the same key-values.
fn check_distinct(rule: &NewRule, overrides: &[NewOverride]) -> Result<(), Refusal> {
    let (mut names, mut key_values) = (BTreeSet::new(), BTreeSet::new());
    match overrides.iter().find(|new| !names.insert(&new.name) || !key_values.insert(&new.key_values)) {
        Some(twice) => {
            Err(Refusal::OverrideAlreadyExists { rule: rule.name.clone(), name: twice.name.clone() })
        }
        None => Ok(()),
    }
}

/// Plans to make a rule what the file says. Returns whether anything changes.
fn change_file_rule(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    number: RuleNumber,
    terms: &NewRule,
    overrides: &[NewOverride],
    plan: &mut Plan,
) -> bool {
    let rule = limiter.rules.at(number);
    let is_same_override =
        |new: &NewOverride| rule.overrides.get(&new.name).is_some_and(|item| item.stored.terms == *new);
    let put: Vec<&NewOverride> = overrides.iter().filter(|new| !is_same_override(new)).collect();
    let named: BTreeSet<&Name> = overrides.iter().map(|new| &new.name).collect();
    let gone: Vec<Name> =
        rule.overrides.iter().map(|(name, _)| name).filter(|name| !named.contains(name)).cloned().collect();
    if put.is_empty() && gone.is_empty() && rule.terms() == terms {
        return false;
    }
    // If any override must be counted, the whole rule is counted anew.
    if rule.needs_backfill(terms) || (terms.window.is_none() && !put.is_empty()) {
        let mut kept = Overrides::clone(&rule.overrides);
        gone.iter().for_each(|name| drop(kept.remove(name)));
        let put: Vec<NewOverride> = put.into_iter().cloned().collect();
        // Remove all changed overrides before inserting any: two of them may have exchanged their key-values.
        let old: Vec<Option<Override>> = put.iter().map(|new| kept.remove(&new.name)).collect();
        for (new, old) in put.into_iter().zip(old) {
            let mut stored = StoredOverride::new(new, turn.advance(), turn.now);
            stored.created_at = old.map_or(stored.created_at, |old| old.stored.created_at);
            kept.insert(Override { stored, is_active: true });
        }
        let replacement = insert_replacement(limiter, turn, number, terms.clone(), kept.into());
        plan.rules.push(NewActiveRule { number: replacement, replaces: Some(number) });
        return true;
    }
    // Here too, overrides that change their key-values are deleted before any is put.
    let moves = |new: &&&NewOverride| {
        rule.overrides.get(&new.name).is_some_and(|item| item.stored.terms.key_values != new.key_values)
    };
    let moved = put.iter().filter(moves).map(|new| new.name.clone());
    plan.steps.extend(gone.into_iter().chain(moved).map(|name| Step::DeleteOverride(number, name)));
    if rule.terms() != terms {
        plan.steps.push(Step::ChangeRule(number, terms.clone()));
    }
    plan.steps.extend(put.iter().map(|new| Step::PutOverride(number, (*new).clone())));
    true
}
