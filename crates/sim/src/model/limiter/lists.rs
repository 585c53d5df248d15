//! Reads of rules, overrides, counters and leases. A page may be short, but what it skips must not exist.

use super::{
    Answer, CreationPosition, Limiter, Order, expect, page_of,
    rules::{Override, Rule},
    select,
};
use limina_engine::{
    Listed, Name, Position,
    limiter::{self, Command, Counter, Refusal, Reply, RuleMatch},
};

impl Limiter {
    /// Whether a read is answered rightly. It may show positions for the first time.
    pub(super) fn read(
        &mut self,
        now: u64,
        order: &mut Order,
        command: &Command,
        answer: &Answer,
    ) -> Result<(), String> {
        if let (Command::ListCounters { query, page }, Ok(Reply::Counters(shown))) = (command, answer) {
            let mut all = self.counters();
            all.retain(|counter| select::finds(query, &counter.key_values));
            let is_right = is_part(&all, &shown.items) && shown.items.len() <= page.limit();
            let is_whole = page.after.is_some() || shown.next.is_some() || shown.items.len() == all.len();
            let expected = || format!("at most {} of these, each once: {all:?}", page.limit());
            return expect(is_right && is_whole, expected);
        }
        if let (Command::ListGroups { rule, above, page }, Ok(Reply::Groups(shown))) = (command, answer) {
            self.rule(rule).ok_or("RuleNotFound")?;
            return self.check_groups(now, rule, *above, page, shown);
        }
        if let Command::PlanRuleSet(plan) = command {
            return self.plan_set(now, order, plan, answer);
        }
        let mut expected = self.answer(now, command, answer);
        if let (Ok(expected), Ok(shown)) = (&mut expected, answer) {
            self.adopt(order, expected, shown);
        }
        expect(expected == *answer, || format!("{expected:?}"))
    }

    /// The expected answer, except for positions. A list is returned as far as `shown` covers it.
    fn answer(&self, now: u64, command: &Command, shown: &Answer) -> Answer {
        let none = Position(0);
        let rule = |name: &Name| self.rule(name).ok_or_else(|| Refusal::RuleNotFound { rule: name.clone() });
        match command {
            Command::GetRule(name) => Ok(Reply::Rule(rule(name)?.info(none))),
            Command::ListRules { query, page } => {
                let next = match shown {
                    Ok(Reply::Rules(listed)) => listed.next.clone(),
                    _ => None,
                };
                let found = |rule: &&Rule| select::finds_keys(query, &rule.terms.group_by);
                let all = self.rules.iter().filter(found);
                let all = all.map(|rule| (rule.terms.name.clone(), rule.info(none))).collect();
                Ok(Reply::Rules(page_of(all, page, next)))
            }
            Command::GetOverride { rule: of, name } => {
                let missing = Refusal::OverrideNotFound { rule: of.clone(), name: name.clone() };
                let item = rule(of)?.item(name).ok_or(missing)?;
                Ok(Reply::Override(item.info(of, none)))
            }
            Command::ListOverrides { rule: of, query, page } => {
                let next = match shown {
                    Ok(Reply::Overrides(listed)) => listed.next.clone(),
                    _ => None,
                };
                let all =
                    rule(of)?.overrides.iter().filter(|item| select::finds(query, &item.item.key_values));
                let all = all.map(|item| (item.item.name.clone(), item.info(of, none))).collect();
                Ok(Reply::Overrides(page_of(all, page, next)))
            }
            Command::GetRuleSet(set) => self.whole_set(set),
            Command::ListRuleSets(page) => {
                let next = match shown {
                    Ok(Reply::RuleSets(listed)) => listed.next.clone(),
                    _ => None,
                };
                let all = self.sets.iter().map(|set| (set.name.clone(), self.set_info(set))).collect();
                Ok(Reply::RuleSets(page_of(all, page, next)))
            }
            Command::Match(key_values) => {
                let mut matches: Vec<RuleMatch> = Vec::new();
                for rule in self.rules.iter().filter(|rule| rule.applies_to(key_values)) {
                    let mut matching_overrides: Vec<limiter::Override> = rule
                        .overrides_for(key_values)
                        .map(|item| item.info(&rule.terms.name, none))
                        .collect();
                    matching_overrides.sort_by(|a, b| a.name.cmp(&b.name));
                    let group = rule.group(key_values).expect("the rule applies");
                    matches.push(RuleMatch { rule: rule.info(none), group, matching_overrides });
                }
                matches.sort_by(|a, b| a.rule.name.cmp(&b.rule.name));
                Ok(Reply::Matches(matches))
            }
            Command::ListLeases { owner, page } => {
                let next = match shown {
                    Ok(Reply::Leases(listed)) => listed.next.clone(),
                    _ => None,
                };
                let info = |id: &Name| self.lease_info(now, id, none).expect("it lives");
                let all = self.leases.iter().filter(|lease| owner.is_none() || lease.owner == *owner);
                let all = all.map(|lease| (lease.id.clone(), info(&lease.id))).collect();
                Ok(Reply::Leases(page_of(all, page, next)))
            }
            Command::ListGroups { rule: of, .. } => {
                rule(of)?;
                Ok(Reply::Groups(Listed { items: Vec::new(), next: None }))
            }
            Command::ListCounters { .. } => {
                Ok(Reply::Counters(Listed { items: self.counters(), next: None }))
            }
            other => unreachable!("no read: {other:?}"),
        }
    }

