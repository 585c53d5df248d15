//! The second half of a change of rules or overrides: carry out the plan, in one step that cannot fail.

use super::{
    groups::{GroupOwner, WriteWhen},
    keys,
    overrides::{Override, StoredOverride},
    plan::{NewActiveRule, Plan, PlannedReply, Step},
    reply::Reply,
    rule::RuleNumber,
    rule_sets::StoredRuleSet,
    state::Limiter,
    terms::{NewOverride, NewRule, SetOverrides},
    window::BucketClock,
};
use crate::{Name, Position, key_values::KeyValues, turn::Turn};
use alloc::sync::Arc;

/// Carries out a plan, after its backfill.
pub(super) fn finish(limiter: &mut Limiter, turn: &mut Turn<'_>, plan: Plan) -> Reply {
    for rule in plan.rules {
        activate(limiter, turn, rule);
    }
    if let Some((number, name)) = plan.new_override {
        let id = limiter.rules.at(number).stored.id;
        limiter.rules.change_overrides(number, |overrides| {
            if let Some(item) = overrides.activate(&name) {
                turn.put(keys::override_of(turn.namespace, id, item.stored.id), &item.stored);
            }
        });
    }
    for step in plan.steps {
        match step {
            Step::ChangeRule(number, terms, set) => change_in_place(limiter, turn, number, terms, set),
            Step::DeleteRule(number) => delete_rule(limiter, turn, number),
            Step::PutOverride { rule, new, is_of_set, created_at } => {
                put_override_in_place(limiter, turn, rule, new, is_of_set, created_at);
            }
            Step::DeleteOverride(number, name) => drop(delete_override(limiter, turn, number, &name)),
            Step::PutSet(set, overrides) => put_set(limiter, turn, set, overrides),
            Step::DeleteSet(set) => delete_set(limiter, turn, &set),
        }
    }
    limiter.schedule_window_timers(turn);
    limiter.requeue();
    reply(limiter, plan.reply)
}

fn reply(limiter: &Limiter, reply: PlannedReply) -> Reply {
    let rule_of = |name: &Name| limiter.rule(name).expect("it was just made or changed");
    match reply {
        PlannedReply::Rule { name, is_new: true } => Reply::RuleCreated(rule_of(&name).info()),
        PlannedReply::Rule { name, is_new: false } => Reply::Rule(rule_of(&name).info()),
        PlannedReply::RuleDeleted => Reply::RuleDeleted,
        PlannedReply::Override { rule, name, is_new } => {
            let rule = rule_of(&rule);
            let info = rule.override_info(rule.overrides.get(&name).expect("it was just made or changed"));
            if is_new { Reply::OverrideCreated(info) } else { Reply::Override(info) }
        }
        PlannedReply::OverrideDeleted => Reply::OverrideDeleted,
        PlannedReply::Set { is_new, changes } => Reply::RuleSetPut { is_new, changes },
        PlannedReply::SetDeleted(changes) => Reply::RuleSetDeleted(changes),
    }
}

fn activate(limiter: &mut Limiter, turn: &mut Turn<'_>, rule: NewActiveRule) {
    let NewActiveRule { number, replaces } = rule;
    if let Some(old) = replaces {
        let id = limiter.rules.at(old).stored.id;
        let (old_ones, new_ones) = (&limiter.rules.at(old).overrides, &limiter.rules.at(number).overrides);
        // Overrides that both rules have are stored already.
        if !Arc::ptr_eq(old_ones, new_ones) {
            for (_, item) in old_ones.iter().filter(|(_, item)| new_ones.by_id(item.stored.id).is_none()) {
                turn.remove(keys::override_of(turn.namespace, id, item.stored.id));
            }
            for (_, item) in new_ones.iter().filter(|(_, item)| old_ones.by_id(item.stored.id).is_none()) {
                turn.put(keys::override_of(turn.namespace, id, item.stored.id), &item.stored);
            }
        }
        limiter.rules.remove(old);
        limiter.groups.mark_stale_groups();
    }
    limiter.rules.publish(number);
    let rule = limiter.rules.at_mut(number);
    rule.is_active = true;
    turn.put(keys::rule(turn.namespace, rule.stored.id), &rule.stored);
    if replaces.is_none() {
        for (_, item) in rule.overrides.iter() {
            turn.put(keys::override_of(turn.namespace, rule.stored.id, item.stored.id), &item.stored);
        }
    }
}

