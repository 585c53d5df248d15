//! The plan that makes a rule set exactly what it is to be.
//!
//! First the set is compared with the rules that exist, which changes nothing and finds everything that could refuse it.
//! Then rules that must be counted are inserted inactive, and the rest becomes steps of the plan.

use super::{
    command::RuleSetPlan,
    insert_rule::{RuleSizes, check_quotas, insert_inactive, insert_replacement},
    overrides::{Override, Overrides, StoredOverride, override_bytes},
    plan::{NewActiveRule, Plan, PlannedReply, Step},
    reply::{ManagedRule, Refusal, Reply},
    rule::{Rule, RuleNumber, rule_bytes},
    rule_sets::rule_set_bytes,
    state::Limiter,
    terms::{NewOverride, NewRule, NewRuleSet, SERVERS_OWN_SETS, SetAuthor, SetOverrides, SetRule},
};
use crate::{Name, turn::Turn};
use alloc::{collections::BTreeSet, vec::Vec};
use limina_api::limiter::{ChangedRule, ConflictCode, RuleField, RuleSetChanges, SetConflict};

/// Plans to make the set exactly `new`. A refused change has changed nothing.
pub(super) fn put(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    set: &Name,
    new: &NewRuleSet,
    author: SetAuthor,
) -> Result<Plan, Refusal> {
    check_author(set, author)?;
    let compared = compare(limiter, set, new);
    if let Some(refusal) = refusal(&compared.changes.conflicts) {
        return Err(refusal);
    }
    check_quotas(limiter, turn, compared.before, compared.after)?;
    let Compared { changes, differences, deleted, .. } = compared;
    let existing = limiter.rules.sets.get(set).map(|set| set.overrides);
    let mut plan = Plan::new(PlannedReply::Set { is_new: existing.is_none(), changes });
    if existing != Some(new.overrides) {
        plan.steps.push(Step::PutSet(set.clone(), new.overrides));
    }
    for (difference, SetRule { rule, overrides }) in differences.into_iter().zip(&new.rules) {
        match difference {
            Difference::None => {}
            Difference::New => {
                let number = insert_inactive(limiter, turn, rule.clone(), Some(set.clone()), overrides);
                plan.rules.push(NewActiveRule { number, replaces: None });
            }
            Difference::Changed(changed) => change_rule(limiter, turn, set, rule, changed, &mut plan),
        }
    }
    plan.steps.extend(deleted.into_iter().map(Step::DeleteRule));
    Ok(plan)
}

/// What a client's change of the set would change. Changes nothing.
pub(super) fn plan(limiter: &Limiter, turn: &Turn<'_>, plan: &RuleSetPlan) -> Result<Reply, Refusal> {
    let RuleSetPlan { set, new } = plan;
    check_author(set, SetAuthor::Client)?;
    let Compared { changes, before, after, .. } = compare(limiter, set, new);
    check_quotas(limiter, turn, before, after)?;
    Ok(Reply::RuleSetPlanned(changes))
}

/// Plans to delete the set with its rules.
pub(super) fn delete(limiter: &Limiter, set: &Name, author: SetAuthor) -> Result<Plan, Refusal> {
    check_author(set, author)?;
    if limiter.rules.sets.get(set).is_none() {
        return Err(Refusal::RuleSetNotFound { set: set.clone() });
    }
    let deleted: Vec<Name> = limiter.rules.sets.rules_of(set).cloned().collect();
    let steps = deleted.iter().filter_map(|name| limiter.rules.number(name)).map(Step::DeleteRule);
    let steps = steps.chain([Step::DeleteSet(set.clone())]).collect();
    let changes = RuleSetChanges { deleted, ..RuleSetChanges::default() };
    Ok(Plan { steps, ..Plan::new(PlannedReply::SetDeleted(changes)) })
}

/// A set that was compared with the rules that exist.
struct Compared<'a> {
    changes: RuleSetChanges,
    /// One for each rule of the set, in the order of the command.
    differences: Vec<Difference<'a>>,
    /// The rules of the set that it no longer has.
    deleted: Vec<RuleNumber>,
    /// The size of what is replaced or deleted, and of what replaces it.
    before: RuleSizes,
    after: RuleSizes,
}

enum Difference<'a> {
    /// The rule does not exist.
    New,
    /// The rule is as it is to be.
    None,
    Changed(Changed<'a>),
}

/// What is different in a rule that exists.
struct Changed<'a> {
    number: RuleNumber,
    /// Whether the terms or the set of the rule change.
    is_own: bool,
    /// The overrides that are created, changed or become the set's.
    put: Vec<&'a NewOverride>,
    /// The overrides that are deleted.
    gone: Vec<Name>,
}