    /// Copies the positions that an answer shows into the expected answer, if they are possible, and records them.
    pub(super) fn adopt(&mut self, order: &mut Order, expected: &mut Reply, shown: &Reply) {
        match (expected, shown) {
            (Reply::Rule(expected), Reply::Rule(shown))
            | (Reply::RuleCreated(expected), Reply::RuleCreated(shown)) => {
                let created = &mut expected.created_position;
                self.adopt_rule(order, &expected.name, created, shown.created_position);
            }
            (Reply::Override(expected), Reply::Override(shown))
            | (Reply::OverrideCreated(expected), Reply::OverrideCreated(shown)) => {
                self.adopt_override(order, expected, shown);
            }
            (Reply::Rules(expected), Reply::Rules(shown)) => {
                let pairs = expected.items.iter_mut().zip(&shown.items);
                pairs.for_each(|(expected, shown)| {
                    let created = &mut expected.created_position;
                    self.adopt_rule(order, &expected.name, created, shown.created_position);
                });
            }
            (Reply::Overrides(expected), Reply::Overrides(shown)) => {
                let pairs = expected.items.iter_mut().zip(&shown.items);
                pairs.for_each(|(expected, shown)| self.adopt_override(order, expected, shown));
            }
            (Reply::Matches(expected), Reply::Matches(shown)) => {
                for (expected, shown) in expected.iter_mut().zip(shown) {
                    let (rule, shown_created) = (&mut expected.rule, shown.rule.created_position);
                    self.adopt_rule(order, &rule.name, &mut rule.created_position, shown_created);
                    let pairs = expected.matching_overrides.iter_mut().zip(&shown.matching_overrides);
                    pairs.for_each(|(expected, shown)| self.adopt_override(order, expected, shown));
                }
            }
            (Reply::RuleSet(expected), Reply::RuleSet(shown)) => {
                self.adopt_set(order, &expected.name, &mut expected.created_position, shown.created_position);
                for (expected, shown) in expected.rules.iter_mut().zip(&shown.rules) {
                    let (created, shown_created) = (&mut expected.created_position, shown.created_position);
                    self.adopt_rule(order, &expected.name, created, shown_created);
                    let pairs = expected.overrides.iter_mut().zip(&shown.overrides);
                    pairs.for_each(|(expected, shown)| self.adopt_override(order, expected, shown));
                }
            }
            (Reply::RuleSets(expected), Reply::RuleSets(shown)) => {
                let pairs = expected.items.iter_mut().zip(&shown.items);
                pairs.for_each(|(expected, shown)| {
                    let created = &mut expected.created_position;
                    self.adopt_set(order, &expected.name, created, shown.created_position);
                });
            }
            (Reply::Leases(expected), Reply::Leases(shown)) => {
                for (expected, shown) in expected.items.iter_mut().zip(&shown.items) {
                    let Some(lease) = self.leases.iter_mut().find(|lease| lease.id == expected.lease_id)
                    else {
                        continue;
                    };
                    expected.fencing_token = lease.token.expect(shown.fencing_token);
                    lease.token.known = Some(expected.fencing_token.0);
                }
            }
            _ => {}
        }
    }

    fn adopt_rule(&mut self, order: &mut Order, rule: &Name, created: &mut Position, shown: Position) {
        if let Some(rule) = self.rules.iter_mut().find(|other| other.terms.name == *rule) {
            adopt_position(order, &mut rule.created, created, shown);
        }
    }

    fn adopt_set(&mut self, order: &mut Order, set: &Name, created: &mut Position, shown: Position) {
        if let Some(set) = self.sets.iter_mut().find(|other| other.name == *set) {
            adopt_position(order, &mut set.created, created, shown);
        }
    }

    fn adopt_override(
        &mut self,
        order: &mut Order,
        expected: &mut limiter::Override,
        shown: &limiter::Override,
    ) {
        let Some(rule) = self.rules.iter_mut().find(|rule| rule.terms.name == expected.rule) else { return };
        let found = rule.overrides.iter_mut().find(|item| item.item.name == expected.name);
        if let Some(Override { created, .. }) = found {
            adopt_position(order, created, &mut expected.created_position, shown.created_position);
        }
    }
}

/// Copies the position that an answer shows into the expected answer, if it is possible, and records it.
fn adopt_position(order: &mut Order, mark: &mut CreationPosition, expected: &mut Position, shown: Position) {
    *expected = mark.expect(shown);
    mark.known = Some(expected.0);
    order.learn(*expected);
}

/// Whether all the shown items exist, each once.
fn is_part(all: &[Counter], shown: &[Counter]) -> bool {
    let mut left: Vec<&Counter> = all.iter().collect();
    shown.iter().all(|item| {
        let place = left.iter().position(|other| *other == item);
        place.map(|place| left.swap_remove(place)).is_some()
    })
}