fn change_in_place(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    number: RuleNumber,
    terms: NewRule,
    managed_by: Option<Name>,
) {
    let position = turn.advance();
    let resets_groups = limiter.rules.at(number).resets_groups(&terms);
    limiter.rules.change(number, |stored| {
        stored.clock.change(turn.now, terms.limit);
        if resets_groups {
            stored.generation = position;
        }
        stored.terms = terms;
        stored.managed_by = managed_by;
    });
    if resets_groups {
        limiter.groups.mark_stale_groups();
    }
    let stored = &limiter.rules.at(number).stored;
    turn.put(keys::rule(turn.namespace, stored.id), stored);
}

fn delete_rule(limiter: &mut Limiter, turn: &mut Turn<'_>, number: RuleNumber) {
    turn.advance();
    let rule = limiter.rules.at(number);
    let id = rule.stored.id;
    turn.remove(keys::rule(turn.namespace, id));
    // Without their rule the overrides cannot be found. A sweep removes their records later.
    if !rule.overrides.is_empty() {
        turn.sweep(keys::overrides(turn.namespace, id));
    }
    limiter.rules.remove(number);
    limiter.groups.mark_stale_groups();
}

/// Creates a rule set, or changes whether clients may make overrides of its rules.
fn put_set(limiter: &mut Limiter, turn: &mut Turn<'_>, name: Name, overrides: SetOverrides) {
    let position = turn.advance();
    let id = limiter.rules.sets.get(&name).map_or(position, |set| set.id);
    let stored = StoredRuleSet { name, id, overrides };
    turn.put(keys::rule_set(turn.namespace, id), &stored);
    limiter.rules.sets.insert(stored);
}

fn delete_set(limiter: &mut Limiter, turn: &mut Turn<'_>, name: &Name) {
    turn.advance();
    if let Some(stored) = limiter.rules.sets.remove(name) {
        turn.remove(keys::rule_set(turn.namespace, stored.id));
    }
}

/// Creates or replaces an override that needs no backfill.
fn put_override_in_place(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    number: RuleNumber,
    new: NewOverride,
    is_of_set: bool,
    created_at: Option<Position>,
) {
    let position = turn.advance();
    let rule = limiter.rules.at(number);
    let id = rule.stored.id;
    let old = rule.overrides.get(&new.name);
    if old.is_some_and(|item| item.stored.terms.key_values == new.key_values) {
        limiter.rules.change_overrides(number, |overrides| {
            let item = overrides.get_mut(&new.name).expect("it was just found");
            item.stored.clock.change(turn.now, new.limit);
            item.stored.terms = new;
            item.stored.is_of_set = is_of_set;
            turn.put(keys::override_of(turn.namespace, id, item.stored.id), &item.stored);
        });
        return;
    }
    let mut stored = StoredOverride::new(new, position, turn.now, is_of_set);
    stored.created_at = created_at.unwrap_or(stored.created_at);
    if let Some(old) = delete_override(limiter, turn, number, &stored.terms.name) {
        stored.created_at = old.stored.created_at;
    }
    turn.put(keys::override_of(turn.namespace, id, stored.id), &stored);
    let (from, to) = (limiter.rules.at(number).stored.clock, stored.clock);
    let key_values = stored.terms.key_values.clone();
    limiter.rules.change_overrides(number, |overrides| {
        overrides.insert(Override { stored, is_active: true });
    });
    convert_bucket(limiter, turn, number, &key_values, from, to);
}

fn delete_override(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    number: RuleNumber,
    name: &Name,
) -> Option<Override> {
    let item = limiter.rules.change_overrides(number, |overrides| overrides.remove(name))?;
    let rule = limiter.rules.at(number);
    turn.advance();
    turn.remove(keys::override_of(turn.namespace, rule.stored.id, item.stored.id));
    let (from, to) = (item.stored.clock, rule.stored.clock);
    let key_values = &item.stored.terms.key_values;
    // The override's own group is no longer used.
    let owner = GroupOwner::Override { generation: rule.stored.generation, id: item.stored.id };
    if let Some(index) = limiter.groups.find(owner, key_values.as_bytes()) {
        limiter.groups.remove(index, turn.namespace, turn.changes);
    }
    convert_bucket(limiter, turn, number, key_values, from, to);
    Some(item)
}

/// A bucket's group that an override begins or ceases to govern keeps its tokens: its state is converted from the clock that
/// governed it so far.
fn convert_bucket(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    number: RuleNumber,
    key_values: &KeyValues,
    from: BucketClock,
    to: BucketClock,
) {
    let rule = limiter.rules.at(number);
    let owner = GroupOwner::Rule(rule.stored.generation);
    if rule.is_bucket()
        && rule.is_exact(key_values)
        && let Some(index) = limiter.groups.find(owner, key_values.as_bytes())
    {
        limiter.groups.change(index, WriteWhen::Now, |state| state.convert(from, to, turn.now));
    }
}