fn compare<'a>(limiter: &Limiter, set: &Name, new: &'a NewRuleSet) -> Compared<'a> {
    let mut changes = RuleSetChanges::default();
    let (mut before, mut after) = (RuleSizes::default(), RuleSizes::default());
    if limiter.rules.sets.get(set).is_none() {
        after.bytes += rule_set_bytes(set);
    }
    let mut differences = Vec::with_capacity(new.rules.len());
    for of_set in &new.rules {
        let SetRule { rule: terms, overrides } = of_set;
        let Some(number) = limiter.rules.number(&terms.name) else {
            after.rules += 1;
            after.overrides += overrides.len();
            after.bytes += rule_bytes(terms, Some(set)) + overrides.iter().map(override_bytes).sum::<u64>();
            changes.created.push(terms.name.clone());
            differences.push(Difference::New);
            continue;
        };
        let rule = limiter.rules.at(number);
        if let Some(other) = rule.stored.managed_by.as_ref().filter(|other| *other != set) {
            changes.conflicts.push(managed_by_set(&terms.name, other));
            differences.push(Difference::None);
            continue;
        }
        let overrides = compare_overrides(rule, of_set, new.overrides);
        changes.conflicts.extend(overrides.conflict);
        let mut fields = changed_fields(rule.terms(), terms);
        let (put, gone) = (overrides.put, overrides.gone);
        if !put.is_empty() || !gone.is_empty() {
            fields.push(RuleField::Overrides);
        }
        if rule.stored.managed_by.is_none() {
            fields.push(RuleField::ManagedBy);
        }
        if fields.is_empty() {
            differences.push(Difference::None);
            continue;
        }
        let is_own = rule.terms() != terms || rule.stored.managed_by.is_none();
        before.bytes += rule.own_bytes();
        after.bytes += rule_bytes(terms, Some(set));
        let old = |name: &Name| rule.overrides.get(name).map(|item| override_bytes(&item.stored.terms));
        for bytes in put.iter().map(|new| &new.name).chain(&gone).filter_map(old) {
            before.overrides += 1;
            before.bytes += bytes;
        }
        after.overrides += put.len();
        after.bytes += put.iter().map(|new| override_bytes(new)).sum::<u64>();
        let starts_empty = terms.window.is_some() && rule.resets_groups(terms);
        changes.changed.push(ChangedRule { rule: terms.name.clone(), fields, starts_empty });
        differences.push(Difference::Changed(Changed { number, is_own, put, gone }));
    }
    let named: BTreeSet<&Name> = new.rules.iter().map(|of_set| &of_set.rule.name).collect();
    let mut deleted = Vec::new();
    for name in limiter.rules.sets.rules_of(set).filter(|name| !named.contains(name)) {
        if let Some(number) = limiter.rules.number(name) {
            let rule = limiter.rules.at(number);
            before.rules += 1;
            before.overrides += rule.overrides.len();
            before.bytes += rule.resident_bytes();
            changes.deleted.push(name.clone());
            deleted.push(number);
        }
    }
    changes.created.sort_unstable();
    changes.changed.sort_unstable_by(|a, b| a.rule.cmp(&b.rule));
    changes.conflicts.sort_by(|a, b| a.rule.cmp(&b.rule));
    Compared { changes, differences, deleted, before, after }
}

/// The rule belongs to another set.
fn managed_by_set(rule: &Name, set: &Name) -> SetConflict {
    SetConflict {
        rule: rule.clone(),
        code: ConflictCode::RuleManagedBySet,
        managed_by: Some(set.clone()),
        override_name: None,
    }
}

/// What is different in the overrides of a rule.
struct ComparedOverrides<'a> {
    put: Vec<&'a NewOverride>,
    gone: Vec<Name>,
    conflict: Option<SetConflict>,
}

/// Compares the overrides of a rule with those that it is to have. In an open set the overrides of clients stay, unless the
/// set names them: then they become the set's.
fn compare_overrides<'a>(rule: &Rule, new: &'a SetRule, mode: SetOverrides) -> ComparedOverrides<'a> {
    let SetRule { rule: terms, overrides } = new;
    let is_same = |new: &NewOverride| {
        rule.overrides.get(&new.name).is_some_and(|item| item.stored.is_of_set && item.stored.terms == *new)
    };
    let put: Vec<&NewOverride> = overrides.iter().filter(|new| !is_same(new)).collect();
    let named: BTreeSet<&Name> = overrides.iter().map(|new| &new.name).collect();
    let stays = |item: &Override| match mode {
        SetOverrides::Closed => false,
        SetOverrides::Open => !item.stored.is_of_set,
    };
    let unnamed = || rule.overrides.iter().filter(|(name, _)| !named.contains(name));
    let gone: Vec<Name> = unnamed().filter(|(_, item)| !stays(item)).map(|(name, _)| name.clone()).collect();
    let mut conflict = None;
    if mode == SetOverrides::Open {
        let lacks = |item: &Override| {
            let key_values = &item.stored.terms.key_values;
            terms.group_by.iter().any(|key| key_values.get(key).is_none())
        };
        let kept = |name: &Name| {
            let item = rule.overrides.get(name)?;
            (stays(item) && !named.contains(name)).then_some(item)
        };
        let lacking = match rule.overrides.first_without_keys(&terms.group_by) {
            Some(_) => unnamed().find(|(_, item)| stays(item) && lacks(item)).map(|(name, _)| name.clone()),
            None => None,
        };
        let twin = |new: &&NewOverride| {
            let other = rule.overrides.by_key_values(&new.key_values)?;
            kept(&other.stored.terms.name).map(|item| item.stored.terms.name.clone())
        };
        let found = lacking
            .map(|name| (ConflictCode::OverridesConflict, name))
            .or_else(|| put.iter().find_map(twin).map(|name| (ConflictCode::OverrideAlreadyExists, name)));
        conflict = found.map(|(code, name)| SetConflict {
            rule: terms.name.clone(),
            code,
            managed_by: None,
            override_name: Some(name),
        });
    }
    ComparedOverrides { put, gone, conflict }
}

