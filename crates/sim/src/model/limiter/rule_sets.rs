//! Rule sets: what a set changes, and which rules it may not touch.

use super::{
    Answer, CreationPosition, Limiter, Order, expect,
    rules::{Outcome, Override, Rule},
    window::Shape,
};
use limina_engine::{
    Name, Position,
    limiter::{
        self, ChangedRule, ConflictCode, ManagedRule, NewOverride, NewRule, NewRuleSet, Refusal, Reply,
        RuleField, RuleSet, RuleSetChanges, RuleSetInfo, RuleSetPlan, SetAuthor, SetConflict, SetOverrides,
        SetRule,
    },
};

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Set {
    pub(super) name: Name,
    pub(super) overrides: SetOverrides,
    pub(super) created: CreationPosition,
}

impl Limiter {
    pub(super) fn set(&self, name: &Name) -> Option<&Set> {
        self.sets.iter().find(|set| set.name == *name)
    }

    pub(super) fn is_open(&self, set: &Name) -> bool {
        self.set(set).is_some_and(|set| set.overrides == SetOverrides::Open)
    }

    fn rules_of(&self, set: &Name) -> Vec<&Rule> {
        let mut rules: Vec<&Rule> =
            self.rules.iter().filter(|rule| rule.managed_by.as_ref() == Some(set)).collect();
        rules.sort_by(|a, b| a.terms.name.cmp(&b.terms.name));
        rules
    }

    pub(super) fn set_info(&self, set: &Set) -> RuleSetInfo {
        RuleSetInfo {
            name: set.name.clone(),
            rules: self.rules_of(&set.name).len() as u64,
            overrides: set.overrides,
            created_position: Position(0),
        }
    }

    /// The whole set, except for positions.
    pub(super) fn whole_set(&self, name: &Name) -> Answer {
        let set = self.set(name).ok_or_else(|| Refusal::RuleSetNotFound { set: name.clone() })?;
        let of_set = |rule: &&Rule| {
            let mut overrides: Vec<&Override> = rule.overrides.iter().filter(|item| item.is_of_set).collect();
            overrides.sort_by(|a, b| a.item.name.cmp(&b.item.name));
            let overrides = overrides.into_iter().map(|item| item.info(&rule.terms.name, Position(0)));
            let shown = rule.info(Position(0));
            limiter::RuleOfSet {
                name: shown.name,
                group_by: shown.group_by,
                selection: shown.selection,
                limit: shown.limit,
                window: shown.window,
                shadow: shown.shadow,
                durability: shown.durability,
                description: shown.description,
                overrides: overrides.collect(),
                managed_by: name.clone(),
                created_position: Position(0),
            }
        };
        let rules = self.rules_of(name).iter().map(of_set).collect();
        let RuleSetInfo { name, overrides, created_position, .. } = self.set_info(set);
        Ok(Reply::RuleSet(RuleSet { name, rules, overrides, created_position }))
    }

    pub(super) fn put_set(
        &self,
        now: u64,
        created: CreationPosition,
        set: &Name,
        new: &NewRuleSet,
        author: SetAuthor,
    ) -> Vec<Outcome> {
        if is_servers_own(set) && author == SetAuthor::Client {
            return self.refuse(Refusal::RuleSetManagedByServer { set: set.clone() });
        }
        let (changes, mut limiter) = self.compare_set(now, created, set, new);
        if let Some(refusal) = first_refusal(&changes.conflicts) {
            return self.refuse(refusal);
        }
        let old = self.set(set);
        let is_change = !changes.is_empty() || old.is_none_or(|old| old.overrides != new.overrides);
        let put = Set {
            name: set.clone(),
            overrides: new.overrides,
            created: old.map_or(created, |old| old.created),
        };
        limiter.sets.retain(|other| other.name != *set);
        limiter.sets.push(put);
        let answer = Ok(Reply::RuleSetPut { is_new: old.is_none(), changes });
        vec![Outcome { limiter, answer, is_change }]
    }

