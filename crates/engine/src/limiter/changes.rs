//! Making, changing and removing rules and overrides.
//!
//! A change is first prepared: everything that could refuse it is looked at, and what must be counted is put in,
//! inactive. Then it is finished, in one step that cannot fail.

use super::{
    Limiter,
    command::Change,
    groups::{Owner, When},
    keys,
    matching::RuleNumber,
    reply::{FileChanges, Refusal, Reply},
    rule::{Override, Overrides, Rule, StoredOverride, StoredRule},
    terms::{FileRule, NewOverride, NewRule, OverridePatch, RulePatch, Window},
    window::Clock,
};
use crate::{Name, key_values::KeyValues, turn::Turn};
use alloc::{collections::BTreeSet, sync::Arc, vec::Vec};

/// What is to be done once everything is counted.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Rules that were put in inactive, each with the one whose place it takes.
    rules: Vec<(RuleNumber, Option<RuleNumber>)>,
    /// An override that was put in inactive.
    new_override: Option<(RuleNumber, Name)>,
    /// What needs no counting.
    steps: Vec<Step>,
    answer: Answer,
}

#[derive(Debug)]
enum Step {
    ChangeRule(RuleNumber, NewRule),
    DeleteRule(RuleNumber),
    PutOverride(RuleNumber, NewOverride),
    DeleteOverride(RuleNumber, Name),
}

#[derive(Debug)]
enum Answer {
    Rule { name: Name, is_new: bool },
    RuleDeleted,
    Override { rule: Name, name: Name, is_new: bool },
    OverrideDeleted,
    File(FileChanges),
}

impl Plan {
    fn new(answer: Answer) -> Plan {
        Plan { rules: Vec::new(), new_override: None, steps: Vec::new(), answer }
    }

    fn step(answer: Answer, step: Step) -> Plan {
        Plan { steps: Vec::from([step]), ..Plan::new(answer) }
    }

    /// The rules for which, or for an override of which, counters are summed up.
    pub(super) fn counted(&self) -> impl Iterator<Item = RuleNumber> {
        let rules = self.rules.iter().map(|(number, _)| *number);
        rules.chain(self.new_override.iter().map(|(number, _)| *number))
    }

    /// Whether counters must be summed up for it. Windows count by themselves.
    pub(super) fn needs_counting(&self, limiter: &Limiter) -> bool {
        let counts = |(number, _): &(RuleNumber, _)| limiter.rules.at(*number).terms().window.is_none();
        self.new_override.is_some() || self.rules.iter().any(counts)
    }
}

pub(super) fn prepare(limiter: &mut Limiter, turn: &mut Turn<'_>, change: &Change) -> Result<Plan, Refusal> {
    match change {
        Change::CreateRule(new) => {
            if limiter.rule(&new.name).is_some() {
                return Err(Refusal::RuleAlreadyExists { rule: new.name.clone() });
            }
            Ok(create_rule(limiter, turn, new, false, &[]))
        }
        Change::PutRule(new) => match limiter.rules.number(&new.name) {
            Some(_) => {
                let number = find_own(limiter, &new.name)?;
                change_rule(limiter, turn, number, new.clone())
            }
            None => Ok(create_rule(limiter, turn, new, false, &[])),
        },
        Change::PatchRule { name, patch } => {
            let number = find_own(limiter, name)?;
            let terms = patched(limiter.rules.at(number).terms(), patch);
            change_rule(limiter, turn, number, terms)
        }
        Change::DeleteRule(name) => {
            let number = find_own(limiter, name)?;
            Ok(Plan::step(Answer::RuleDeleted, Step::DeleteRule(number)))
        }
        Change::CreateOverride { rule, new } => {
            let number = find_own(limiter, rule)?;
            let kept = &limiter.rules.at(number).overrides;
            if let Some(other) = kept.get(&new.name).or_else(|| kept.with(&new.key_values)) {
                return Err(already_exists(rule, other));
            }
            put_override(limiter, turn, number, new)
        }
        Change::PutOverride { rule, new } => {
            let number = find_own(limiter, rule)?;
            put_override(limiter, turn, number, new)
        }
        Change::PatchOverride { rule, name, patch } => {
            let number = find_own(limiter, rule)?;
            let kept = limiter.rules.at(number);
            let mut new = match kept.overrides.get(name) {
                Some(item) => patched_override(&item.stored.terms, patch),
                None => return Err(override_not_found(rule, name)),
            };
            // A burst is left where the rule was a bucket once; it is no reason to refuse another change.
            if patch.burst.is_none() && !kept.is_bucket() {
                new.burst = None;
            }
            put_override(limiter, turn, number, &new)
        }
        Change::DeleteOverride { rule, name } => {
            let number = find_own(limiter, rule)?;
            if limiter.rules.at(number).overrides.get(name).is_none() {
                return Err(override_not_found(rule, name));
            }
            Ok(Plan::step(Answer::OverrideDeleted, Step::DeleteOverride(number, name.clone())))
        }
        Change::ApplyFile(rules) => apply_file(limiter, turn, rules),
    }
}

