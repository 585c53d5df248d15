//! `check`: take from every limit that applies, or from none.

use super::{
    Limiter,
    command::{Check, Take},
    counters::Counter,
    groups::{Owner, When},
    reply::{Decision, LimitStatus, Refusal, Reply},
    state::request_meter,
    terms::Limit,
    window::{Kind, Meter, State},
};
use crate::{
    Millis, Name, Time,
    answer::{self, Room, TooLarge},
    key_values::KeyValues,
    keyed::Place,
    turn::Turn,
};
use alloc::vec::Vec;

/// What an answer says of each check, besides its limits: a whole problem document, if it was refused.
const DECISION_BYTES: usize = 512;
/// What an answer says of each limit, besides its names and its group.
const LIMIT_BYTES: usize = 320;

/// About what a stored window takes, besides its group; a crowded one takes more.
const WINDOW_BYTES: usize = 256;

/// How something is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// Counted where a limit without a window applied. Relaxed if all limits are, and `may_relax`.
    Check { dry_run: bool, may_relax: bool },
    /// Always counted.
    Counter,
    /// Always counted, and held by a lease.
    Lease,
}

/// What was decided, and whether that may be told before it is durable.
pub(super) struct Decided {
    pub(super) decision: Decision,
    pub(super) is_relaxed: bool,
}

/// A group that a check touches.
#[derive(Clone)]
struct Touch {
    entry: u32,
    rule: Option<Name>,
    override_name: Option<Name>,
    owner: Owner,
    values: KeyValues,
    /// Where the group stands, once it was looked for.
    place: Option<Place>,
    meter: Meter,
    /// It is a limit that applies; otherwise it only counts along.
    is_limit: bool,
    is_shadow: bool,
    is_durable: bool,
    exceeded: bool,
}

/// What undoes a step of a check.
enum Undo {
    Window(Owner, KeyValues, Option<State>),
    Counter(KeyValues, Counter),
}

pub(super) fn check(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    check: &Check,
    may_relax: bool,
    room: Room,
) -> Result<(Result<Reply, Refusal>, bool), TooLarge> {
    let manner = Manner::Check { dry_run: check.dry_run, may_relax };
    let Decided { decision, is_relaxed } = decide(limiter, turn, &check.entries, manner, room)?;
    Ok((verdict(decision).map(Reply::Allowed), is_relaxed))
}

pub(super) fn batch(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    checks: &[Check],
    may_relax: bool,
    mut room: Room,
) -> Result<(Reply, bool), TooLarge> {
    // Which limits apply depends on the rules alone, so all of it is known before the first check takes anything.
    let collected = checks.iter().map(|check| Touches::of(limiter, &check.entries, &mut room));
    let collected: Vec<Touches> = collected.collect::<Result<_, _>>()?;
    let mut all_relaxed = true;
    let decisions = checks.iter().zip(collected).map(|(check, touches)| {
        let manner = Manner::Check { dry_run: check.dry_run, may_relax };
        let Decided { decision, is_relaxed } = decide_all(limiter, turn, &check.entries, touches, manner);
        all_relaxed &= is_relaxed;
        decision
    });
    let decisions = decisions.collect();
    Ok((Reply::Batch(decisions), all_relaxed))
}

fn verdict(decision: Decision) -> Result<Decision, Refusal> {
    if decision.allowed { Ok(decision) } else { Err(Refusal::LimitReached(decision)) }
}

pub(super) fn move_counter(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    key_values: &KeyValues,
    by: i64,
    room: Room,
) -> Result<Result<Reply, Refusal>, TooLarge> {
    let decision = if by < 0 {
        give_back(limiter, turn, key_values, by.unsigned_abs());
        Ok(nothing_asked())
    } else {
        let entry = Take { key_values: key_values.clone(), hits: by, limit: None };
        verdict(decide(limiter, turn, core::slice::from_ref(&entry), Manner::Counter, room)?.decision)
    };
    Ok(decision.map(|decision| Reply::Moved { counter: limiter.counter(key_values), decision }))
}

