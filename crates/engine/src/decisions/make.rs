//! Makes a decision: every part is asked and none is moved; then all are moved, or none.

use super::{
    command::takes,
    families::Families,
    open::{self, Open, grant_of, lease_of, named},
    reply::{Decision, HoldOfDecision, Refusal, Refused, Reply},
    state::Decisions,
};
use crate::{
    Millis, Position, Quota, QuotaExceeded, Time, WaitId,
    answer_size::{self, AnswerBudget},
    events::{self, RefusedEvent},
    ledger::{self, RefusedHold},
    limiter::{
        self, HeldBy, LimitOfCheck, Limiter, Slots,
        parts::{EXPLAINED, Mode},
    },
    locks,
    turn::{CannotRun, Turn},
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use limina_api::decisions::{Decide, Parts, State};

/// The number of holders that an explanation shows.
const SHOWN: usize = 8;
/// The number of limits without a window whose holders one explanation shows.
const EXPLAINED_LIMITS: usize = 64;

/// What became of a request.
pub(super) enum MakeOutcome {
    /// The decision is made, or refused.
    Decided(Result<Reply, Refusal>),
    /// Locks or slots refuse it, so that it could wait in the queues of these groups.
    Blocked {
        refusal: Refusal,
        slots: Slots,
        /// A lock refuses it.
        is_locked: bool,
        /// Nothing else refuses it.
        may_wait: bool,
    },
}

/// Asks all parts, as a request at this place in the queues. If none refuses, all of them move. The id is free, or reserved for
/// this request.
pub(super) fn make(
    decisions: &mut Decisions,
    families: &mut Families<'_>,
    turn: &mut Turn<'_>,
    request: &Arc<Decide>,
    place: WaitId,
    max_answer: usize,
) -> Result<MakeOutcome, CannotRun> {
    let mut budget = AnswerBudget::new(max_answer);
    budget.spend(answer_size::estimate(&**request))?;
    let takes = takes(request);
    let touched = limiter::parts::Touched::collect(families.limiter, &takes, &mut budget)?;
    if let Err(refusal) = find_mistakes(families, request, &touched) {
        return Ok(MakeOutcome::Decided(Err(refusal)));
    }
    let slots = touched.slots(&takes);

    let Parts { checks, holds, locks: wanted, event, .. } = request.parts();
    let mut refused = Refused {
        holds: refused_holds(decisions, families, turn.now, request),
        locks: locks::parts::ask(families.locks, turn.now, wanted, place),
        event: event.as_ref().and_then(|event| events::parts::ask(families.events, event)),
        ..Refused::default()
    };
    let is_refused = !refused.holds.is_empty() || !refused.locks.is_empty() || refused.event.is_some();
    let growth = if is_refused { Ok(0) } else { growth(families, turn, request, &touched) };
    let mode = match is_refused || growth.is_err() {
        true => Mode::Look,
        false if request.dry_run() => Mode::DryRun,
        false => Mode::Take,
    };
    turn.begin_family(families.limiter.resident_bytes());
    turn.other_bytes += growth.unwrap_or(0);
    let is_estimate = |place: usize| checks[place].estimate;
    let decided =
        match limiter::parts::decide(families.limiter, turn, &takes, touched, mode, place, is_estimate) {
            Ok(decided) => decided,
            Err(exceeded) => return Ok(MakeOutcome::Decided(Err(exceeded.into()))),
        };
    refused.limits = named(request, decided.limits);
    if is_refused || decided.is_refused {
        if request.explain() {
            explain(families.limiter, turn.now, &mut refused.limits);
        }
        let of_limits = if decided.is_refused { decided.retry_after } else { Some(Millis(0)) };
        refused.retry_after = retry_after(turn.now, &refused, of_limits);
        return Ok(refuse(refused, slots));
    }
    if let Err(exceeded) = growth {
        return Ok(MakeOutcome::Decided(Err(exceeded.into())));
    }
    let answer = match request.dry_run() {
        true => dry_run(families, request, turn.now, refused.limits),
        false => {
            let open = move_parts(families, turn, request, decided.taken);
            let answer = answer(families, &open, turn.now, refused.limits);
            open.keep(turn);
            let is_new = decisions.insert(open);
            assert!(is_new, "an operation is open twice");
            answer
        }
    };
    debug_assert!(holds.is_empty() || request.dry_run() || !answer.values.is_empty());
    Ok(MakeOutcome::Decided(Ok(Reply::Decided(Box::new(answer)))))
}

/// The first of the mistakes that a request can contain, in the order of the contract.
fn find_mistakes(
    families: &Families<'_>,
    request: &Decide,
    touched: &limiter::parts::Touched,
) -> Result<(), Refusal> {
    let Parts { checks, holds, create_missing, event, .. } = request.parts();
    let missing = holds.iter().map(|change| &change.limit_name);
    let missing: Vec<_> = missing.filter(|name| families.ledger.find(name).is_none()).cloned().collect();
    if !create_missing && !missing.is_empty() {
        return Err(Refusal::LimitNotFound { limit_names: missing });
    }
    if let Some(event) = event.as_ref().filter(|event| !events::parts::has_stream(families.events, event)) {
        return Err(Refusal::StreamNotFound { stream: event.stream.clone() });
    }
    let unmatched =
        checks.iter().enumerate().find(|(place, check)| check.require_match && !touched.is_matched(*place));
    match unmatched {
        Some((_, check)) => Err(Refusal::NoRuleApplies { key_values: check.key_values.clone() }),
        None => Ok(()),
    }
}

fn refused_holds(
    decisions: &Decisions,
    families: &Families<'_>,
    now: Time,
    request: &Decide,
) -> Vec<HoldOfDecision> {
    let refused = ledger::parts::ask(families.ledger, request.parts().holds.iter());
    let explained = refused.map(|refused| {
        let held_by = match &refused {
            RefusedHold::LimitExceeded(limit) if request.explain() => {
                holders(decisions, now, families.ledger.find(&limit.limit_name))
            }
            _ => Vec::new(),
        };
        HoldOfDecision { refused, held_by }
    });
    explained.collect()
}

/// The open decisions that hold in a limit, the oldest first.
fn holders(decisions: &Decisions, now: Time, limit: Option<u32>) -> Vec<HeldBy> {
    let looked_at = decisions.open.values().take(EXPLAINED);
    let holding = looked_at.filter(|open| open.holds.iter().any(|hold| Some(hold.limit) == limit));
    let held_by = |open: &Open| HeldBy {
        operation_id: Some(open.id().clone()),
        lease_id: None,
        owner: open.request.owner().cloned(),
        held: Millis(now.0.saturating_sub(open.made_at.0)),
        expires_in: Millis(open.expires_at.0.saturating_sub(now.0)),
    };
    holding.take(SHOWN).map(held_by).collect()
}

/// Says of each limit without a window that refuses who holds what is in use.
fn explain(limiter: &Limiter, now: Time, limits: &mut [LimitOfCheck]) {
    let is_slot = |limit: &&mut LimitOfCheck| limit.refuses && limit.status.per.is_none();
    for limit in limits.iter_mut().filter(is_slot).take(EXPLAINED_LIMITS) {
        limit.held_by = limiter::parts::held_by(limiter, now, &limit.status, SHOWN);
    }
}

/// The outcome of a request that some of its parts refuse. Without `slots`, it could never be granted.
fn refuse(refused: Refused, slots: Option<Slots>) -> MakeOutcome {
    let mut limits = refused.limits.iter().filter(|limit| limit.refuses);
    let is_locked = !refused.locks.is_empty();
    let is_blocked = is_locked || limits.clone().any(|limit| limit.status.per.is_none());
    let may_wait =
        refused.holds.is_empty() && refused.event.is_none() && limits.all(|limit| limit.status.per.is_none());
    let refusal = Refusal::Refused(Box::new(refused));
    match slots.filter(|_| is_blocked) {
        Some(slots) => MakeOutcome::Blocked { refusal, slots, is_locked, may_wait },
        None => MakeOutcome::Decided(Err(refusal)),
    }
}

/// The latest of what time alone will cure. `None` where it will not.
fn retry_after(now: Time, refused: &Refused, of_limits: Option<Millis>) -> Option<Millis> {
    if !refused.holds.is_empty() || !refused.locks.is_empty() {
        return None;
    }
    let of_event = match &refused.event {
        None => Millis(0),
        Some(RefusedEvent::EventConflict { open_at: Some(time), .. }) => Millis(time.0.saturating_sub(now.0)),
        Some(RefusedEvent::EventConflict { open_at: None, .. } | RefusedEvent::StreamFull { .. }) => {
            return None;
        }
    };
    Some(of_limits?.max(of_event))
}

/// The resident bytes that all parts but those of the limiter would take. Fails if the namespace must not have them.
fn growth(
    families: &Families<'_>,
    turn: &Turn<'_>,
    request: &Decide,
    touched: &limiter::parts::Touched,
) -> Result<u64, QuotaExceeded> {
    if turn.quotas.is_empty() {
        return Ok(0);
    }
    let Parts { checks, holds, locks: wanted, event, .. } = request.parts();
    let (limits, limit_bytes) = ledger::parts::growth(families.ledger, holds);
    families.ledger.check_limits(turn, limits)?;
    let (now, token) = (turn.now, turn.head.position);
    let grant_bytes = match wanted.is_empty() {
        true => 0,
        false => locks::parts::growth(families.locks, turn, &grant_of(request, now, now, token))?,
    };
    let check_bytes = (0..checks.len()).map(|place| {
        let settlement = if checks[place].estimate { touched.settlement_bytes(place) } else { 0 };
        settlement + limiter::parts::bytes_of(families.limiter, &lease_of(request, place, now, now, token))
    });
    let bytes = open::growth(request)
        + limit_bytes
        + grant_bytes
        + check_bytes.sum::<u64>()
        + event.as_ref().map_or(0, events::parts::growth);
    turn.quotas.check(Quota::ResidentBytes, turn.other_bytes, bytes)?;
    Ok(bytes)
}

/// Moves everything but what the limiter has taken already.
fn move_parts(
    families: &mut Families<'_>,
    turn: &mut Turn<'_>,
    request: &Arc<Decide>,
    taken: Vec<limiter::parts::RefundInfo>,
) -> Open {
    let Parts { holds, locks: wanted, event, .. } = request.parts();
    let (position, holds) = match holds.is_empty() {
        true => (turn.advance(), Vec::new()),
        false => ledger::parts::hold(families.ledger, turn, request.operation_id(), holds),
    };
    let (made_at, expires_at) = (turn.now, turn.now.after(request.ttl()));
    let counted = (0..taken.len()).filter(|place| taken[*place].is_counted);
    let leases = counted
        .map(|place| {
            limiter::parts::hold(families.limiter, &lease_of(request, place, made_at, expires_at, position))
        })
        .collect();
    if !wanted.is_empty() {
        locks::parts::hold(families.locks, &grant_of(request, made_at, expires_at, position));
    }
    let event = event.as_ref().map(|event| events::parts::submit(families.events, turn, event, position));
    ledger::parts::reserve(families.ledger, request.operation_id(), expires_at);
    Open { request: request.clone(), position, made_at, expires_at, taken, leases, holds, event }
}

fn answer(families: &Families<'_>, open: &Open, now: Time, limits: Vec<LimitOfCheck>) -> Decision {
    let event = open.event.as_ref().map(|(_, info)| open.event_part(info, events::EventState::Submitted));
    Decision {
        position: Some(open.position),
        fencing_token: Some(open.position),
        expires_at: Some(open.expires_at),
        values: ledger::parts::values(families.ledger, &open.holds),
        event,
        ..without_position(&open.request, now, limits)
    }
}

/// The answer to a dry run: as if it had been made, without a position.
fn dry_run(families: &Families<'_>, request: &Decide, now: Time, limits: Vec<LimitOfCheck>) -> Decision {
    let Parts { holds, event, .. } = request.parts();
    Decision {
        values: ledger::parts::values_with(families.ledger, holds),
        event: event.as_ref().and_then(|event| events::parts::would_be(families.events, event, now)),
        ..without_position(request, now, limits)
    }
}

pub(super) fn without_position(request: &Decide, now: Time, limits: Vec<LimitOfCheck>) -> Decision {
    Decision {
        operation_id: request.operation_id().clone(),
        state: State::Open,
        repeated: false,
        late: false,
        owner: request.owner().cloned(),
        position: None::<Position>,
        fencing_token: None,
        ttl: request.ttl(),
        made_at: now,
        expires_at: Some(now.after(request.ttl())),
        limits,
        values: Vec::new(),
        locks: request.parts().locks.clone(),
        event: None,
        now,
    }
}
