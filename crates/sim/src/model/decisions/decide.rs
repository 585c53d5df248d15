//! How a request is decided: all parts are asked, and then all of them are made, or none.

use super::{
    Answer, Decisions, LAST, Made, Turn, entries, event_part, has_lock,
    limits::{Group, HistoryEntry, InUse, Limits},
    named, same,
};
use limina_engine::{
    Millis, Name, Position, Quota, QuotaExceeded, Request, Time,
    decisions::{Decide, Decision, HoldOfDecision, Refusal, Refused, Reply, State},
    events::{EventState, RefusedEvent},
    ledger::RefusedHold,
    limiter::{HeldBy, LimitOfCheck},
    locks::{Lock, RefusedLock},
};

/// The number of holders that an explanation shows.
const SHOWN: usize = 8;

/// The answer of the limiter to all checks of a request.
pub(super) struct LimiterAnswer {
    pub(super) is_refused: bool,
    /// The limits as they are without the request.
    pub(super) limits: Vec<LimitOfCheck>,
    /// The limits as they would be.
    pub(super) after: Vec<LimitOfCheck>,
    pub(super) retry_after: Option<u64>,
    /// The limiter after the request.
    pub(super) taken: (Limits, Vec<Vec<HistoryEntry>>),
}

/// The result of an attempt to make a decision.
pub(super) enum Attempt {
    Done(Answer),
    /// Locks or slots refuse it, and no limit would if nothing were in use. It may begin to wait if nothing else refuses it.
    Blocked {
        refusal: Refusal,
        may_wait: bool,
    },
}

impl Decisions {
    pub(super) fn decide(
        &mut self,
        turn: &mut Turn<'_>,
        request: &Request,
        wanted: &Decide,
    ) -> Option<Answer> {
        let id = wanted.operation_id().clone();
        if let Some(made) =
            self.find(turn.now, &id).map(|place| &self.made[place]).filter(|made| made.end.is_none())
        {
            return Some(match same(&made.request, wanted) {
                true => {
                    let mut decision = Decision { repeated: true, ..self.info(turn, made) };
                    if wanted.dry_run() {
                        decision.position = None;
                        decision.fencing_token = None;
                    }
                    Ok(Reply::Decided(Box::new(decision)))
                }
                false => Err(Refusal::OperationReused { operation_id: id }),
            });
        }
        if self.waits(&id) {
            return self.take_over(turn, request, wanted);
        }
        if let Some(end) = self.find(turn.now, &id).and_then(|place| self.made[place].end.as_ref()) {
            return Some(Err(Refusal::OperationAlreadyInFinalState {
                operation_id: id,
                state: Some(end.answer.state),
                position: end.answer.position,
            }));
        }
        match self.attempt_at(turn, wanted, LAST) {
            Attempt::Done(answer) => Some(answer),
            Attempt::Blocked { may_wait: true, .. } if wanted.wait() > Millis(0) && !wanted.dry_run() => {
                match self.bounds.refuses(Quota::LocksWaiting, self.waiting.len(), 1) {
                    Some(exceeded) => Some(Err(Refusal::QuotaExceeded(exceeded))),
                    None => {
                        self.join(turn, request, wanted);
                        None
                    }
                }
            }
            Attempt::Blocked { refusal, .. } => Some(Err(refusal)),
        }
    }