    pub(super) fn delete_set(&self, set: &Name, author: SetAuthor) -> Vec<Outcome> {
        if is_servers_own(set) && author == SetAuthor::Client {
            return self.refuse(Refusal::RuleSetManagedByServer { set: set.clone() });
        }
        if self.set(set).is_none() {
            return self.refuse(Refusal::RuleSetNotFound { set: set.clone() });
        }
        let mut limiter = self.clone();
        let deleted: Vec<Name> = self.rules_of(set).iter().map(|rule| rule.terms.name.clone()).collect();
        deleted.iter().for_each(|name| limiter.remove_rule(name));
        limiter.sets.retain(|other| other.name != *set);
        let answer = Ok(Reply::RuleSetDeleted(RuleSetChanges { deleted, ..RuleSetChanges::default() }));
        vec![Outcome { limiter, answer, is_change: true }]
    }

    /// A look at what a client's change of the set would change.
    pub(super) fn plan_set(
        &self,
        now: u64,
        order: &mut Order,
        plan: &RuleSetPlan,
        answer: &Answer,
    ) -> Result<(), String> {
        let is = |expected: Answer| expect(expected == *answer, || format!("{expected:?}"));
        if is_servers_own(plan.set()) {
            return is(Err(Refusal::RuleSetManagedByServer { set: plan.set().clone() }));
        }
        let created = CreationPosition::after(Order { position: 0, ..*order });
        let (changes, after) = self.compare_set(now, created, plan.set(), plan.rules());
        // What a rule with a conflict would add is not counted.
        let has_conflicts = !changes.conflicts.is_empty();
        match answer {
            Err(Refusal::QuotaExceeded(_)) if has_conflicts => Ok(()),
            Err(Refusal::QuotaExceeded(exceeded)) => self.refused_after(order, exceeded, 1, &after),
            _ if !has_conflicts && !self.may_have_rules(&after) => Err("a refusal by a quota".into()),
            _ => is(Ok(Reply::RuleSetPlanned(changes))),
        }
    }

    /// What the set changes, and the rules afterwards.
    fn compare_set(
        &self,
        now: u64,
        created: CreationPosition,
        set: &Name,
        new: &NewRuleSet,
    ) -> (RuleSetChanges, Limiter) {
        let mut limiter = self.clone();
        let mut changes = RuleSetChanges::default();
        for rule in self.rules_of(set) {
            if new.rules.iter().all(|of_set| of_set.rule.name != rule.terms.name) {
                changes.deleted.push(rule.terms.name.clone());
                limiter.remove_rule(&rule.terms.name);
            }
        }
        for of_set in &new.rules {
            let name = of_set.rule.name.clone();
            let Some(old) = self.rule(&name) else {
                let overrides = of_set.overrides.iter();
                let overrides =
                    overrides.map(|item| Override { item: item.clone(), created, is_of_set: true });
                limiter.replace_rule(
                    now,
                    Rule {
                        terms: of_set.rule.clone(),
                        managed_by: Some(set.clone()),
                        created,
                        overrides: overrides.collect(),
                    },
                );
                changes.created.push(name);
                continue;
            };
            if let Some(other) = old.managed_by.as_ref().filter(|other| *other != set) {
                changes.conflicts.push(SetConflict {
                    rule: name,
                    code: ConflictCode::RuleManagedBySet,
                    managed_by: Some(other.clone()),
                    override_name: None,
                });
                continue;
            }
            let put = changed_rule(old, created, set, of_set, new.overrides);
            changes.conflicts.extend(conflict_of(&put, of_set, old));
            let fields = changed_fields(old, &put);
            if !fields.is_empty() {
                let starts_empty = put.terms.window.is_some()
                    && (old.terms.window.map(Shape::of) != put.terms.window.map(Shape::of)
                        || sorted(&old.terms) != sorted(&put.terms));
                changes.changed.push(ChangedRule { rule: name, fields, starts_empty });
                limiter.replace_rule(now, put);
            }
        }
        changes.created.sort();
        changes.changed.sort_by(|a, b| a.rule.cmp(&b.rule));
        changes.conflicts.sort_by(|a, b| a.rule.cmp(&b.rule));
        (changes, limiter)
    }
}