pub(super) fn set_counter(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    key_values: &KeyValues,
    to: i64,
) -> Reply {
    let leased = limiter.counters.get(key_values).leased;
    turn.advance();
    limiter.set_counter(turn, key_values, u64::try_from(to).unwrap_or(0), leased);
    Reply::Counter(limiter.counter(key_values))
}

/// The decision where no limit was asked.
pub(super) fn nothing_asked() -> Decision {
    Decision { allowed: true, limits: Vec::new(), retry_after: None }
}

/// Gives back at most what is there and not leased.
fn give_back(limiter: &mut Limiter, turn: &mut Turn<'_>, key_values: &KeyValues, hits: u64) {
    let counter = limiter.counters.get(key_values);
    let unleased = counter.unleased.saturating_sub(hits);
    if unleased != counter.unleased {
        turn.advance();
        limiter.set_counter(turn, key_values, unleased, counter.leased);
    }
}

/// Every group that the entries of a check touch, and for each entry where its own end.
struct Touches {
    touches: Vec<Touch>,
    ends: Vec<usize>,
}

impl Touches {
    fn of(limiter: &Limiter, entries: &[Take], room: &mut Room) -> Result<Touches, TooLarge> {
        room.take(DECISION_BYTES)?;
        let mut touches = Vec::with_capacity(entries.len());
        let mut ends = Vec::with_capacity(entries.len());
        for (number, entry) in entries.iter().enumerate() {
            collect(limiter, number as u32, entry, &mut touches, room)?;
            ends.push(touches.len());
        }
        Ok(Touches { touches, ends })
    }
}

/// Decides all entries together, if there is room for the answer.
pub(super) fn decide(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    entries: &[Take],
    manner: Manner,
    mut room: Room,
) -> Result<Decided, TooLarge> {
    let touches = Touches::of(limiter, entries, &mut room)?;
    Ok(decide_all(limiter, turn, entries, touches, manner))
}

/// Decides all entries together, one after another: a later one sees what an earlier one takes. If one is refused,
/// nothing of any of them stays.
fn decide_all(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    entries: &[Take],
    touches: Touches,
    manner: Manner,
) -> Decided {
    let now = turn.now;
    let Touches { mut touches, ends } = touches;
    let is_relaxed = match manner {
        Manner::Check { may_relax, .. } => may_relax && touches.iter().all(|touch| !touch.is_durable),
        Manner::Counter | Manner::Lease => false,
    };
    let is_dry = matches!(manner, Manner::Check { dry_run: true, .. });
    let when = if is_relaxed { When::Soon } else { When::Now };

    let mut is_refused = false;
    let (mut is_window_moved, mut is_counter_moved) = (false, false);
    // One entry is moved only when nothing refuses it. Of several, an earlier one may have to be undone.
    let mut undo = (entries.len() > 1).then(Vec::new);
    let mut begin = 0;
    for (entry, end) in entries.iter().zip(ends) {
        let own = &mut touches[begin..end];
        begin = end;
        let hits = u64::try_from(entry.hits).unwrap_or(0);
        let mut refuses = false;
        for touch in own.iter_mut() {
            touch.place = limiter.groups.find(touch.owner, touch.values.as_bytes());
            if !touch.is_limit {
                continue;
            }
            let state = state_at(limiter, touch.place);
            touch.exceeded = touch.meter.exceeds(state, now, hits);
            if touch.exceeded && !touch.is_shadow {
                refuses = true;
            }
        }
        is_refused |= refuses;
        if !refuses && entry.hits != 0 && (!is_dry || undo.is_some()) {
            is_window_moved |= own.iter().any(|touch| !touch.is_count());
            is_counter_moved |= move_all(limiter, turn, entry, own, manner, when, undo.as_mut());
        }
    }
    if is_refused || is_dry {
        for step in undo.into_iter().flatten().rev() {
            match step {
                Undo::Window(owner, values, before) => {
                    limiter.groups.restore(owner, &values, before, turn.namespace, turn.changes);
                }
                Undo::Counter(key_values, before) => {
                    limiter.set_counter(turn, &key_values, before.unleased, before.leased);
                }
            }
        }
    } else if is_counter_moved || (is_window_moved && !is_relaxed) {
        turn.advance();
    }
    if is_window_moved && !is_refused && !is_dry {
        limiter.look_after_windows(turn);
    }
    let retry_after = if is_refused { retry_after(limiter, now, entries, &touches) } else { None };
    let limits = statuses(limiter, now, touches, entries.len() > 1);
    Decided { decision: Decision { allowed: !is_refused, limits, retry_after }, is_relaxed }
}

