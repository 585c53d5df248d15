//! Decides checks: every limit that applies is read before and after, for every possible history of its window.

mod sets;

use super::{
    GroupKey, Lease, Limiter,
    rules::{Override, Rule},
    select,
    window::{History, NEVER, Range, Reading, Shape},
};
use crate::model::{Branch, Changed, Order};
use limina_engine::{
    KeyValues, Millis, Name,
    limiter::{Decision, Durability, Limit, LimitStatus, MAX_COUNT, Take, Window},
};
use std::collections::BTreeMap;

/// A check to be decided.
pub(super) struct Case<'a> {
    pub(super) now: u64,
    pub(super) entries: &'a [Take],
    pub(super) dry_run: bool,
    /// It is counted whatever the limits say.
    pub(super) report: bool,
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

/// One possible decision.
pub(super) struct Decided {
    pub(super) way: Branch<Limiter>,
    pub(super) allowed: bool,
    /// The decision as answered; without an answer, a possible one.
    pub(super) decision: Decision,
}

/// A limit that applies to an entry.
struct Applied {
    /// Its status as an answer shows it, with nothing used yet.
    status: LimitStatus,
    source: Source,
    is_relaxed: bool,
    /// The rate at which a bucket is refilled.
    rate: Limit,
    /// A limit of 0 lets nothing pass, not even a burst.
    is_closed: bool,
}

impl Applied {
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

/// A limit, with what it shows in each of its possible histories.
struct Found {
    applied: Applied,
    hits: i64,
    /// No other entry of the check uses this limit.
    is_alone: bool,
    /// An earlier entry that uses this limit may be refused. Whether this entry then sees its effect is not specified.
    is_open: bool,
    possible: Vec<Said>,
}

struct Said {
    /// Before the check.
    unmoved: Reading,
    /// When this entry is decided.
    used: Range,
    /// After the whole check.
    after: Reading,
    /// When this limit alone would let it pass.
    retry: Range,
}

impl Limiter {
    pub(super) fn decide(
        &self,
        order: Order,
        case: &Case<'_>,
        answer: Option<&Decision>,
    ) -> Result<Vec<Decided>, String> {
        let applied: Vec<Vec<Applied>> =
            case.entries.iter().enumerate().map(|(place, take)| self.applied(place, take)).collect();
        let is_relaxed = self.is_relaxed(case);
        let (found, moved) = self.find(case, applied, !is_relaxed);
        let changed = self.changed_to(&moved, case, &found);

        let mut ways = Vec::new();
        let mut expected = Vec::new();
        let can_refuse = found.iter().any(|limit| limit.can_refuse());
        let can_allow = !found.iter().any(Found::must_refuse);
        for allowed in [true, false] {
            if !(if allowed { can_allow } else { can_refuse }) {
                continue;
            }
            let takes = (allowed || case.report) && !case.dry_run;
            let decision = match answer {
                Some(answer) => answer.clone(),
                None => example(&found, case.report, allowed, takes),
            };
            // Without an answer, a report says nothing about the histories that are possible.
            let fitting = if answer.is_some() {
                fitting(&found, case.report, &decision, allowed, takes)
            } else {
                allowing(&found, allowed && !case.report)
            };
            let Some(fitting) = fitting else {
                expected.push(format!("{:?}", example(&found, case.report, allowed, takes)));
                continue;
            };
            let mut state = if takes { moved.clone() } else { self.clone() };
            for (key, fits) in fitting {
                if let Some(histories) = state.groups.get_mut(&key) {
                    let mut fits = fits.into_iter();
                    histories.retain(|_| fits.next().unwrap_or(true));
                }
            }
            let changed = if takes { changed } else { Changed::No };
            let mut order = order;
            if changed != Changed::No {
                order.grow(u64::from(changed == Changed::Yes && !is_relaxed));
            }
            ways.push(Decided { way: Branch { state, order, changed, is_relaxed }, allowed, decision });
        }
        if ways.is_empty() { Err(expected.join("\n   or:    ")) } else { Ok(ways) }
    }

    /// Whether the answer may come before it is durable.
    pub(super) fn is_relaxed(&self, case: &Case<'_>) -> bool {
        let mut applied = case.entries.iter().flat_map(|take| self.applied(0, take));
        matches!(case.mode, Mode::Check) && !case.is_keyed && applied.all(|applied| applied.is_relaxed)
    }

