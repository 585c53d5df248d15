//! Decides checks. The answer says which limits were exceeded, and so which entries refuse. All else follows from that: what each
//! entry saw when it was asked, and what counts in the end.

use super::{
    GroupKey, Lease, Limiter,
    rules::{Override, Rule},
    select,
    window::{History, NEVER, Range, Reading, Shape, remaining},
};
use crate::model::{Done, Order, expect};
use limina_engine::{
    KeyValues, Name,
    limiter::{
        AppliedLimit, CheckSet, Checked, Counter, Durability, EntryMode, Limit, LimitStatus, MAX_COUNT, Take,
        Window,
    },
};
use std::collections::BTreeSet;

/// A check to be decided.
pub(super) struct Case<'a> {
    pub(super) now: u64,
    pub(super) entries: &'a [Take],
    pub(super) dry_run: bool,
    /// It is counted whatever the limits say.
    pub(super) report: bool,
    /// Each entry has its own mode, and some are alternatives.
    pub(super) set: Option<&'a CheckSet>,
    pub(super) is_keyed: bool,
    pub(super) mode: Mode<'a>,
}

/// What is done with the counter.
#[derive(Clone, Copy)]
pub(super) enum Mode<'a> {
    /// It is changed if a limit without a window applied.
    Check,
    /// It is always changed.
    Move,
    /// It is always changed, as leased.
    Lease(&'a Lease),
}

impl<'a> Case<'a> {
    /// Takes from all limits, or from none.
    pub(super) fn new(now: u64, is_keyed: bool, entries: &'a [Take], mode: Mode<'a>) -> Case<'a> {
        Case { now, entries, dry_run: false, report: false, set: None, is_keyed, mode }
    }

    fn mode_of(&self, entry: usize) -> EntryMode {
        let mode = if self.report { EntryMode::Report } else { EntryMode::Take };
        self.set.map_or(mode, |set| set.mode(entry))
    }

    fn alternative(&self, entry: usize) -> Option<u16> {
        self.set.and_then(|set| set.alternative(entry))
    }

    /// Whether no entry refuses that belongs to no alternative, and not every alternative is exhausted.
    fn is_allowed(&self, refused: &[bool]) -> bool {
        let entries = || (0..refused.len()).map(|entry| (self.alternative(entry), refused[entry]));
        let numbers: BTreeSet<u16> = entries().filter_map(|(alternative, _)| alternative).collect();
        let is_left = |number: &u16| entries().all(|(own, refused)| own != Some(*number) || !refused);
        entries().all(|(alternative, refused)| alternative.is_some() || !refused)
            && (numbers.is_empty() || numbers.iter().any(is_left))
    }

    /// Whether the hits of an entry count: a report always does. Others count if the check is allowed, unless they belong to
    /// an alternative that is exhausted.
    fn counts(&self, refused: &[bool], entry: usize) -> bool {
        let own = self.alternative(entry);
        let is_exhausted =
            own.is_some() && (0..refused.len()).any(|other| self.alternative(other) == own && refused[other]);
        let is_report = self.mode_of(entry) == EntryMode::Report;
        !self.dry_run && (is_report || (self.is_allowed(refused) && !is_exhausted))
    }
}

/// A limit that applies to an entry.
struct ApplicableLimit {
    /// Its status as an answer shows it, with nothing used yet.
    status: AppliedLimit,
    source: Source,
    is_relaxed: bool,
    /// The rate at which a bucket is refilled.
    rate: Limit,
    /// A limit of 0 lets nothing pass, not even a burst.
    is_closed: bool,
}

impl ApplicableLimit {
    fn window(self) -> Option<GroupKey> {
        match self.source {
            Source::Window { key, .. } => Some(key),
            Source::InUse { .. } => None,
        }
    }
}

enum Source {
    /// The sum of the counters that have these key-values and to which the rule applies.
    InUse {
        rule: Name,
        within: KeyValues,
    },
    Window {
        key: GroupKey,
        shape: Shape,
    },
}