/// The terms that are different. What a rule does by default is the same as the same thing written out.
fn changed_fields(old: &NewRule, new: &NewRule) -> Vec<RuleField> {
    let NewRule { name: _, group_by, selection, limit, window, shadow, durability: _, description } = new;
    let fields = [
        (RuleField::GroupBy, old.group_by != *group_by),
        (RuleField::Selection, old.selection != *selection),
        (RuleField::Limit, old.limit != *limit),
        (RuleField::Window, old.window != *window),
        (RuleField::Shadow, old.shadow != *shadow),
        (RuleField::Durability, old.durability() != new.durability()),
        (RuleField::Description, old.description != *description),
    ];
    fields.into_iter().filter(|(_, is_changed)| *is_changed).map(|(field, _)| field).collect()
}

/// The refusal of a set with these conflicts, in the order of refusals.
fn refusal(conflicts: &[SetConflict]) -> Option<Refusal> {
    let with = |code| conflicts.iter().filter(move |conflict| conflict.code == code);
    let managed = with(ConflictCode::RuleManagedBySet).filter_map(|conflict| {
        Some(ManagedRule { rule: conflict.rule.clone(), set: conflict.managed_by.clone()? })
    });
    let rules: Vec<ManagedRule> = managed.collect();
    if !rules.is_empty() {
        return Some(Refusal::RuleManagedBySet { rules });
    }
    let first =
        |code| with(code).find_map(|conflict| Some((conflict.rule.clone(), conflict.override_name.clone()?)));
    let lacking = first(ConflictCode::OverridesConflict);
    lacking.map(|(rule, name)| Refusal::OverridesConflict { rule, name }).or_else(|| {
        first(ConflictCode::OverrideAlreadyExists)
            .map(|(rule, name)| Refusal::OverrideAlreadyExists { rule, name })
    })
}

/// Plans to make a rule what the set says: in place, or by a replacement if the rule must be counted anew.
fn change_rule(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    set: &Name,
    terms: &NewRule,
    changed: Changed<'_>,
    plan: &mut Plan,
) {
    let Changed { number, is_own, put, gone } = changed;
    let rule = limiter.rules.at(number);
    // If any override must be counted, the whole rule is counted anew.
    if rule.needs_backfill(terms) || (terms.window.is_none() && !put.is_empty()) {
        let mut kept = Overrides::clone(&rule.overrides);
        gone.iter().for_each(|name| drop(kept.remove(name)));
        // Remove all changed overrides before inserting any: two of them may have exchanged their key-values.
        let old: Vec<Option<Override>> = put.iter().map(|new| kept.remove(&new.name)).collect();
        for (new, old) in put.into_iter().zip(old) {
            let mut stored = StoredOverride::new(new.clone(), turn.advance(), turn.now, true);
            stored.created_at = old.map_or(stored.created_at, |old| old.stored.created_at);
            kept.insert(Override { stored, is_active: true });
        }
        let set = Some(set.clone());
        let replacement = insert_replacement(limiter, turn, number, terms.clone(), set, kept.into());
        plan.rules.push(NewActiveRule { number: replacement, replaces: Some(number) });
        return;
    }
    // Here too, overrides that change their key-values are deleted before any is put.
    let moves = |new: &&&NewOverride| {
        rule.overrides.get(&new.name).is_some_and(|item| item.stored.terms.key_values != new.key_values)
    };
    let moved: Vec<Name> = put.iter().filter(moves).map(|new| new.name.clone()).collect();
    let puts: Vec<Step> = put
        .into_iter()
        .map(|new| {
            let old = rule.overrides.get(&new.name);
            let created_at = old.map(|item| item.stored.created_at);
            Step::PutOverride { rule: number, new: new.clone(), is_of_set: true, created_at }
        })
        .collect();
    plan.steps.extend(gone.into_iter().chain(moved).map(|name| Step::DeleteOverride(number, name)));
    if is_own {
        plan.steps.push(Step::ChangeRule(number, terms.clone(), Some(set.clone())));
    }
    plan.steps.extend(puts);
}

/// Fails if the author must not change the set: clients cannot change the server's own sets.
fn check_author(set: &Name, author: SetAuthor) -> Result<(), Refusal> {
    match author {
        SetAuthor::Client if SERVERS_OWN_SETS.contains(&set.as_str()) => {
            Err(Refusal::RuleSetManagedByServer { set: set.clone() })
        }
        SetAuthor::Client | SetAuthor::Server => Ok(()),
    }
}