    /// Asks all parts, as a request at this place of the queues, and makes the decision if none refuses.
    pub(super) fn attempt_at(&mut self, turn: &mut Turn<'_>, wanted: &Decide, place: u64) -> Attempt {
        let parts = wanted.parts();
        let missing = turn.ledger.missing(&parts.holds);
        if !parts.create_missing && !missing.is_empty() {
            return Attempt::Done(Err(Refusal::LimitNotFound { limit_names: missing }));
        }
        if let Some(event) = parts.event.as_ref().filter(|event| turn.events.number(&event.stream).is_none())
        {
            return Attempt::Done(Err(Refusal::StreamNotFound { stream: event.stream.clone() }));
        }
        let is_free = |check: &&limina_engine::decisions::PartCheck| {
            check.require_match && self.limits.applying(&check.key_values).next().is_none()
        };
        if let Some(check) = parts.checks.iter().find(is_free) {
            return Attempt::Done(Err(Refusal::NoRuleApplies { key_values: check.key_values.clone() }));
        }

        let checks = entries(wanted);
        let asked = self.ask_limits(turn.now, &checks, place, false);
        let mut refused = Refused {
            holds: self.refused_holds(turn, wanted),
            locks: self.refused_locks(turn.now, wanted, place),
            event: parts.event.as_ref().and_then(|event| turn.events.refused(&event.stream, &event.event)),
            ..Refused::default()
        };
        let is_refused = !refused.holds.is_empty() || !refused.locks.is_empty() || refused.event.is_some();
        if is_refused || asked.is_refused {
            refused.limits = named(wanted, asked.limits);
            if wanted.explain() {
                self.explain(turn.now, &mut refused.limits);
            }
            let of_limits = if asked.is_refused { asked.retry_after } else { Some(0) };
            refused.retry_after = retry_after(turn.now, &refused, of_limits);
            let (full, beyond): (Vec<_>, Vec<_>) = refused
                .limits
                .iter()
                .filter(|limit| limit.refuses)
                .partition(|limit| limit.status.per.is_none());
            let may_wait = refused.holds.is_empty() && refused.event.is_none() && beyond.is_empty();
            let is_blocked = !full.is_empty() || !refused.locks.is_empty();
            let refusal = Refusal::Refused(Box::new(refused));
            return match is_blocked && self.is_possible(&checks) {
                true => Attempt::Blocked { refusal, may_wait },
                false => Attempt::Done(Err(refusal)),
            };
        }
        if let Some(exceeded) = self.exceeded(turn, wanted) {
            return Attempt::Done(Err(Refusal::QuotaExceeded(exceeded)));
        }
        let limits = named(wanted, asked.after);
        Attempt::Done(Ok(Reply::Decided(Box::new(match wanted.dry_run() {
            true => self.would_be(turn, wanted, limits),
            false => {
                self.make(turn, wanted, asked.taken);
                let made = self.made.last().expect("it was just made");
                Decision { limits, ..self.info(turn, made) }
            }
        }))))
    }

    fn make(&mut self, turn: &mut Turn<'_>, wanted: &Decide, taken: (Limits, Vec<Vec<HistoryEntry>>)) {
        let parts = wanted.parts();
        let id = wanted.operation_id();
        match parts.holds.is_empty() {
            true => {
                turn.order.advance();
            }
            false => turn.ledger.hold_part(turn.order, turn.now, id, &parts.holds),
        }
        let position = turn.order.position;
        let event = parts.event.as_ref().map(|event| {
            let stream = turn.events.number(&event.stream).expect("it exists");
            let info = turn.events.would_be(turn.now, &event.stream, &event.event).expect("it exists");
            turn.events.submit_part(turn.now, &event.stream, &event.event, position);
            (stream, info)
        });
        let (limits, mut taken) = taken;
        let counted = parts.checks.iter().map(|check| check.hits > 0 && limits.is_counted(&check.key_values));
        let counted = counted.collect();
        self.limits = limits;
        for (check, taken) in parts.checks.iter().zip(&mut taken) {
            if !check.estimate {
                taken.clear();
            }
        }
        let expires_at = turn.now + wanted.ttl().0;
        self.made.push(Made {
            request: wanted.clone(),
            position,
            made_at: turn.now,
            expires_at,
            stored_expiry: expires_at,
            counted,
            taken,
            event,
            end: None,
        });
        if let Err(wrong) = self.limits.check() {
            panic!("a window let pass too much: {wrong}");
        }
    }

    fn would_be(&self, turn: &Turn<'_>, wanted: &Decide, limits: Vec<LimitOfCheck>) -> Decision {
        let parts = wanted.parts();
        let event = parts.event.as_ref().and_then(|event| {
            let info = turn.events.would_be(turn.now, &event.stream, &event.event)?;
            Some(event_part(wanted, &info, EventState::Submitted))
        });
        let values = turn.ledger.values_with(&parts.holds);
        Decision { values, event, limits, ..never_made(wanted, turn.now) }
    }