/// A limit that applies to an entry, with what it shows.
#[derive(Debug)]
struct Found {
    status: AppliedLimit,
    is_closed: bool,
    mode: EntryMode,
    hits: i64,
    /// When the entry is asked.
    used: Range,
    /// After the whole check.
    after: Reading,
    /// When the entries so far would fit into this limit alone.
    retry: Range,
    /// What the check takes of it, if no other entry uses it.
    taken: Option<u64>,
}

impl Limiter {
    /// Decides as the answer says, if that is right. Returns the decision that the answer must show.
    pub(super) fn decide(
        &mut self,
        order: &mut Order,
        case: &Case<'_>,
        answer: &Checked,
    ) -> Result<(Checked, Done), String> {
        let refusing = answer.limits.iter().filter(|status| status.exceeded && !status.shadow);
        let refusing: BTreeSet<usize> = refusing.map(|status| status.entry as usize).collect();
        let refused: Vec<bool> = (0..case.entries.len()).map(|entry| refusing.contains(&entry)).collect();
        let is_relaxed = self.is_relaxed(case);
        let (found, after) = self.ask(case, &refused, !is_relaxed);
        let allowed = case.is_allowed(&refused);
        let is_right = (answer.allowed, answer.reported, answer.limits.len())
            == (allowed, case.report, found.len())
            && found.iter().zip(&answer.limits).all(|(limit, status)| limit.shows(status))
            && match allowed || case.report || case.set.is_some() {
                true => answer.retry_after.is_none(),
                false => retry_of(&found).contains(answer.retry_after.map_or(NEVER, |span| span.0)),
            };
        expect(is_right, || format!("allowed: {allowed}, retry: {:?}, with {found:?}", retry_of(&found)))?;
        let entries = case.entries.iter().enumerate();
        let taken: Vec<&Take> =
            entries.filter(|(entry, _)| case.counts(&refused, *entry)).map(|(_, take)| take).collect();
        let done = self.done(order, &taken, &after, is_relaxed);
        *self = after;
        Ok((answer.clone(), done))
    }

    /// Whether the answer may come before it is durable.
    pub(super) fn is_relaxed(&self, case: &Case<'_>) -> bool {
        let mut applied = case.entries.iter().flat_map(|take| self.applied(0, take));
        matches!(case.mode, Mode::Check) && !case.is_keyed && applied.all(|applied| applied.is_relaxed)
    }

    /// What it has done to take these entries. What is given back creates no window.
    fn done(&self, order: &mut Order, taken: &[&Take], moved: &Limiter, is_relaxed: bool) -> Done {
        let total = |limiter: &Limiter| -> Vec<Counter> {
            taken.iter().map(|take| limiter.counter(take.key_values())).collect()
        };
        let is_counter_changed = total(self) != total(moved);
        let mut takes = taken.iter().filter(|take| take.hits() != 0);
        let is_window_changed =
            takes.any(|take| (take.hits() > 0 || !is_relaxed) && !self.windows(take).is_empty());
        if is_counter_changed || (is_window_changed && !is_relaxed) {
            order.grow(1);
        }
        Done { is_change: is_counter_changed || is_window_changed, is_relaxed }
    }