/// The rule as the set wants it.
fn changed_rule(
    old: &Rule,
    created: CreationPosition,
    set: &Name,
    of_set: &SetRule,
    mode: SetOverrides,
) -> Rule {
    let is_named = |item: &Override| of_set.overrides.iter().any(|new| new.name == item.item.name);
    let mut overrides: Vec<Override> = match mode {
        SetOverrides::Closed => Vec::new(),
        SetOverrides::Open => {
            let of_clients = old.overrides.iter().filter(|item| !item.is_of_set && !is_named(item));
            of_clients.cloned().collect()
        }
    };
    overrides.extend(of_set.overrides.iter().map(|item| Override {
        item: item.clone(),
        // If a set changes a rule, its overrides may count as new ones.
        created: if old.terms == of_set.rule { old.created_or(item, created) } else { created },
        is_of_set: true,
    }));
    Rule { terms: of_set.rule.clone(), managed_by: Some(set.clone()), created: old.created, overrides }
}

/// Why the overrides that clients have made do not go together with the set's.
fn conflict_of(put: &Rule, of_set: &SetRule, old: &Rule) -> Option<SetConflict> {
    let conflict = |code, name: &Name| SetConflict {
        rule: put.terms.name.clone(),
        code,
        managed_by: None,
        override_name: Some(name.clone()),
    };
    let mut of_clients: Vec<&Override> = put.overrides.iter().filter(|item| !item.is_of_set).collect();
    of_clients.sort_by(|a, b| a.item.name.cmp(&b.item.name));
    if let Some(lacking) = of_clients.iter().find(|item| !put.missing_key(&item.item.key_values).is_empty()) {
        return Some(conflict(ConflictCode::OverridesConflict, &lacking.item.name));
    }
    let is_there = |new: &NewOverride| old.overrides.iter().any(|item| item.is_of_set && item.item == *new);
    let new_ones = of_set.overrides.iter().filter(|new| !is_there(new));
    let mut twins = new_ones.filter_map(|new| {
        of_clients.iter().find(|item| item.item.key_values == new.key_values).map(|item| &item.item.name)
    });
    Some(conflict(ConflictCode::OverrideAlreadyExists, twins.next()?))
}

fn changed_fields(old: &Rule, new: &Rule) -> Vec<RuleField> {
    let overrides = |rule: &Rule| {
        let mut items: Vec<_> =
            rule.overrides.iter().map(|item| (item.item.clone(), item.is_of_set)).collect();
        items.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
        items
    };
    let (a, b) = (&old.terms, &new.terms);
    let mut fields = Vec::new();
    let mut note = |field, is_changed| fields.extend(Some(field).filter(|_| is_changed));
    note(RuleField::GroupBy, a.group_by != b.group_by);
    note(RuleField::Selection, a.selection != b.selection);
    note(RuleField::Limit, a.limit != b.limit);
    note(RuleField::Window, a.window != b.window);
    note(RuleField::Shadow, a.shadow != b.shadow);
    note(RuleField::Durability, a.durability() != b.durability());
    note(RuleField::Description, a.description != b.description);
    note(RuleField::Overrides, overrides(old) != overrides(new));
    note(RuleField::ManagedBy, old.managed_by != new.managed_by);
    fields
}

fn first_refusal(conflicts: &[SetConflict]) -> Option<Refusal> {
    let mut rules = Vec::new();
    let (mut lacking, mut twin) = (None, None);
    for SetConflict { rule, code, managed_by, override_name } in conflicts.iter().cloned() {
        match (code, managed_by, override_name) {
            (ConflictCode::RuleManagedBySet, Some(set), None) => rules.push(ManagedRule { rule, set }),
            (ConflictCode::OverridesConflict, None, Some(name)) => {
                lacking = lacking.or(Some(Refusal::OverridesConflict { rule, name }));
            }
            (ConflictCode::OverrideAlreadyExists, None, Some(name)) => {
                twin = twin.or(Some(Refusal::OverrideAlreadyExists { rule, name }));
            }
            other => unreachable!("no conflict: {other:?}"),
        }
    }
    if rules.is_empty() { lacking.or(twin) } else { Some(Refusal::RuleManagedBySet { rules }) }
}

fn sorted(terms: &NewRule) -> Vec<Box<str>> {
    let mut keys = terms.group_by.clone();
    keys.sort();
    keys
}

fn is_servers_own(set: &Name) -> bool {
    matches!(set.as_str(), "file" | "envoy")
}