    /// Asks all checks in order. Each sees what the earlier ones take that are not refused.
    pub(super) fn ask_limits(
        &self,
        now: u64,
        checks: &[InUse],
        place: u64,
        is_report: bool,
    ) -> LimiterAnswer {
        let in_use = self.in_use();
        let mut moved = self.limits.clone();
        let mut more = in_use.clone();
        let mut taken = Vec::new();
        let mut exceeded = Vec::new();
        for (key_values, hits) in checks {
            let (mut is_refused, mut is_limited) = (false, false);
            for (rule, group) in moved.applying(key_values) {
                let is_behind =
                    rule.is_slot() && *hits > 0 && self.waiting_in(&group).any(|waiter| waiter.place < place);
                let is_exceeded = is_behind || rule.is_exceeded(moved.used(now, rule, &group, &more), *hits);
                is_refused |= is_exceeded && !rule.terms.shadow;
                is_limited |= is_exceeded && !rule.terms.shadow && rule.terms.window.is_some();
                exceeded.push(is_exceeded);
            }
            let is_taken = !is_refused || is_report;
            // An estimate of nothing is settled too. What only slots refuse counts for the windows of later checks.
            let counts = !is_limited || is_report;
            taken.push(if counts { moved.take(now, key_values, *hits, is_report) } else { Vec::new() });
            if is_taken && *hits > 0 && moved.is_counted(key_values) {
                more.push((key_values.clone(), *hits));
            }
        }
        let mark = |mut limits: Vec<LimitOfCheck>| {
            for (limit, exceeded) in limits.iter_mut().zip(&exceeded) {
                limit.status.status.exceeded = *exceeded;
                limit.refuses = *exceeded && !limit.status.shadow;
            }
            limits
        };
        let limits = mark(self.statuses(now, checks, &in_use, place));
        let is_refused = limits.iter().any(|limit| limit.refuses);
        let after = Decisions { limits: moved, ..self.clone() };
        let after_limits = mark(after.statuses(now, checks, &more, place));
        let retry_after = self.passes_after(now, checks, &in_use, &exceeded);
        LimiterAnswer { is_refused, limits, after: after_limits, retry_after, taken: (after.limits, taken) }
    }

    /// When all checks would pass if nothing else happened.
    fn passes_after(&self, now: u64, checks: &[InUse], in_use: &[InUse], exceeded: &[bool]) -> Option<u64> {
        let mut exceeded = exceeded.iter();
        let mut before: Vec<(Group, u64)> = Vec::new();
        let mut latest = 0;
        for (key_values, hits) in checks {
            let mut own = Vec::new();
            for (rule, group) in self.limits.applying(key_values) {
                let is_exceeded = *exceeded.next().expect("one for each limit");
                own.push((group.clone(), *hits));
                if rule.terms.shadow || *hits == 0 {
                    continue;
                }
                if is_exceeded && rule.terms.window.is_none() {
                    return None;
                }
                let sum: u64 =
                    before.iter().filter(|(other, _)| *other == group).map(|(_, hits)| hits).sum::<u64>()
                        + hits;
                latest = latest.max(self.limits.passes_after(now, rule, &group, in_use, sum)?);
            }
            before.extend(own);
        }
        Some(latest)
    }

    /// Whether all limits would let the checks pass if nothing were in use.
    pub(super) fn is_possible(&self, checks: &[InUse]) -> bool {
        checks.iter().enumerate().all(|(place, (key_values, hits))| {
            let mut enforced = self.limits.applying(key_values).filter(|(rule, _)| !rule.terms.shadow);
            enforced.all(|(rule, group)| {
                let is_same =
                    |(other, _): &&InUse| self.limits.applying(other).any(|(_, other)| other == group);
                let before = checks[..place].iter().filter(is_same).map(|(_, hits)| hits).sum();
                !rule.is_exceeded(before, *hits)
            })
        })
    }

    fn refused_holds(&self, turn: &Turn<'_>, wanted: &Decide) -> Vec<HoldOfDecision> {
        let refused = wanted.parts().holds.iter().filter_map(|change| turn.ledger.refused(change));
        refused
            .map(|refused| HoldOfDecision {
                held_by: match &refused {
                    RefusedHold::LimitExceeded(limit) if wanted.explain() => {
                        self.holders(turn.now, &limit.limit_name)
                    }
                    _ => Vec::new(),
                },
                refused,
            })
            .collect()
    }

    fn holders(&self, now: u64, limit: &Name) -> Vec<HeldBy> {
        let holds =
            |made: &&Made| made.request.parts().holds.iter().any(|change| change.limit_name == *limit);
        self.open().filter(holds).take(SHOWN).map(|made| held_by(now, made)).collect()
    }

    /// Says who holds the slots that refuse.
    fn explain(&self, now: u64, limits: &mut [LimitOfCheck]) {
        for limit in limits.iter_mut().filter(|limit| limit.refuses && limit.status.per.is_none()) {
            let name = limit.status.rule.clone().expect("a rule");
            let is_held = |key_values| {
                self.limits
                    .applying(key_values)
                    .any(|(_, group)| group == (name.clone(), limit.status.group.clone()))
            };
            let holders = self.open().flat_map(|made| {
                let checks = made.request.parts().checks.iter().zip(&made.counted);
                let held = checks.filter(|(check, counted)| **counted && is_held(&check.key_values));
                held.map(move |_| held_by(now, made))
            });
            limit.held_by = holders.take(SHOWN).collect();
        }
    }

