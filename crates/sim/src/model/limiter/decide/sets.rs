//! Decides sets of checks. The answer says which limits were exceeded, and so which entries refuse. All else follows from that:
//! what each entry saw when it was asked, and what counts in the end.

use super::{Case, Found, Limiter, Mode, NEVER, note};
use crate::model::{Branch, Changed, Order, limiter::window::Reading};
use limina_engine::limiter::{CheckSet, Decision, EntryMode, Limit, LimitStatus, Take};
use std::collections::{BTreeMap, BTreeSet};

/// A limit that applies to an entry, with what it shows in each of its possible histories.
struct Asked {
    entry: usize,
    limit: Found,
    /// Before the set.
    unmoved: Vec<Reading>,
    /// When the entry is asked.
    before: Vec<Reading>,
    /// After the whole set.
    after: Vec<Reading>,
}

/// Whether each entry refuses.
type Refusals = Vec<bool>;

impl Limiter {
    /// All states that the set may lead to and that agree with the answer; or the expected answer.
    pub(in crate::model::limiter) fn decide_set(
        &self,
        now: u64,
        order: Order,
        set: &CheckSet,
        is_keyed: bool,
        answer: Option<&Decision>,
    ) -> Result<Vec<Branch<Limiter>>, String> {
        let entries = set.entries();
        let all = (0..1_u32 << entries.len())
            .map(|bits| (0..entries.len()).map(|i| (bits >> i) & 1 == 1).collect());
        let possible: Vec<Refusals> = match answer {
            Some(answer) => vec![refusals(answer, entries.len())],
            None => all.collect(),
        };
        let mut ways = Vec::new();
        let mut expected = Vec::new();
        for refused in possible {
            let is_allowed = is_allowed(set, &refused);
            let (asked, mut after) = self.ask_set(now, set, is_keyed, &refused);
            let shown: Vec<_> = asked.iter().map(Asked::shown).collect();
            if let Some(answer) = answer
                && (answer.allowed != is_allowed
                    || answer.reported
                    || answer.retry_after.is_some()
                    || answer.limits.len() != asked.len())
            {
                expected.push(format!("allowed: {is_allowed}, without a time, {shown:?}"));
                continue;
            }
            let mut fitting = BTreeMap::new();
            let fits = asked.iter().enumerate().all(|(place, asked)| {
                let mode = set.mode(asked.entry);
                let fits = match answer {
                    Some(answer) => asked.fitting(mode, &answer.limits[place]),
                    None => asked.possible(mode, refused[asked.entry]),
                };
                let is_one = fits.contains(&true);
                note(&mut fitting, &asked.limit, fits);
                is_one
            });
            // An entry refuses because of a limit.
            let can_refuse = |entry: usize| {
                let own = asked.iter().filter(|asked| asked.entry == entry);
                own.into_iter().any(|asked| asked.can_refuse(set.mode(entry)))
            };
            let is_possible = (0..entries.len()).all(|entry| !refused[entry] || can_refuse(entry));
            if !fits || !is_possible || fitting.values().any(|fits| !fits.contains(&true)) {
                expected.push(format!("one of {shown:?}"));
                continue;
            }
            let changed = self.set_changed_to(set, &refused, &asked, &after);
            for (key, fits) in fitting {
                if let Some(histories) = after.groups.get_mut(&key) {
                    let mut fits = fits.into_iter();
                    histories.retain(|_| fits.next().unwrap_or(true));
                }
            }
            let is_relaxed = !is_keyed && asked.iter().all(|asked| asked.limit.applied.is_relaxed);
            let mut order = order;
            if changed != Changed::No {
                order.grow(u64::from(changed == Changed::Yes && !is_relaxed));
            }
            ways.push(Branch { state: after, order, changed, is_relaxed });
        }
        if ways.is_empty() { Err(expected.join("\n   or:    ")) } else { Ok(ways) }
    }

    /// What every limit shows when its entry is asked, and the state after the set, if these entries refuse.
    fn ask_set(&self, now: u64, set: &CheckSet, is_keyed: bool, refused: &[bool]) -> (Vec<Asked>, Limiter) {
        let entries = set.entries();
        let is_durable = is_keyed
            || entries.iter().any(|take| self.applied(0, take).iter().any(|applied| !applied.is_relaxed));
        let case = |entry: usize| Case {
            now,
            entries,
            dry_run: false,
            report: set.mode(entry) == EntryMode::Report,
            is_keyed,
            mode: Mode::Check,
        };
        let (mut asking, mut after) = (self.clone(), self.clone());
        let mut asked = Vec::new();
        for (entry, take) in entries.iter().enumerate() {
            for applied in self.applied(entry, take) {
                let before = asking.readings(&applied, now);
                let limit = Found {
                    applied,
                    hits: take.hits(),
                    is_alone: true,
                    is_open: false,
                    possible: Vec::new(),
                };
                let unmoved = self.readings(&limit.applied, now);
                asked.push(Asked { entry, limit, unmoved, before, after: Vec::new() });
            }
            if take.hits() != 0 && (!refused[entry] || set.mode(entry) == EntryMode::Report) {
                asking.take(&case(entry), take, is_durable);
            }
            if take.hits() != 0 && counts(set, refused, entry) {
                after.take(&case(entry), take, is_durable);
            }
        }
        for limit in &mut asked {
            limit.after = after.readings(&limit.limit.applied, now);
        }
        (asked, after)
    }

