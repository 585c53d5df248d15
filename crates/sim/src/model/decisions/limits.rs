//! The limiter of decisions: rules that only their limits change, windows, and counters. All rules are durable, so nothing is
//! ever uncertain.

use crate::model::{
    limiter::{
        remaining,
        window::{History, NEVER, Reading, Shape},
    },
    select,
};
use limina_engine::{
    KeyValues, Millis, Name,
    limiter::{AppliedLimit, Limit, LimitStatus, MAX_COUNT, NewRule, Window as Kind},
};
use std::collections::BTreeMap;

/// The state of the limiter, except for what is in use by open decisions.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Limits {
    /// Sorted by name.
    pub(super) rules: BTreeMap<Name, Rule>,
    windows: BTreeMap<Group, History>,
    /// What plain checks have in use.
    pub(super) unleased: BTreeMap<KeyValues, u64>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rule {
    pub(super) terms: NewRule,
    pub(super) created_at: u64,
}

/// A rule, and the values of its keys.
pub(super) type Group = (Name, KeyValues);

/// An entry in the history of a window: the group, and the index in its history.
pub(super) type HistoryEntry = (Group, usize);

/// Key-values that are in use so many times.
pub(super) type InUse = (KeyValues, u64);

impl Rule {
    /// Whether requests wait for what is in use.
    pub(super) fn is_slot(&self) -> bool {
        self.terms.window.is_none() && !self.terms.shadow
    }

    fn group(&self, key_values: &KeyValues) -> Option<KeyValues> {
        select::project(key_values, &self.terms.group_by)
    }

    /// The most that the rule lets pass at once.
    fn capacity(&self) -> u64 {
        let Limit::AtMost(limit) = self.terms.limit else { unreachable!("the workload sets finite limits") };
        match self.terms.window {
            Some(Kind::Bucket { burst, .. }) if limit > 0 => burst.unwrap_or(limit),
            _ => limit,
        }
    }

    /// Whether so many hits are more than what is left.
    pub(super) fn is_exceeded(&self, used: u64, hits: u64) -> bool {
        hits > 0 && (self.terms.limit == Limit::AtMost(0) || used + hits > self.capacity())
    }
}