/// When every limit would let the same entries pass; none if one never would, or if that is not known, as where an
/// earlier entry gives back to the same group.
fn retry_after(limiter: &Limiter, now: Time, entries: &[Take], touches: &[Touch]) -> Option<Millis> {
    let mut longest = Millis(0);
    for touch in touches.iter().filter(|touch| touch.is_limit && !touch.is_shadow) {
        // Where nothing is taken, or without bound, everything passes, whatever earlier entries do.
        let Ok(mut hits @ 1..) = u64::try_from(entries[touch.entry as usize].hits) else { continue };
        if touch.meter.limit == Limit::Unlimited {
            continue;
        }
        // What earlier entries take from the same group is taken then as well.
        for other in touches.iter().take_while(|other| other.entry < touch.entry) {
            if other.owner == touch.owner && other.values == touch.values {
                hits += u64::try_from(entries[other.entry as usize].hits).ok()?;
            }
        }
        let place = limiter.groups.find(touch.owner, touch.values.as_bytes());
        longest = longest.max(touch.meter.passes_after(state_at(limiter, place), now, hits)?);
    }
    Some(longest)
}

/// Every group that an entry touches, the limits in the order in which they are shown. Collecting ends where the answer
/// has no room for one more limit.
fn collect(
    limiter: &Limiter,
    entry: u32,
    take: &Take,
    touches: &mut Vec<Touch>,
    room: &mut Room,
) -> Result<(), TooLarge> {
    let key_values = &take.key_values;
    if let Some(given) = take.limit {
        room.take(LIMIT_BYTES + answer::text(key_values.as_bytes()))?;
        touches.push(Touch {
            entry,
            rule: None,
            override_name: None,
            owner: Owner::Request(given.per),
            values: key_values.clone(),
            place: None,
            meter: request_meter(Limit::AtMost(given.limit), given.per),
            is_limit: true,
            is_shadow: false,
            is_durable: false,
            exceeded: false,
        });
        return Ok(());
    }
    let first = touches.len();
    let mut scratch = Vec::new();
    let mut fits = Ok(());
    limiter.rules.matching(key_values, |rule, group| {
        if !rule.is_active || fits.is_err() {
            return;
        }
        // The names stand in the answer twice where the limit refuses.
        let rule_bytes = LIMIT_BYTES + 2 * answer::text(rule.terms().name.as_bytes());
        let generation = rule.stored.generation;
        let own = Touch {
            entry,
            rule: Some(rule.terms().name.clone()),
            override_name: None,
            owner: Owner::Rule(generation),
            values: KeyValues::from_projected(group),
            place: None,
            meter: rule.meter(),
            is_limit: true,
            is_shadow: rule.terms().shadow,
            is_durable: rule.is_durable(),
            exceeded: false,
        };
        if rule.overrides.is_empty() {
            fits = room.take(rule_bytes + answer::text(own.values.as_bytes()));
            touches.push(own);
            return;
        }
        let mut is_overridden = false;
        let mut is_group_touched = false;
        for item in rule.overrides.applying(key_values, &mut scratch).filter(|item| item.is_active) {
            is_overridden = true;
            let terms = &item.stored.terms;
            let override_bytes = 2 * answer::text(terms.name.as_bytes());
            fits = room.take(rule_bytes + override_bytes + answer::text(terms.key_values.as_bytes()));
            if fits.is_err() {
                return;
            }
            let is_exact = rule.is_exact(&terms.key_values);
            is_group_touched |= is_exact;
            touches.push(Touch {
                entry,
                rule: own.rule.clone(),
                override_name: Some(terms.name.clone()),
                owner: if is_exact {
                    Owner::Rule(generation)
                } else {
                    Owner::Override { generation, id: item.stored.id }
                },
                values: terms.key_values.clone(),
                meter: rule.override_meter(item),
                ..own.clone()
            });
        }
        if !is_group_touched {
            if !is_overridden {
                fits = room.take(rule_bytes + answer::text(own.values.as_bytes()));
            }
            touches.push(Touch { is_limit: !is_overridden, ..own });
        }
    });
    touches[first..].sort_unstable_by(|a, b| a.order().cmp(&b.order()));
    fits
}