    fn set_changed_to(&self, set: &CheckSet, refused: &[bool], asked: &[Asked], after: &Limiter) -> Changed {
        let is_taken = |(entry, take): (usize, &Take)| take.hits() != 0 && counts(set, refused, entry);
        if !set.entries().iter().enumerate().any(is_taken) {
            return Changed::No;
        }
        let total = |limiter: &Limiter| -> Vec<i128> {
            set.entries().iter().map(|take| limiter.unleased(take.key_values())).collect()
        };
        let is_moved = total(self) != total(after) || asked.iter().any(|asked| asked.after != asked.unmoved);
        match is_moved {
            true => Changed::Yes,
            false if asked.is_empty() => Changed::No,
            false => Changed::Unclear,
        }
    }
}

impl Asked {
    /// Which histories agree with what the answer shows of this limit.
    fn fitting(&self, mode: EntryMode, status: &LimitStatus) -> Vec<bool> {
        let LimitStatus { used, reset, exceeded, .. } = *status;
        let expected = LimitStatus { used, reset, exceeded, ..self.limit.applied.status.clone() };
        let reset = reset.map_or(NEVER, |reset| reset.0);
        let all = self.before.iter().zip(&self.after);
        all.map(|(before, after)| {
            let may_be = match exceeded {
                true => self.exceeds(mode, before.used.1),
                false => !self.exceeds(mode, before.used.0),
            };
            expected == *status && may_be && after.used.contains(used) && after.reset.contains(reset)
        })
        .collect()
    }

    /// Without an answer: which histories allow that the entry refuses, or does not.
    fn possible(&self, mode: EntryMode, is_refused: bool) -> Vec<bool> {
        let is_quiet =
            |before: &Reading| self.limit.applied.status.shadow || !self.exceeds(mode, before.used.0);
        self.before.iter().map(|before| is_refused || is_quiet(before)).collect()
    }

    fn can_refuse(&self, mode: EntryMode) -> bool {
        !self.limit.applied.status.shadow
            && self.before.iter().any(|before| self.exceeds(mode, before.used.1))
    }

    /// Whether the limit is exceeded if so much is used. A look asks whether more is used than the limit allows.
    fn exceeds(&self, mode: EntryMode, used: u64) -> bool {
        match (mode, self.limit.applied.status.limit) {
            (EntryMode::Look, Limit::AtMost(limit)) => used > limit,
            (EntryMode::Look, Limit::Unlimited) => false,
            (EntryMode::Take | EntryMode::Report, _) => self.limit.exceeds(used),
        }
    }

    fn shown(&self) -> (&LimitStatus, &[Reading], &[Reading]) {
        (&self.limit.applied.status, &self.before, &self.after)
    }
}

/// Which entries refuse, as the answer shows it.
fn refusals(answer: &Decision, entries: usize) -> Refusals {
    let refusing: BTreeSet<usize> = answer
        .limits
        .iter()
        .filter(|status| status.exceeded && !status.shadow)
        .map(|status| status.entry as usize)
        .collect();
    (0..entries).map(|entry| refusing.contains(&entry)).collect()
}

/// Whether the set is allowed: no entry refuses that belongs to no alternative, and not every alternative is exhausted.
fn is_allowed(set: &CheckSet, refused: &[bool]) -> bool {
    let entries = || (0..refused.len()).map(|entry| (set.alternative(entry), refused[entry]));
    let numbers: BTreeSet<u16> = entries().filter_map(|(alternative, _)| alternative).collect();
    let is_left = |number: &u16| entries().all(|(own, refused)| own != Some(*number) || !refused);
    entries().all(|(alternative, refused)| alternative.is_some() || !refused)
        && (numbers.is_empty() || numbers.iter().any(is_left))
}

/// Whether the hits of an entry count: a report always does. Others count if the set is allowed, unless they belong to
/// an alternative that is exhausted.
fn counts(set: &CheckSet, refused: &[bool], entry: usize) -> bool {
    let own = set.alternative(entry);
    let is_exhausted =
        own.is_some() && (0..refused.len()).any(|other| set.alternative(other) == own && refused[other]);
    set.mode(entry) == EntryMode::Report || (is_allowed(set, refused) && !is_exhausted)
}