    /// What every limit shows, and the state after the check, if these entries refuse. An entry sees what the earlier ones take that do
    /// not refuse. A retry takes them all.
    fn ask(&self, case: &Case<'_>, refused: &[bool], is_durable: bool) -> (Vec<Found>, Limiter) {
        let now = case.now;
        let (mut asking, mut after) = (self.clone(), self.clone());
        let mut found = Vec::new();
        let mut earlier: Vec<(GroupKey, i64)> = Vec::new();
        for (entry, take) in case.entries.iter().enumerate() {
            let mode = case.mode_of(entry);
            for applied in self.applied(entry, take) {
                let before = asking.reading(&applied, now);
                found.push((
                    Found {
                        status: applied.status.clone(),
                        is_closed: applied.is_closed,
                        mode,
                        hits: take.hits(),
                        used: before.used,
                        after: before,
                        retry: self.retry(&applied, now, &earlier, take.hits()),
                        taken: self.taken_alone(case, refused, entry),
                    },
                    applied,
                ));
            }
            earlier.extend(self.windows(take).into_iter().map(|(key, ..)| (key, take.hits())));
            if take.hits() != 0 && (!refused[entry] || mode == EntryMode::Report) {
                asking.take(case, mode, take, is_durable);
            }
            if take.hits() != 0 && case.counts(refused, entry) {
                after.take(case, mode, take, is_durable);
            }
        }
        let read = |(limit, applied)| Found { after: after.reading(&applied, now), ..limit };
        (found.into_iter().map(read).collect(), after)
    }

    fn taken_alone(&self, case: &Case<'_>, refused: &[bool], entry: usize) -> Option<u64> {
        let hits = u64::try_from(case.entries[entry].hits()).ok()?;
        (case.entries.len() == 1).then_some(if case.counts(refused, entry) { hits } else { 0 })
    }

    /// Takes an entry from everything that it applies to, whether it fits or not.
    pub(super) fn take(&mut self, case: &Case<'_>, mode: EntryMode, take: &Take, is_durable: bool) {
        let shown: Vec<GroupKey> = match mode {
            EntryMode::Take | EntryMode::Look => Vec::new(),
            EntryMode::Report => {
                self.applied(0, take).into_iter().filter_map(ApplicableLimit::window).collect()
            }
        };
        for (key, rate, burst) in self.windows(take) {
            // A report takes a limit's bucket into debt. The bucket of a rule that an override replaces has its bound.
            let burst = if shown.contains(&key) { MAX_COUNT } else { burst };
            let history = self.groups.entry(key).or_insert_with(|| History::new(case.now, rate));
            history.take(case.now, take.hits(), burst, is_durable);
        }
        let is_in_use = take.limit().is_none()
            && self.rules_for(take.key_values()).any(|rule| rule.terms.window.is_none());
        match case.mode {
            Mode::Lease(lease) => self.leases.push(lease.clone()),
            Mode::Check if !is_in_use => {}
            Mode::Check | Mode::Move => {
                let by = i128::from(take.hits()).max(-self.unleased(take.key_values()));
                self.moves.push((take.key_values().clone(), by));
            }
        }
    }

    /// Every window that counts an entry, shown or not, with its limit and how many tokens a bucket can miss at most.
    fn windows(&self, take: &Take) -> Vec<(GroupKey, Limit, u64)> {
        if let Some(limit) = take.limit() {
            let key = GroupKey::Request { key_values: take.key_values().clone(), per: limit.per().0 };
            return vec![(key, Limit::AtMost(limit.limit()), u64::MAX)];
        }
        let mut windows = Vec::new();
        for rule in self.rules_for(take.key_values()).filter(|rule| rule.terms.window.is_some()) {
            let name = &rule.terms.name;
            for own in rule.overrides_for(take.key_values()).filter(|item| !rule.is_exact(item)) {
                let key = GroupKey::Own { rule: name.clone(), name: own.item.name.clone() };
                windows.push((key, own.item.limit, rule.most_missing(Some(own))));
            }
            let values = rule.group(take.key_values()).expect("the rule applies");
            let (rate, most) = (rule.rate(&values), rule.most_missing(rule.exact(&values)));
            windows.push((GroupKey::Group { rule: name.clone(), values }, rate, most));
        }
        windows
    }