    /// Whether somebody holds a lock, or has waited for it for longer, so that this request cannot have it.
    pub(super) fn is_taken(&self, lock: &Lock, wanted: &Decide, place: u64) -> bool {
        let conflicts = |other: &Decide| {
            let mut locks = other.parts().locks.iter();
            locks.any(|own| own.key_values == lock.key_values && own.mode.conflicts(lock.mode))
        };
        // A request that was just granted is both on the list of those that wait and of those that hold.
        let mut others = self.open().filter(|made| made.id() != wanted.operation_id());
        let mut earlier = self.waiting.iter().filter(|waiter| waiter.place < place);
        others.any(|made| conflicts(&made.request)) || earlier.any(|waiter| conflicts(&waiter.wanted))
    }

    fn refused_locks(&self, now: u64, wanted: &Decide, place: u64) -> Vec<RefusedLock> {
        let refused = wanted.parts().locks.iter().filter_map(|lock| {
            if !self.is_taken(lock, wanted, place) {
                return None;
            }
            let holder = self.open().find(|made| has_lock(&made.request, &lock.key_values));
            let waits =
                |waiter: &&super::Waiter| waiter.place != place && has_lock(&waiter.wanted, &lock.key_values);
            Some(RefusedLock {
                key_values: lock.key_values.clone(),
                mode: lock.mode,
                is_held: holder.is_some(),
                owner: holder.and_then(|made| made.request.owner().cloned()),
                held: holder.map(|made| Millis(now - made.made_at)),
                expires_in: holder.map(|made| Millis(made.expires_at.saturating_sub(now))),
                waiting: self.waiting.iter().filter(waits).count(),
            })
        });
        refused.collect()
    }

    /// The quota that the decision would exceed.
    fn exceeded(&self, turn: &Turn<'_>, wanted: &Decide) -> Option<QuotaExceeded> {
        let parts = wanted.parts();
        let locking = self.open().filter(|made| !made.request.parts().locks.is_empty()).count();
        let counted = |check: &&limina_engine::decisions::PartCheck| {
            check.hits > 0 && self.limits.is_counted(&check.key_values)
        };
        let leases = parts.checks.iter().filter(counted).count();
        let of_locks = self.bounds.refuses(Quota::LocksHeld, locking, usize::from(!parts.locks.is_empty()));
        // A dry run holds no slots.
        let of_leases = || match wanted.dry_run() {
            true => None,
            false => self.bounds.refuses(Quota::Leases, self.in_use().len(), leases),
        };
        turn.ledger.exceeded(turn.ledger.missing(&parts.holds).len()).or(of_locks).or_else(of_leases)
    }
}

fn held_by(now: u64, made: &Made) -> HeldBy {
    HeldBy {
        operation_id: Some(made.id().clone()),
        lease_id: None,
        owner: made.request.owner().cloned(),
        held: Millis(now - made.made_at),
        expires_in: Millis(made.expires_at.saturating_sub(now)),
    }
}

/// The latest of what time alone will cure.
fn retry_after(now: u64, refused: &Refused, of_limits: Option<u64>) -> Option<Millis> {
    if !refused.holds.is_empty() || !refused.locks.is_empty() {
        return None;
    }
    let of_event = match refused.event {
        None => 0,
        Some(RefusedEvent::EventConflict { open_at: Some(time), .. }) => time.0.saturating_sub(now),
        Some(_) => return None,
    };
    Some(Millis(of_limits?.max(of_event)))
}

/// A request as a decision that has no position.
pub(super) fn never_made(wanted: &Decide, now: u64) -> Decision {
    Decision {
        operation_id: wanted.operation_id().clone(),
        state: State::Open,
        repeated: false,
        late: false,
        owner: wanted.owner().cloned(),
        position: None::<Position>,
        fencing_token: None,
        ttl: wanted.ttl(),
        made_at: Time(now),
        expires_at: Some(Time(now + wanted.ttl().0)),
        limits: Vec::new(),
        values: Vec::new(),
        locks: wanted.parts().locks.clone(),
        event: None,
        now: Time(now),
    }
}