impl Limits {
    /// The rules that apply, each with the group.
    pub(super) fn applying<'a>(
        &'a self,
        key_values: &'a KeyValues,
    ) -> impl Iterator<Item = (&'a Rule, Group)> + 'a {
        self.rules.values().filter_map(move |rule| {
            let values = rule.group(key_values)?;
            Some((rule, (rule.terms.name.clone(), values)))
        })
    }

    /// Whether a rule without a window applies.
    pub(super) fn is_counted(&self, key_values: &KeyValues) -> bool {
        self.applying(key_values).any(|(rule, _)| rule.terms.window.is_none())
    }

    pub(super) fn used(&self, now: u64, rule: &Rule, group: &Group, in_use: &[InUse]) -> u64 {
        match rule.terms.window {
            Some(window) => {
                let Reading { used, .. } = self.window(now, rule, group).show(Shape::of(window), now);
                assert_eq!(used.0, used.1, "the workload takes too often for an exact window");
                used.0
            }
            None => {
                let unleased = self.unleased.iter().map(|(key_values, hits)| (key_values, *hits));
                let all = unleased.chain(in_use.iter().map(|(key_values, hits)| (key_values, *hits)));
                all.filter(|(key_values, _)| rule.group(key_values).as_ref() == Some(&group.1))
                    .map(|(_, hits)| hits)
                    .sum()
            }
        }
    }

    /// The rule has another limit from now on.
    pub(super) fn change_limit(&mut self, now: u64, name: &Name, limit: Limit) {
        self.rules.get_mut(name).expect("it exists").terms.limit = limit;
        let windows = self.windows.iter_mut().filter(|((rule, _), _)| rule == name);
        windows.for_each(|(_, window)| window.set_rate(now, limit));
    }

    /// Takes from all windows that apply. Returns where.
    pub(super) fn take(
        &mut self,
        now: u64,
        key_values: &KeyValues,
        hits: u64,
        is_report: bool,
    ) -> Vec<HistoryEntry> {
        let mut taken = Vec::new();
        let mut windows = std::mem::take(&mut self.windows);
        for (rule, group) in self.applying(key_values).filter(|(rule, _)| rule.terms.window.is_some()) {
            let most = if rule.terms.shadow || is_report { MAX_COUNT } else { rule.capacity() };
            let window = windows.entry(group.clone()).or_insert_with(|| History::new(now, rule.terms.limit));
            taken.push((group, window.take_at(now, hits, most)));
        }
        self.windows = windows;
        taken
    }

    pub(super) fn give_back(&mut self, now: u64, key_values: &KeyValues, hits: u64) {
        let groups: Vec<Group> = self.applying(key_values).map(|(_, group)| group).collect();
        for group in groups {
            if let Some(window) = self.windows.get_mut(&group) {
                window.take(now, -i64::try_from(hits).expect("hits are small"), 0, true);
            }
        }
    }

    /// What was taken is settled: less is refunded, more is counted past the limit.
    pub(super) fn settle(&mut self, at: u64, taken: &[HistoryEntry], hits: u64, actual: u64) {
        for (group, place) in taken {
            let window = self.windows.get_mut(group).expect("it was taken from");
            match actual.checked_sub(hits) {
                Some(0) => {}
                Some(more) => {
                    window.take_at(at, more, MAX_COUNT);
                }
                None => window.refund(at, *place, hits - actual),
            }
        }
    }

    /// The status of a limit.
    pub(super) fn status(
        &self,
        now: u64,
        entry: usize,
        rule: &Rule,
        group: &Group,
        in_use: &[InUse],
    ) -> AppliedLimit {
        let terms = &rule.terms;
        let reset = terms
            .window
            .map_or(NEVER, |window| self.window(now, rule, group).show(Shape::of(window), now).reset.0);
        let (limit, used) = (Limit::AtMost(rule.capacity()), self.used(now, rule, group, in_use));
        AppliedLimit {
            entry: u32::try_from(entry).expect("few checks"),
            per: terms.window.map(|window| window.per()),
            refill: match (terms.window, terms.limit) {
                (Some(Kind::Bucket { .. }), Limit::AtMost(limit)) => Some(limit),
                _ => None,
            },
            status: LimitStatus {
                rule: Some(terms.name.clone()),
                override_name: None,
                group: group.1.clone(),
                limit,
                used,
                remaining: remaining(limit, used),
                reset_ms: (reset != NEVER).then_some(Millis(reset)),
                shadow: terms.shadow,
                exceeded: false,
                waiting: 0,
            },
        }
    }

    /// When so many hits would pass if nothing else happened. `None` if it is not known: what is in use has no time.
    pub(super) fn passes_after(
        &self,
        now: u64,
        rule: &Rule,
        group: &Group,
        in_use: &[InUse],
        hits: u64,
    ) -> Option<u64> {
        match rule.terms.window {
            None => (!rule.is_exceeded(self.used(now, rule, group, in_use), hits)).then_some(0),
            Some(_) if rule.terms.limit == Limit::AtMost(0) => None,
            Some(window) => {
                let window = (self.window(now, rule, group), Shape::of(window));
                let span = window
                    .0
                    .retry(window.1, now, &[], i64::try_from(hits).expect("hits are small"), rule.capacity())
                    .0;
                (span != NEVER).then_some(span)
            }
        }
    }

    /// Whether every window has let pass only what it may.
    pub(super) fn check(&self) -> Result<(), String> {
        self.windows.iter().try_for_each(|((rule, _), window)| {
            let rule = &self.rules[rule];
            match rule.terms.window {
                Some(kind) if !rule.terms.shadow => window.check(Shape::of(kind), rule.capacity()),
                _ => Ok(()),
            }
        })
    }

    /// The groups of a rule that count something, as far as windows know.
    pub(super) fn windows_of(&self, name: &Name) -> impl Iterator<Item = &Group> {
        self.windows.keys().filter(move |(rule, _)| rule == name)
    }

    fn window(&self, now: u64, rule: &Rule, group: &Group) -> History {
        self.windows.get(group).cloned().unwrap_or_else(|| History::new(now, rule.terms.limit))
    }
}