    /// The limits that apply to an entry, in the order of an answer.
    fn applied(&self, place: usize, take: &Take) -> Vec<ApplicableLimit> {
        let entry = u32::try_from(place).expect("entries are few");
        if let Some(limit) = take.limit() {
            let shape = Shape::Fixed(limit.per().0);
            let key = GroupKey::Request { key_values: take.key_values().clone(), per: limit.per().0 };
            return vec![ApplicableLimit {
                status: AppliedLimit {
                    entry,
                    per: Some(limit.per()),
                    refill: None,
                    status: unused(take.key_values().clone(), Limit::AtMost(limit.limit())),
                },
                source: Source::Window { key, shape },
                is_relaxed: true,
                rate: Limit::AtMost(limit.limit()),
                is_closed: limit.limit() == 0,
            }];
        }
        let mut applied = Vec::new();
        for rule in self.rules_for(take.key_values()) {
            let overrides: Vec<&Override> = rule.overrides_for(take.key_values()).collect();
            if overrides.is_empty() {
                let group = rule.group(take.key_values()).expect("the rule applies");
                applied.push(rule.applied(entry, group, None));
            }
            for item in overrides {
                applied.push(rule.applied(entry, item.item.key_values.clone(), Some(item)));
            }
        }
        applied.sort_by(|a, b| {
            let key = |applied: &ApplicableLimit| {
                (applied.status.rule.clone(), applied.status.override_name.clone())
            };
            key(a).cmp(&key(b))
        });
        applied
    }

    pub(super) fn rules_for(&self, key_values: &KeyValues) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(move |rule| rule.applies_to(key_values))
    }

    fn reading(&self, applied: &ApplicableLimit, now: u64) -> Reading {
        match &applied.source {
            Source::InUse { rule, within } => {
                let rule = self.rules.iter().find(|other| other.terms.name == *rule).expect("it applies");
                let counters = self.counters().into_iter().filter(|counter| {
                    rule.applies_to(&counter.key_values) && select::contains(&counter.key_values, within)
                });
                let used = counters.map(|counter| counter.counters).sum();
                Reading { used: Range::exactly(used), reset: Range::exactly(NEVER) }
            }
            Source::Window { key, shape } => self.history(key).show(*shape, now),
        }
    }

    /// The limit of a group, and what it shows.
    pub(super) fn group_reading(
        &self,
        rule: &Rule,
        group: KeyValues,
        item: Option<&Override>,
        now: u64,
    ) -> (Limit, Reading) {
        let applied = rule.applied(0, group, item);
        (applied.status.limit, self.reading(&applied, now))
    }

    /// When so many hits would fit, together with those of earlier entries. Nobody knows when what is in use will be given back.
    fn retry(&self, applied: &ApplicableLimit, now: u64, earlier: &[(GroupKey, i64)], hits: i64) -> Range {
        match (&applied.source, applied.status.limit) {
            _ if hits <= 0 || applied.status.limit == Limit::Unlimited => Range::exactly(0),
            (Source::Window { key, shape }, Limit::AtMost(limit)) if !applied.is_closed => {
                let before: Vec<i64> =
                    earlier.iter().filter(|(other, _)| other == key).map(|(_, hits)| *hits).collect();
                // After something is given back, the time is not known.
                if before.iter().any(|hits| *hits < 0) {
                    return Range::exactly(NEVER);
                }
                let mut history = self.history(key);
                // A group that was never used is refilled like any other.
                history.set_rate(now, applied.rate);
                history.retry(*shape, now, &before, hits, limit)
            }
            (Source::Window { .. }, _) => Range::exactly(NEVER),
            (Source::InUse { .. }, _) => Range::exactly(0),
        }
    }

    fn history(&self, key: &GroupKey) -> History {
        self.groups.get(key).cloned().unwrap_or_default()
    }
}