/// A rule that clients may change.
fn find_own(limiter: &Limiter, name: &Name) -> Result<RuleNumber, Refusal> {
    let number = limiter.rules.number(name).ok_or_else(|| Refusal::RuleNotFound { rule: name.clone() })?;
    match limiter.rules.at(number).stored.is_file_managed {
        true => Err(Refusal::RuleManagedByFile { rule: name.clone() }),
        false => Ok(number),
    }
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

fn create_rule(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    new: &NewRule,
    is_file_managed: bool,
    overrides: &[NewOverride],
) -> Plan {
    let number = put_in(limiter, turn, new.clone(), is_file_managed, overrides);
    let answer = Answer::Rule { name: new.name.clone(), is_new: true };
    Plan { rules: Vec::from([(number, None)]), ..Plan::new(answer) }
}

/// Puts in a new rule with overrides, inactive.
fn put_in(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    terms: NewRule,
    is_file_managed: bool,
    overrides: &[NewOverride],
) -> RuleNumber {
    let id = turn.advance();
    let clock = Clock::new(turn.now, terms.limit);
    let mut kept = Overrides::default();
    for new in overrides {
        let stored = StoredOverride::new(new.clone(), turn.advance(), turn.now);
        kept.insert(Override { stored, is_active: true });
    }
    let stored = StoredRule { terms, is_file_managed, id, generation: id, clock };
    limiter.rules.insert_unnamed(Rule::new(stored, kept.into(), false))
}

/// Other terms for a rule: at once where nothing need be counted.
fn change_rule(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    number: RuleNumber,
    terms: NewRule,
) -> Result<Plan, Refusal> {
    let rule = limiter.rules.at(number);
    let name = terms.name.clone();
    if *rule.terms() == terms {
        return Ok(Plan::new(Answer::Rule { name, is_new: false }));
    }
    if let Some(other) = rule.overrides.lacking(&terms.group_by) {
        return Err(Refusal::OverridesConflict { rule: name, name: other.clone() });
    }
    let answer = Answer::Rule { name, is_new: false };
    if !rule.counts_differently(&terms) {
        return Ok(Plan::step(answer, Step::ChangeRule(number, terms)));
    }
    let overrides = rule.overrides.clone();
    let replacement = replace(limiter, turn, number, terms, overrides);
    Ok(Plan { rules: Vec::from([(replacement, Some(number))]), ..Plan::new(answer) })
}

/// Puts in what is to take a rule's place, inactive: the same rule for everybody outside, with new groups.
fn replace(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    number: RuleNumber,
    terms: NewRule,
    overrides: Arc<Overrides>,
) -> RuleNumber {
    let generation = turn.advance();
    let mut stored = limiter.rules.at(number).stored.clone();
    stored.clock.change(turn.now, terms.limit);
    stored.terms = terms;
    stored.generation = generation;
    limiter.rules.insert_unnamed(Rule::new(stored, overrides, false))
}

/// An override that is made, or takes the place of the one of its name.
fn put_override(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    number: RuleNumber,
    new: &NewOverride,
) -> Result<Plan, Refusal> {
    let rule = limiter.rules.at(number);
    let rule_name = rule.terms().name.clone();
    if let Some(other) = rule.overrides.with(&new.key_values)
        && other.stored.terms.name != new.name
    {
        return Err(already_exists(&rule_name, other));
    }
    check_override(rule.terms(), new)?;
    let old = rule.overrides.get(&new.name);
    let answer = Answer::Override { rule: rule_name, name: new.name.clone(), is_new: old.is_none() };
    let is_counted = rule.terms().window.is_none() && !rule.is_exact(&new.key_values);
    match old {
        Some(old) if old.stored.terms == *new => Ok(Plan::new(answer)),
        Some(old) if is_counted && old.stored.terms.key_values != new.key_values => {
            let created_at = old.stored.created_at;
            let mut overrides = Overrides::clone(&rule.overrides);
            overrides.remove(&new.name);
            let stored = StoredOverride::new(new.clone(), turn.advance(), turn.now);
            overrides.insert(Override { stored: StoredOverride { created_at, ..stored }, is_active: true });
            let terms = rule.terms().clone();
            let replacement = replace(limiter, turn, number, terms, overrides.into());
            Ok(Plan { rules: Vec::from([(replacement, Some(number))]), ..Plan::new(answer) })
        }
        None if is_counted => {
            let stored = StoredOverride::new(new.clone(), turn.advance(), turn.now);
            limiter.rules.at_mut(number).overrides_mut().insert(Override { stored, is_active: false });
            Ok(Plan { new_override: Some((number, new.name.clone())), ..Plan::new(answer) })
        }
        _ => Ok(Plan::step(answer, Step::PutOverride(number, new.clone()))),
    }
}

/// Whether the rule can have such an override: all that can be told of it without looking at others.
pub fn check_override(rule: &NewRule, new: &NewOverride) -> Result<(), Refusal> {
    if let Some(key) = rule.group_by.iter().find(|key| new.key_values.get(key).is_none()) {
        return Err(Refusal::GroupKeyMissing { rule: rule.name.clone(), key: key.clone() });
    }
    if new.burst.is_some() && !matches!(rule.window, Some(Window::Bucket { .. })) {
        return Err(Refusal::BurstWithoutBucket { rule: rule.name.clone() });
    }
    Ok(())
}

/// The namespace's file-managed rules become exactly these.
fn apply_file(limiter: &mut Limiter, turn: &mut Turn<'_>, rules: &[FileRule]) -> Result<Plan, Refusal> {
    for FileRule { rule, overrides } in rules {
        let is_others = |kept: &Rule| !kept.stored.is_file_managed;
        if limiter.rule(&rule.name).is_some_and(is_others) {
            return Err(Refusal::RuleAlreadyExists { rule: rule.name.clone() });
        }
        overrides.iter().try_for_each(|new| check_override(rule, new))?;
        check_distinct(rule, overrides)?;
    }
    let mut names = BTreeSet::new();
    if let Some(twice) = rules.iter().find(|file| !names.insert(&file.rule.name)) {
        return Err(Refusal::RuleAlreadyExists { rule: twice.rule.name.clone() });
    }
    let mut changes = FileChanges::default();
    let mut plan = Plan::new(Answer::RuleDeleted);
    for FileRule { rule: terms, overrides } in rules {
        match limiter.rules.number(&terms.name) {
            None => {
                let number = put_in(limiter, turn, terms.clone(), true, overrides);
                plan.rules.push((number, None));
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
    let gone =
        limiter.rules.by_name.iter().filter(|(name, number)| {
            limiter.rules.at(**number).stored.is_file_managed && !named.contains(name)
        });
    for (name, number) in gone {
        changes.deleted.push(name.clone());
        plan.steps.push(Step::DeleteRule(*number));
    }
    changes.created.sort_unstable();
    changes.changed.sort_unstable();
    plan.answer = Answer::File(changes);
    Ok(plan)
}

/// Names and key-values stand once within a rule.
fn check_distinct(rule: &NewRule, overrides: &[NewOverride]) -> Result<(), Refusal> {
    let (mut names, mut key_values) = (BTreeSet::new(), BTreeSet::new());
    match overrides.iter().find(|new| !names.insert(&new.name) || !key_values.insert(&new.key_values)) {
        Some(twice) => {
            Err(Refusal::OverrideAlreadyExists { rule: rule.name.clone(), name: twice.name.clone() })
        }
        None => Ok(()),
    }
}

/// Plans what makes a rule of a file what the file now says. Says whether that is anything.
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
    // Where anything must be counted anew, all of the rule is.
    if rule.counts_differently(terms) || (terms.window.is_none() && !put.is_empty()) {
        let mut kept = Overrides::clone(&rule.overrides);
        gone.iter().for_each(|name| drop(kept.remove(name)));
        let put: Vec<NewOverride> = put.into_iter().cloned().collect();
        // First all leave their places: two of them may have changed their key-values.
        let left: Vec<Option<Override>> = put.iter().map(|new| kept.remove(&new.name)).collect();
        for (new, old) in put.into_iter().zip(left) {
            let mut stored = StoredOverride::new(new, turn.advance(), turn.now);
            stored.created_at = old.map_or(stored.created_at, |old| old.stored.created_at);
            kept.insert(Override { stored, is_active: true });
        }
        let replacement = replace(limiter, turn, number, terms.clone(), kept.into());
        plan.rules.push((replacement, Some(number)));
        return true;
    }
    // Those that change their key-values leave their places as well before any comes in: they may have exchanged them.
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

/// Everything is counted: the change takes effect.
pub(super) fn finish(limiter: &mut Limiter, turn: &mut Turn<'_>, plan: Plan) -> Reply {
    for (number, replaced) in plan.rules {
        activate(limiter, turn, number, replaced);
    }
    if let Some((number, name)) = plan.new_override {
        let rule = limiter.rules.at_mut(number);
        let id = rule.stored.id;
        if let Some(item) = rule.overrides_mut().activate(&name) {
            turn.put(keys::override_of(turn.namespace, id, item.stored.id), &item.stored);
        }
    }
    for step in plan.steps {
        match step {
            Step::ChangeRule(number, terms) => change_in_place(limiter, turn, number, terms),
            Step::DeleteRule(number) => delete_rule(limiter, turn, number),
            Step::PutOverride(number, new) => put_override_in_place(limiter, turn, number, new),
            Step::DeleteOverride(number, name) => drop(delete_override(limiter, turn, number, &name)),
        }
    }
    limiter.look_after_windows(turn);
    answer(limiter, plan.answer)
}

fn answer(limiter: &Limiter, answer: Answer) -> Reply {
    let rule_of = |name: &Name| limiter.rule(name).expect("it was just made or changed");
    match answer {
        Answer::Rule { name, is_new: true } => Reply::RuleCreated(rule_of(&name).info()),
        Answer::Rule { name, is_new: false } => Reply::Rule(rule_of(&name).info()),
        Answer::RuleDeleted => Reply::RuleDeleted,
        Answer::Override { rule, name, is_new } => {
            let rule = rule_of(&rule);
            let info = rule.override_info(rule.overrides.get(&name).expect("it was just made or changed"));
            if is_new { Reply::OverrideCreated(info) } else { Reply::Override(info) }
        }
        Answer::OverrideDeleted => Reply::OverrideDeleted,
        Answer::File(changes) => Reply::FileApplied(changes),
    }
}

fn activate(limiter: &mut Limiter, turn: &mut Turn<'_>, number: RuleNumber, replaced: Option<RuleNumber>) {
    if let Some(old) = replaced {
        let id = limiter.rules.at(old).stored.id;
        let (old_ones, new_ones) = (&limiter.rules.at(old).overrides, &limiter.rules.at(number).overrides);
        // Those that were there before are stored as they are.
        if !Arc::ptr_eq(old_ones, new_ones) {
            for (_, item) in old_ones.iter().filter(|(_, item)| new_ones.by_id(item.stored.id).is_none()) {
                turn.remove(keys::override_of(turn.namespace, id, item.stored.id));
            }
            for (_, item) in new_ones.iter().filter(|(_, item)| old_ones.by_id(item.stored.id).is_none()) {
                turn.put(keys::override_of(turn.namespace, id, item.stored.id), &item.stored);
            }
        }
        limiter.rules.remove(old);
        limiter.groups.note_gone();
    }
    limiter.rules.name(number);
    let rule = limiter.rules.at_mut(number);
    rule.is_active = true;
    turn.put(keys::rule(turn.namespace, rule.stored.id), &rule.stored);
    if replaced.is_none() {
        for (_, item) in rule.overrides.iter() {
            turn.put(keys::override_of(turn.namespace, rule.stored.id, item.stored.id), &item.stored);
        }
    }
}

fn change_in_place(limiter: &mut Limiter, turn: &mut Turn<'_>, number: RuleNumber, terms: NewRule) {
    let position = turn.advance();
    let begins_anew = limiter.rules.at(number).begins_anew(&terms);
    limiter.rules.change(number, |stored| {
        stored.clock.change(turn.now, terms.limit);
        if begins_anew {
            stored.generation = position;
        }
        stored.terms = terms;
    });
    if begins_anew {
        limiter.groups.note_gone();
    }
    let stored = &limiter.rules.at(number).stored;
    turn.put(keys::rule(turn.namespace, stored.id), stored);
}

fn delete_rule(limiter: &mut Limiter, turn: &mut Turn<'_>, number: RuleNumber) {
    turn.advance();
    let rule = limiter.rules.at(number);
    let id = rule.stored.id;
    turn.remove(keys::rule(turn.namespace, id));
    // Without their rule they are out of reach at once; many are taken away bit by bit.
    if !rule.overrides.is_empty() {
        turn.sweep(keys::overrides(turn.namespace, id));
    }
    limiter.rules.remove(number);
    limiter.groups.note_gone();
}

/// An override for which nothing need be counted.
fn put_override_in_place(limiter: &mut Limiter, turn: &mut Turn<'_>, number: RuleNumber, new: NewOverride) {
    let position = turn.advance();
    let rule = limiter.rules.at_mut(number);
    let id = rule.stored.id;
    if let Some(item) = rule.overrides_mut().get_mut(&new.name)
        && item.stored.terms.key_values == new.key_values
    {
        item.stored.clock.change(turn.now, new.limit);
        item.stored.terms = new;
        turn.put(keys::override_of(turn.namespace, id, item.stored.id), &item.stored);
        return;
    }
    let mut stored = StoredOverride::new(new, position, turn.now);
    if let Some(old) = delete_override(limiter, turn, number, &stored.terms.name) {
        stored.created_at = old.stored.created_at;
    }
    turn.put(keys::override_of(turn.namespace, id, stored.id), &stored);
    let rule = limiter.rules.at_mut(number);
    let (from, to) = (rule.stored.clock, stored.clock);
    let key_values = stored.terms.key_values.clone();
    rule.overrides_mut().insert(Override { stored, is_active: true });
    move_clock(limiter, turn, number, &key_values, from, to);
}

fn delete_override(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    number: RuleNumber,
    name: &Name,
) -> Option<Override> {
    let rule = limiter.rules.at_mut(number);
    let item = rule.overrides_mut().remove(name)?;
    turn.advance();
    turn.remove(keys::override_of(turn.namespace, rule.stored.id, item.stored.id));
    let (from, to) = (item.stored.clock, rule.stored.clock);
    let key_values = &item.stored.terms.key_values;
    // The override's own count is nobody's any more; a window of it is dropped with the idle ones.
    let owner = Owner::Override { generation: rule.stored.generation, id: item.stored.id };
    if let Some(place) = limiter.groups.find(owner, key_values.as_bytes()) {
        limiter.groups.remove(place, turn.namespace, turn.changes);
    }
    move_clock(limiter, turn, number, key_values, from, to);
    Some(item)
}

/// A bucket's group that goes over to an override, or back, keeps what is in it.
fn move_clock(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    number: RuleNumber,
    key_values: &KeyValues,
    from: Clock,
    to: Clock,
) {
    let rule = limiter.rules.at(number);
    let owner = Owner::Rule(rule.stored.generation);
    if rule.is_bucket()
        && rule.is_exact(key_values)
        && let Some(place) = limiter.groups.find(owner, key_values.as_bytes())
    {
        limiter.groups.change(place, When::Now).convert(from, to, turn.now);
    }
}
