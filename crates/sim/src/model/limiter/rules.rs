//! Rules and overrides, and how changing them affects what was counted.

use super::{Answer, CreationPosition, Done, GroupKey, Limiter, Order, select, window::Shape};
use limina_engine::{
    KeyValues, Name, Position,
    limiter::{
        self, Change, Durability, Limit, MAX_COUNT, ManagedRule, NewOverride, NewRule, Refusal, Reply,
        Window, WindowType,
    },
};

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rule {
    pub(super) terms: NewRule,
    pub(super) managed_by: Option<Name>,
    pub(super) created: CreationPosition,
    pub(super) overrides: Vec<Override>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Override {
    pub(super) item: NewOverride,
    pub(super) created: CreationPosition,
    pub(super) is_of_set: bool,
}

/// One possible result of a change, and its answer, except for positions.
pub(super) struct Outcome {
    pub(super) limiter: Limiter,
    pub(super) answer: Answer,
    pub(super) is_change: bool,
}

impl Rule {
    pub(super) fn applies_to(&self, key_values: &KeyValues) -> bool {
        self.group(key_values).is_some() && select::selects(&self.terms.selection, key_values)
    }

    /// The values of the keys by which the rule groups.
    pub(super) fn group(&self, key_values: &KeyValues) -> Option<KeyValues> {
        select::project(key_values, &self.terms.group_by)
    }

    pub(super) fn overrides_for(&self, key_values: &KeyValues) -> impl Iterator<Item = &Override> {
        self.overrides.iter().filter(move |item| select::contains(key_values, &item.item.key_values))
    }

    /// Whether the override has exactly the keys by which the rule groups. Then it shares the group's window.
    pub(super) fn is_exact(&self, item: &Override) -> bool {
        item.item.key_values.iter().count() == self.terms.group_by.len()
    }

    /// The limit of a group, which is the rate at which its bucket is refilled.
    pub(super) fn rate(&self, group: &KeyValues) -> Limit {
        self.exact(group).map_or(self.terms.limit, |item| item.item.limit)
    }

    pub(super) fn exact(&self, group: &KeyValues) -> Option<&Override> {
        self.overrides.iter().find(|item| item.item.key_values == *group)
    }

    /// How many tokens a bucket can miss: it is at most empty, except if it refuses nothing.
    pub(super) fn most_missing(&self, item: Option<&Override>) -> u64 {
        if self.terms.shadow { MAX_COUNT } else { self.burst(item) }
    }

    /// The capacity of a bucket, of the rule or of an override.
    fn burst(&self, item: Option<&Override>) -> u64 {
        let (limit, burst) = match (item, self.terms.window) {
            (Some(item), _) => (item.item.limit, item.item.burst),
            (None, Some(Window::Bucket { burst, .. })) => (self.terms.limit, burst),
            (None, _) => (self.terms.limit, None),
        };
        match limit {
            Limit::Unlimited => burst.unwrap_or(0),
            Limit::AtMost(limit) => burst.unwrap_or(limit),
        }
    }

    pub(super) fn info(&self, created_position: Position) -> limiter::Rule {
        let (overrides, managed_by) = (self.overrides.len() as u64, self.managed_by.clone());
        limiter::Rule { overrides, managed_by, ..shown_rule(&self.terms, created_position) }
    }

    pub(super) fn item(&self, name: &Name) -> Option<&Override> {
        self.overrides.iter().find(|item| item.item.name == *name)
    }

    /// When the override was created that this one replaces. With other key-values it counts as a new one.
    pub(super) fn created_or(&self, new: &NewOverride, created: CreationPosition) -> CreationPosition {
        let old = self.item(&new.name).filter(|old| old.item.key_values == new.key_values);
        old.map_or(created, |old| old.created)
    }

    pub(super) fn missing_key(&self, key_values: &KeyValues) -> Vec<Box<str>> {
        let has = |key: &str| key_values.iter().any(|pair| pair.key == key);
        self.terms.group_by.iter().filter(|key| !has(key)).cloned().collect()
    }
}

impl Override {
    pub(super) fn info(&self, rule: &Name, created_position: Position) -> limiter::Override {
        let NewOverride { name, key_values, limit, burst } = self.item.clone();
        limiter::Override { rule: rule.clone(), name, key_values, limit, burst, created_position }
    }
}

/// A rule with these terms as an answer shows it. It has no overrides and belongs to no set.
pub(in crate::model) fn shown_rule(terms: &NewRule, created_position: Position) -> limiter::Rule {
    let window = terms.window.map(|window| {
        let (kind, burst) = match window {
            Window::Fixed { .. } => (WindowType::Fixed, None),
            Window::Sliding { .. } => (WindowType::Sliding, None),
            Window::Bucket { burst, .. } => (WindowType::Bucket, burst),
        };
        limiter::RuleWindow { kind, per_ms: window.per(), burst }
    });
    let default = if window.is_some() { Durability::Relaxed } else { Durability::Durable };
    limiter::Rule {
        name: terms.name.clone(),
        group_by: terms.group_by.clone(),
        selection: terms.selection.clone(),
        limit: terms.limit,
        window,
        shadow: terms.shadow,
        durability: terms.durability.unwrap_or(default),
        description: terms.description.clone(),
        overrides: 0,
        managed_by: None,
        created_position,
    }
}

impl Limiter {
    /// Changes rules as the answer says, if that is right.
    pub(super) fn change(
        &mut self,
        now: u64,
        order: &mut Order,
        change: &Change,
        answer: &Answer,
    ) -> Result<Done, String> {
        let mut expected = Vec::new();
        for mut way in self.changes(now, *order, change) {
            let mut after = *order;
            if way.is_change {
                // The change may have taken its position when it began, before others that were answered meanwhile.
                after.grow(0);
            }
            if let (Ok(expected), Ok(shown)) = (&mut way.answer, answer) {
                way.limiter.adopt(&mut after, expected, shown);
            }
            if way.answer == *answer {
                (*self, *order) = (way.limiter, after);
                return Ok(if way.is_change { Done::CHANGE } else { Done::NOTHING });
            }
            expected.push(format!("{:?}", way.answer));
        }
        Err(expected.join("\n   or:    "))
    }

    /// All possible results of the change. There are several only if several things are wrong and it is not specified
    /// which one is reported.
    pub(super) fn changes(&self, now: u64, order: Order, change: &Change) -> Vec<Outcome> {
        // A change that takes a while has the position at which it began, not the one at which it took effect.
        let created = CreationPosition::after(Order { position: 0, ..order });
        match change {
            Change::CreateRule(new) if self.rule(&new.name).is_some() => {
                self.refuse(Refusal::RuleAlreadyExists { rule: new.name.clone() })
            }
            Change::CreateRule(new) => self.with_rule(now, None, Rule::client(new.clone(), created)),
            Change::PutRule(new) => match self.rule(&new.name) {
                None => self.with_rule(now, None, Rule::client(new.clone(), created)),
                Some(rule) => {
                    let mut terms = new.clone();
                    let default =
                        if terms.window.is_some() { Durability::Relaxed } else { Durability::Durable };
                    if rule.terms.durability.is_none() && terms.durability == Some(default) {
                        terms.durability = None;
                    }
                    self.replace_terms(now, rule, terms)
                }
            },
            Change::PatchRule { name, patch } => {
                let Some(rule) = self.rule(name) else { return self.refuse(no_rule(name)) };
                let mut terms = rule.terms.clone();
                terms.limit = patch.limit.unwrap_or(terms.limit);
                terms.window = patch.window.unwrap_or(terms.window);
                terms.selection = patch.selection.clone().unwrap_or(terms.selection);
                terms.shadow = patch.shadow.unwrap_or(terms.shadow);
                terms.durability = patch.durability.unwrap_or(terms.durability);
                terms.description = patch.description.clone().unwrap_or(terms.description);
                self.replace_terms(now, rule, terms)
            }
            Change::DeleteRule(name) => match self.own_rule(name) {
                Err(refusal) => self.refuse(refusal),
                Ok(_) => {
                    let mut limiter = self.clone();
                    limiter.remove_rule(name);
                    vec![Outcome { limiter, answer: Ok(Reply::RuleDeleted), is_change: true }]
                }
            },
            Change::CreateOverride { rule, new } => {
                let rule = match self.rule_with_overrides(rule, None) {
                    Err(refusal) => return self.refuse(refusal),
                    Ok(rule) => rule,
                };
                let same =
                    |item: &&Override| item.item.name == new.name || item.item.key_values == new.key_values;
                let refusals: Vec<Refusal> =
                    rule.overrides.iter().filter(same).map(|item| rule.exists(item)).collect();
                if !refusals.is_empty() {
                    return refusals.into_iter().flat_map(|refusal| self.refuse(refusal)).collect();
                }
                self.put_override(now, rule, Override { item: new.clone(), created, is_of_set: false })
            }
            Change::PutOverride { rule, new } => match self.rule_with_overrides(rule, Some(&new.name)) {
                Err(refusal) => self.refuse(refusal),
                Ok(rule) => {
                    let created = rule.created_or(new, created);
                    self.put_override(now, rule, Override { item: new.clone(), created, is_of_set: false })
                }
            },
            Change::PatchOverride { rule: rule_name, name, patch } => {
                let rule = match self.rule_with_overrides(rule_name, Some(name)) {
                    Err(refusal) => return self.refuse(refusal),
                    Ok(rule) => rule,
                };
                let Some(old) = rule.item(name) else { return self.refuse(no_override(rule_name, name)) };
                let mut new = old.clone();
                new.item.key_values = patch.key_values.clone().unwrap_or(new.item.key_values);
                new.item.limit = patch.limit.unwrap_or(new.item.limit);
                new.item.burst = patch.burst.unwrap_or(new.item.burst);
                new.created = rule.created_or(&new.item, created);
                self.put_override(now, rule, new)
            }
            Change::DeleteOverride { rule: rule_name, name } => {
                let rule = match self.rule_with_overrides(rule_name, Some(name)) {
                    Err(refusal) => return self.refuse(refusal),
                    Ok(rule) => rule,
                };
                if rule.item(name).is_none() {
                    return self.refuse(no_override(rule_name, name));
                }
                let mut new = rule.clone();
                new.overrides.retain(|item| item.item.name != *name);
                let mut limiter = self.clone();
                limiter.replace_rule(now, new);
                vec![Outcome { limiter, answer: Ok(Reply::OverrideDeleted), is_change: true }]
            }
            Change::PutRuleSet { set, new, author } => self.put_set(now, created, set, new, *author),
            Change::DeleteRuleSet { set, author } => self.delete_set(set, *author),
        }
    }

    pub(super) fn rule(&self, name: &Name) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.terms.name == *name)
    }

    /// The rule, if clients may change it.
    fn own_rule(&self, name: &Name) -> Result<&Rule, Refusal> {
        match self.rule(name) {
            None => Err(no_rule(name)),
            Some(rule) => match &rule.managed_by {
                Some(set) => Err(managed_by(set, name)),
                None => Ok(rule),
            },
        }
    }

    /// The rule, if clients may change its override with this name, or make new ones.
    fn rule_with_overrides(&self, rule: &Name, name: Option<&Name>) -> Result<&Rule, Refusal> {
        let found = self.rule(rule).ok_or_else(|| no_rule(rule))?;
        let Some(set) = &found.managed_by else { return Ok(found) };
        let is_of_set = name.and_then(|name| found.item(name)).is_some_and(|item| item.is_of_set);
        if self.is_open(set) && !is_of_set { Ok(found) } else { Err(managed_by(set, rule)) }
    }

    pub(super) fn refuse(&self, refusal: Refusal) -> Vec<Outcome> {
        vec![Outcome { limiter: self.clone(), answer: Err(refusal), is_change: false }]
    }

    fn replace_terms(&self, now: u64, rule: &Rule, terms: NewRule) -> Vec<Outcome> {
        if let Some(set) = &rule.managed_by {
            return self.refuse(managed_by(set, &terms.name));
        }
        let new = Rule { terms, ..rule.clone() };
        let lacking = new.overrides.iter().filter(|item| !new.missing_key(&item.item.key_values).is_empty());
        let conflicts: Vec<Refusal> = lacking
            .map(|item| Refusal::OverridesConflict {
                rule: new.terms.name.clone(),
                name: item.item.name.clone(),
            })
            .collect();
        if !conflicts.is_empty() {
            return conflicts.into_iter().flat_map(|refusal| self.refuse(refusal)).collect();
        }
        let has_burst = new.overrides.iter().any(|item| item.item.burst.is_some());
        let mut ways = self.with_rule(now, Some(rule), new.clone());
        // Whether overrides may keep bursts that no longer have a meaning is not specified.
        if has_burst && !is_bucket(&new) && is_bucket(rule) {
            ways.extend(self.refuse(Refusal::BurstWithoutBucket { rule: new.terms.name }));
        }
        ways
    }

    fn with_rule(&self, now: u64, old: Option<&Rule>, new: Rule) -> Vec<Outcome> {
        let is_change = old != Some(&new);
        let info = new.info(Position(0));
        let mut limiter = self.clone();
        limiter.replace_rule(now, new);
        let reply = if old.is_some() { Reply::Rule(info) } else { Reply::RuleCreated(info) };
        vec![Outcome { limiter, answer: Ok(reply), is_change }]
    }

    fn put_override(&self, now: u64, rule: &Rule, new: Override) -> Vec<Outcome> {
        let name = rule.terms.name.clone();
        let twins = rule.overrides.iter().filter(|item| item.item.name != new.item.name);
        let mut twins = twins.filter(|item| item.item.key_values == new.item.key_values);
        if let Some(twin) = twins.next() {
            return self.refuse(rule.exists(twin));
        }
        let missing = rule.missing_key(&new.item.key_values);
        if !missing.is_empty() {
            let refuse = |key| self.refuse(Refusal::GroupKeyMissing { rule: name.clone(), key });
            return missing.into_iter().flat_map(refuse).collect();
        }
        let old = rule.item(&new.item.name);
        let is_kept = old.is_some_and(|old| old.item.burst == new.item.burst);
        if new.item.burst.is_some() && !is_bucket(rule) && !is_kept {
            return self.refuse(Refusal::BurstWithoutBucket { rule: name });
        }
        let is_change = old != Some(&new);
        let info = new.info(&name, Position(0));
        let reply = if old.is_some() { Reply::Override(info) } else { Reply::OverrideCreated(info) };
        let mut rule = rule.clone();
        rule.overrides.retain(|item| item.item.name != new.item.name);
        rule.overrides.push(new);
        let mut limiter = self.clone();
        limiter.replace_rule(now, rule);
        vec![Outcome { limiter, answer: Ok(reply), is_change }]
    }

    pub(super) fn remove_rule(&mut self, name: &Name) {
        self.rules.retain(|rule| rule.terms.name != *name);
        self.groups.retain(|key, _| key.rule() != Some(name));
    }

    /// Replaces the rule of that name, and keeps the counts that still have a meaning.
    pub(super) fn replace_rule(&mut self, now: u64, new: Rule) {
        let name = new.terms.name.clone();
        if let Some(old) = self.rule(&name).cloned() {
            let shape = |rule: &Rule| rule.terms.window.map(Shape::of);
            let keys = |rule: &Rule| {
                let mut keys = rule.terms.group_by.clone();
                keys.sort();
                keys
            };
            let starts_empty = shape(&old) != shape(&new) || keys(&old) != keys(&new);
            let is_lasting = |name: &Name| {
                let key_values = |rule: &Rule| rule.item(name).map(|item| item.item.key_values.clone());
                key_values(&old).is_some() && key_values(&old) == key_values(&new)
            };
            self.groups.retain(|key, _| match key {
                _ if key.rule() != Some(&name) => true,
                _ if starts_empty => false,
                GroupKey::Own { name, .. } => is_lasting(name),
                _ => true,
            });
        }
        for (key, history) in &mut self.groups {
            let limit = match key {
                GroupKey::Group { rule, values } if *rule == name => new.rate(values),
                GroupKey::Own { rule, name: item } if *rule == name => match new.item(item) {
                    Some(item) => item.item.limit,
                    None => continue,
                },
                _ => continue,
            };
            history.set_rate(now, limit);
        }
        self.rules.retain(|rule| rule.terms.name != name);
        self.rules.push(new);
    }
}

impl Rule {
    fn client(terms: NewRule, created: CreationPosition) -> Rule {
        Rule { terms, managed_by: None, created, overrides: Vec::new() }
    }

    fn exists(&self, item: &Override) -> Refusal {
        Refusal::OverrideAlreadyExists { rule: self.terms.name.clone(), name: item.item.name.clone() }
    }
}

impl GroupKey {
    pub(super) fn rule(&self) -> Option<&Name> {
        match self {
            GroupKey::Group { rule, .. } | GroupKey::Own { rule, .. } => Some(rule),
            GroupKey::Request { .. } => None,
        }
    }
}

fn is_bucket(rule: &Rule) -> bool {
    matches!(rule.terms.window, Some(Window::Bucket { .. }))
}

fn managed_by(set: &Name, rule: &Name) -> Refusal {
    Refusal::RuleManagedBySet { rules: vec![ManagedRule { rule: rule.clone(), set: set.clone() }] }
}

fn no_rule(name: &Name) -> Refusal {
    Refusal::RuleNotFound { rule: name.clone() }
}

fn no_override(rule: &Name, name: &Name) -> Refusal {
    Refusal::OverrideNotFound { rule: rule.clone(), name: name.clone() }
}