impl Rule {
    fn applied(&self, entry: u32, group: KeyValues, item: Option<&Override>) -> ApplicableLimit {
        let terms = &self.terms;
        let limit = item.map_or(terms.limit, |item| item.item.limit);
        let shown = match (terms.window, limit, item) {
            (_, Limit::Unlimited | Limit::AtMost(0), _) => limit,
            (Some(Window::Bucket { .. }), Limit::AtMost(limit), Some(item)) => {
                Limit::AtMost(item.item.burst.unwrap_or(limit))
            }
            (Some(Window::Bucket { burst, .. }), Limit::AtMost(limit), None) => {
                Limit::AtMost(burst.unwrap_or(limit))
            }
            _ => limit,
        };
        let source = match terms.window {
            None => Source::InUse { rule: terms.name.clone(), within: group.clone() },
            Some(window) => {
                let rule = terms.name.clone();
                let key = match item {
                    Some(item) if !self.is_exact(item) => {
                        GroupKey::Own { rule, name: item.item.name.clone() }
                    }
                    _ => GroupKey::Group { rule, values: group.clone() },
                };
                Source::Window { key, shape: Shape::of(window) }
            }
        };
        ApplicableLimit {
            status: AppliedLimit {
                entry,
                per: terms.window.map(|window| window.per()),
                refill: match (terms.window, limit) {
                    (Some(Window::Bucket { .. }), Limit::AtMost(limit)) => Some(limit),
                    _ => None,
                },
                status: LimitStatus {
                    rule: Some(terms.name.clone()),
                    override_name: item.map(|item| item.item.name.clone()),
                    shadow: terms.shadow,
                    ..unused(group, shown)
                },
            },
            source,
            is_relaxed: match terms.durability {
                Some(durability) => durability == Durability::Relaxed,
                None => terms.window.is_some(),
            },
            rate: limit,
            is_closed: limit == Limit::AtMost(0),
        }
    }
}

impl Found {
    fn exceeds(&self, used: u64) -> bool {
        match (self.mode, self.status.limit) {
            (_, Limit::Unlimited) => false,
            // A look asks whether more is used than the limit allows.
            (EntryMode::Look, Limit::AtMost(limit)) => used > limit,
            _ if self.is_closed => self.hits > 0,
            (_, Limit::AtMost(limit)) if self.hits > 0 => {
                u128::from(used) + u128::from(self.hits.unsigned_abs()) > u128::from(limit)
            }
            _ => false,
        }
    }

    /// Whether the answer may show this.
    fn shows(&self, shown: &AppliedLimit) -> bool {
        let LimitStatus { used, reset_ms, exceeded, .. } = shown.status;
        let remaining = remaining(self.status.limit, used);
        let status = LimitStatus { used, remaining, reset_ms, exceeded, ..self.status.status.clone() };
        let may_be = if exceeded { self.exceeds(self.used.1) } else { !self.exceeds(self.used.0) };
        // Where it is not known how much was used before, the answer shows it, and that decides.
        let is_known = self.used.0 == self.used.1;
        let shown_before = self.taken.and_then(|taken| used.checked_sub(taken)).filter(|_| !is_known);
        let may_be = may_be && shown_before.is_none_or(|before| self.exceeds(before) == exceeded);
        (AppliedLimit { status, ..self.status.clone() }) == *shown
            && may_be
            && self.after.used.contains(used)
            && self.after.reset.contains(reset_ms.map_or(NEVER, |reset| reset.0))
    }
}

/// A limit without a name of which nothing is used.
fn unused(group: KeyValues, limit: Limit) -> LimitStatus {
    LimitStatus {
        rule: None,
        override_name: None,
        group,
        limit,
        used: 0,
        remaining: None,
        reset_ms: None,
        shadow: false,
        exceeded: false,
        waiting: 0,
    }
}

/// When all limits would let the same check pass.
fn retry_of(found: &[Found]) -> Range {
    let enforced = || found.iter().filter(|limit| !limit.status.shadow);
    // Nobody knows when what is in use will be given back.
    let in_use = |limit: &Found| limit.status.per.is_none() && limit.exceeds(limit.used.1);
    if enforced().any(in_use) {
        return Range::exactly(NEVER);
    }
    let latest = |time: fn(&Found) -> u64| enforced().map(time).max().unwrap_or(0);
    Range(latest(|limit| limit.retry.0), latest(|limit| limit.retry.1))
}