impl Touch {
    fn order(&self) -> (Option<&Name>, Option<&Name>) {
        (self.rule.as_ref(), self.override_name.as_ref())
    }

    fn is_count(&self) -> bool {
        matches!(self.meter.kind, Kind::Count)
    }
}

fn state_at(limiter: &Limiter, place: Option<Place>) -> Option<&State> {
    limiter.groups.at(place?).map(|(_, state)| state)
}

/// Says whether a counter was changed.
fn move_all(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    entry: &Take,
    touches: &mut [Touch],
    manner: Manner,
    when: When,
    mut undo: Option<&mut Vec<Undo>>,
) -> bool {
    let hits = entry.hits.unsigned_abs();
    for touch in touches.iter_mut().filter(|touch| !touch.is_count()) {
        if let Some(undo) = undo.as_deref_mut() {
            let before = state_at(limiter, touch.place).cloned();
            undo.push(Undo::Window(touch.owner, touch.values.clone(), before));
        }
        let place = match touch.place {
            Some(place) => place,
            // There is nothing to give back.
            None if entry.hits < 0 => continue,
            None => limiter.groups.insert(touch.owner, &touch.values, touch.meter.initial()),
        };
        touch.place = Some(place);
        if when == When::Now {
            turn.changes.will_write(WINDOW_BYTES + touch.values.as_bytes().len());
        }
        let state = limiter.groups.change(place, when);
        match entry.hits < 0 {
            true => touch.meter.give_back(state, turn.now, hits),
            false => touch.meter.take(state, turn.now, hits),
        }
    }
    let is_counted = !matches!(manner, Manner::Check { .. }) || touches.iter().any(|touch| touch.is_count());
    if !is_counted {
        return false;
    }
    let key_values = &entry.key_values;
    let before = limiter.counters.get(key_values);
    if let Some(undo) = undo {
        undo.push(Undo::Counter(key_values.clone(), before));
    }
    let (unleased, leased) = match manner {
        _ if entry.hits < 0 => (before.unleased.saturating_sub(hits), before.leased),
        Manner::Lease => (before.unleased, before.leased + u128::from(hits)),
        _ => (before.unleased.saturating_add(hits).min(Counter::MAX_UNLEASED), before.leased),
    };
    limiter.set_counter(turn, key_values, unleased, leased);
    (unleased, leased) != (before.unleased, before.leased)
}

/// What is shown of every limit. Where something may have been undone, groups are looked for again.
fn statuses(limiter: &Limiter, now: Time, touches: Vec<Touch>, look_again: bool) -> Vec<LimitStatus> {
    let limits = touches.into_iter().filter(|touch| touch.is_limit);
    limits
        .map(|touch| {
            let place = match look_again || touch.is_count() {
                true => limiter.groups.find(touch.owner, touch.values.as_bytes()),
                false => touch.place,
            };
            let state = state_at(limiter, place);
            LimitStatus {
                entry: touch.entry,
                limit: touch.meter.shown_limit(),
                used: touch.meter.used(state, now),
                reset: touch.meter.resets_after(state, now),
                per: touch.meter.per(),
                rule: touch.rule,
                override_name: touch.override_name,
                group: touch.values,
                shadow: touch.is_shadow,
                exceeded: touch.exceeded,
            }
        })
        .collect()
}