    /// What every limit shows, and the state after the check.
    fn find(&self, case: &Case<'_>, applied: Vec<Vec<Applied>>, is_durable: bool) -> (Vec<Found>, Limiter) {
        let now = case.now;
        let mut moved = self.clone();
        let mut found: Vec<Found> = Vec::new();
        let mut earlier: BTreeMap<GroupKey, Vec<i64>> = BTreeMap::new();
        for (take, applied) in case.entries.iter().zip(applied) {
            let may_be_refused = found.iter().any(Found::can_refuse);
            for applied in applied {
                let unmoved = self.readings(&applied, now);
                let before = moved.readings(&applied, now);
                let taken_before = match &applied.source {
                    Source::Window { key, .. } => earlier.get(key).map_or(&[][..], |hits| hits),
                    Source::InUse { .. } => &[],
                };
                let retries = self.retries(&applied, now, taken_before, take.hits());
                let possible = unmoved.into_iter().zip(before).zip(retries);
                let possible = possible.map(|((unmoved, before), retry)| Said {
                    unmoved,
                    used: before.used,
                    after: before,
                    retry,
                });
                let possible = possible.collect();
                // After something is given back, the time of a retry is not specified.
                let is_given_back = taken_before.iter().any(|hits| *hits < 0);
                found.push(Found {
                    applied,
                    hits: take.hits(),
                    is_alone: true,
                    is_open: may_be_refused || is_given_back,
                    possible,
                });
            }
            moved.take(case, take, is_durable);
            for (key, ..) in self.windows(take) {
                earlier.entry(key).or_default().push(take.hits());
            }
        }
        for limit in &mut found {
            for (said, after) in limit.possible.iter_mut().zip(moved.readings(&limit.applied, now)) {
                said.after = after;
            }
            limit.is_alone = match &limit.applied.source {
                Source::Window { key, .. } => earlier[key].len() == 1,
                Source::InUse { .. } => case.entries.len() == 1,
            };
            limit.is_open &= !limit.is_alone;
        }
        (found, moved)
    }

    /// Takes an entry from everything that it applies to, whether it fits or not.
    fn take(&mut self, case: &Case<'_>, take: &Take, is_durable: bool) {
        let shown: Vec<GroupKey> = match case.report {
            false => Vec::new(),
            true => self.applied(0, take).into_iter().filter_map(Applied::window).collect(),
        };
        for (key, rate, burst) in self.windows(take) {
            // A report takes a limit's bucket into debt. The bucket of a rule that an override replaces has its bound.
            let burst = if shown.contains(&key) { MAX_COUNT } else { burst };
            let histories = self.groups.entry(key).or_insert_with(|| vec![History::new(case.now, rate)]);
            histories.iter_mut().for_each(|history| history.take(case.now, take.hits(), burst, is_durable));
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

    /// Whether the state is different after the check.
    fn changed_to(&self, moved: &Limiter, case: &Case<'_>, found: &[Found]) -> Changed {
        let is_asked = case.entries.iter().any(|take| take.hits() != 0);
        let total = |limiter: &Limiter| -> Vec<i128> {
            case.entries.iter().map(|take| limiter.unleased(take.key_values())).collect()
        };
        let is_moved = total(self) != total(moved)
            || self.leases.len() != moved.leases.len()
            || found
                .iter()
                .flat_map(|limit| &limit.possible)
                .any(|said| said.unmoved.used != said.after.used);
        match (is_asked, is_moved) {
            (false, _) => Changed::No,
            (true, true) => Changed::Yes,
            (true, false) if found.is_empty() && matches!(case.mode, Mode::Check) => Changed::No,
            (true, false) => Changed::Unclear,
        }
    }

    /// The limits that apply to an entry, in the order of an answer.
    fn applied(&self, place: usize, take: &Take) -> Vec<Applied> {
        let entry = u32::try_from(place).expect("entries are few");
        if let Some(limit) = take.limit() {
            let shape = Shape::Fixed(limit.per().0);
            let key = GroupKey::Request { key_values: take.key_values().clone(), per: limit.per().0 };
            return vec![Applied {
                status: LimitStatus {
                    entry,
                    rule: None,
                    override_name: None,
                    group: take.key_values().clone(),
                    limit: Limit::AtMost(limit.limit()),
                    used: 0,
                    reset: None,
                    per: Some(limit.per()),
                    refill: None,
                    shadow: false,
                    exceeded: false,
                    waiting: 0,
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
            let key = |applied: &Applied| (applied.status.rule.clone(), applied.status.override_name.clone());
            key(a).cmp(&key(b))
        });
        applied
    }

    pub(super) fn rules_for(&self, key_values: &KeyValues) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(move |rule| rule.applies_to(key_values))
    }

    /// What the limit shows, in each of its possible histories.
    fn readings(&self, applied: &Applied, now: u64) -> Vec<Reading> {
        match &applied.source {
            Source::InUse { rule, within } => {
                let rule = self.rules.iter().find(|other| other.terms.name == *rule).expect("it applies");
                let counters = self.counters().into_iter().filter(|counter| {
                    rule.applies_to(&counter.key_values) && select::contains(&counter.key_values, within)
                });
                let used = counters.map(|counter| counter.total).sum();
                vec![Reading { used: Range::exactly(used), reset: Range::exactly(NEVER) }]
            }
            Source::Window { key, shape } => {
                self.histories(key).iter().map(|history| history.show(*shape, now)).collect()
            }
        }
    }

    /// The limit of a group, and what it shows in each of its possible histories.
    pub(super) fn group_readings(
        &self,
        rule: &Rule,
        group: KeyValues,
        item: Option<&Override>,
        now: u64,
    ) -> (Limit, Vec<Reading>) {
        let applied = rule.applied(0, group, item);
        (applied.status.limit, self.readings(&applied, now))
    }

    fn retries(&self, applied: &Applied, now: u64, before: &[i64], hits: i64) -> Vec<Range> {
        match (&applied.source, applied.status.limit) {
            (Source::Window { key, shape }, Limit::AtMost(limit)) if hits > 0 && !applied.is_closed => {
                let mut histories = self.histories(key);
                // A group that was never used is refilled like any other.
                histories.iter_mut().for_each(|history| history.set_rate(now, applied.rate));
                histories.iter().map(|history| history.retry(*shape, now, before, hits, limit)).collect()
            }
            (Source::Window { key, .. }, _) => vec![Range::exactly(NEVER); self.histories(key).len()],
            (Source::InUse { .. }, _) => vec![Range::exactly(NEVER)],
        }
    }

    fn histories(&self, key: &GroupKey) -> Vec<History> {
        self.groups.get(key).cloned().unwrap_or_else(|| vec![History::default()])
    }
}

impl Rule {
    fn applied(&self, entry: u32, group: KeyValues, item: Option<&Override>) -> Applied {
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
        Applied {
            status: LimitStatus {
                entry,
                rule: Some(terms.name.clone()),
                override_name: item.map(|item| item.item.name.clone()),
                group,
                limit: shown,
                used: 0,
                reset: None,
                per: terms.window.map(|window| window.per()),
                refill: match (terms.window, limit) {
                    (Some(Window::Bucket { .. }), Limit::AtMost(limit)) => Some(limit),
                    _ => None,
                },
                shadow: terms.shadow,
                exceeded: false,
                waiting: 0,
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
        match self.applied.status.limit {
            Limit::AtMost(_) if self.applied.is_closed => self.hits > 0,
            Limit::AtMost(limit) if self.hits > 0 => {
                u128::from(used) + u128::from(self.hits.unsigned_abs()) > u128::from(limit)
            }
            _ => false,
        }
    }

    fn can_refuse(&self) -> bool {
        !self.applied.status.shadow && self.possible.iter().any(|said| self.exceeds(said.used.1))
    }

    fn must_refuse(&self) -> bool {
        !self.applied.status.shadow && self.possible.iter().all(|said| self.exceeds(said.used.0))
    }

    /// Whether this answer is possible with this history.
    fn fits(&self, said: &Said, status: &LimitStatus, takes: bool) -> bool {
        let reading = if takes { said.after } else { said.unmoved };
        let reset = status.reset.map_or(NEVER, |reset| reset.0);
        let is_shown = reading.used.contains(status.used) && reading.reset.contains(reset);
        let may_exceed = if status.exceeded { self.exceeds(said.used.1) } else { !self.exceeds(said.used.0) };
        // The answer shows what was used before, and that decides, even if other histories were possible.
        let before =
            if takes { status.used.checked_sub(self.hits.unsigned_abs()) } else { Some(status.used) };
        let is_tied = self.is_alone && self.hits > 0 && self.applied.status.limit != Limit::Unlimited;
        let agrees = !is_tied || before.is_some_and(|before| self.exceeds(before) == status.exceeded);
        is_shown && agrees && (may_exceed || self.is_open)
    }
}

/// For each window, which of its histories agree with the answer. `None` if there is a limit that no history agrees
/// with.
fn fitting(
    found: &[Found],
    report: bool,
    answer: &Decision,
    allowed: bool,
    takes: bool,
) -> Option<BTreeMap<GroupKey, Vec<bool>>> {
    let refuses = |status: &LimitStatus| status.exceeded && !status.shadow;
    if answer.allowed != allowed
        || answer.reported != report
        || answer.limits.len() != found.len()
        || answer.limits.iter().any(refuses) == allowed
        || ((allowed || report) && answer.retry_after.is_some())
    {
        return None;
    }
    let retry = answer.retry_after.map_or(NEVER, |span| span.0);
    let mut all = BTreeMap::new();
    let mut is_retry_due = allowed || report || found.iter().any(|limit| limit.is_open);
    for (limit, status) in found.iter().zip(&answer.limits) {
        let LimitStatus { used, reset, exceeded, .. } = *status;
        if (LimitStatus { used, reset, exceeded, ..limit.applied.status.clone() }) != *status {
            return None;
        }
        // Each limit that refuses can be retried by then, and one of them not before.
        let is_asked = refuses(status) && !limit.is_open && !report;
        let fits = |said: &Said| limit.fits(said, status, takes) && (!is_asked || said.retry.0 <= retry);
        let fits: Vec<bool> = limit.possible.iter().map(fits).collect();
        if !fits.contains(&true) {
            return None;
        }
        let said = limit.possible.iter().zip(&fits).filter(|(_, fits)| **fits);
        is_retry_due |= is_asked && said.into_iter().any(|(said, _)| said.retry.contains(retry));
        note(&mut all, limit, fits);
    }
    let is_empty = all.values().any(|fits: &Vec<bool>| !fits.contains(&true));
    (is_retry_due && !is_empty).then_some(all)
}

/// Without an answer: if the check was allowed, no limit can have had to refuse.
fn allowing(found: &[Found], allowed: bool) -> Option<BTreeMap<GroupKey, Vec<bool>>> {
    let mut all = BTreeMap::new();
    for limit in found.iter().filter(|limit| allowed && !limit.applied.status.shadow) {
        note(&mut all, limit, limit.possible.iter().map(|said| !limit.exceeds(said.used.0)).collect());
    }
    let is_empty = all.values().any(|fits: &Vec<bool>| !fits.contains(&true));
    (!is_empty).then_some(all)
}

fn note(all: &mut BTreeMap<GroupKey, Vec<bool>>, limit: &Found, fits: Vec<bool>) {
    let Source::Window { key, .. } = &limit.applied.source else { return };
    let noted = all.entry(key.clone()).or_insert_with(|| vec![true; fits.len()]);
    noted.iter_mut().zip(fits).for_each(|(noted, fits)| *noted &= fits);
}

/// One answer that would be correct.
fn example(found: &[Found], report: bool, allowed: bool, takes: bool) -> Decision {
    let millis = |span: u64| (span != NEVER).then_some(Millis(span));
    let limits = found.iter().map(|limit| {
        let said = &limit.possible[0];
        let reading = if takes { said.after } else { said.unmoved };
        let (used, reset) = (reading.used.0, millis(reading.reset.0));
        let exceeded = limit.exceeds(said.used.0);
        LimitStatus { used, reset, exceeded, ..limit.applied.status.clone() }
    });
    let limits: Vec<LimitStatus> = limits.collect();
    let refusing = found.iter().zip(&limits).filter(|(_, status)| status.exceeded && !status.shadow);
    let retry = refusing.map(|(limit, _)| limit.possible[0].retry.0).max().unwrap_or(NEVER);
    let retry_after = millis(retry).filter(|_| !allowed && !report);
    Decision { allowed, reported: report, limits, retry_after }
}
