//! Kept replies: a request that is repeated under the same idempotency key runs once.
//!
//! Replies are stored by the half day in which they were given, so that old ones are swept as whole ranges. A look-up reads
//! the three half days that can contain a reply of the last 24 hours.

use crate::{
    Idempotency, Millis, Outcome, Time,
    ids::NamespaceId,
    reads::{ReadError, Reader},
    record::key,
    timers::{Timer, TimerKey, TimerSource},
    turn::{Turn, View},
};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

const KEPT: Millis = Millis::DAY;
const PERIOD: Millis = Millis(Millis::DAY.0 / 2);
const PERIODS: u32 = 3;

/// A kept reply as it is stored.
#[derive(Serialize, Deserialize)]
struct Kept {
    given_at: Time,
    fingerprint: [u8; 16],
    outcome: Outcome,
}

fn period_of(time: Time) -> u32 {
    u32::try_from(time.0 / PERIOD.0).unwrap_or(u32::MAX - 1)
}

/// The outcome to return if the key was used within the last 24 hours: the kept one, or [`Outcome::IdempotencyKeyReused`] if
/// that was another request.
pub(crate) fn find(
    reader: &Reader<'_>,
    view: View<'_>,
    idempotency: &Idempotency,
) -> Result<Option<Outcome>, ReadError> {
    let last = period_of(view.now);
    // Read all periods before looking at the first result, so that one round fetches all of them.
    let found: Vec<Result<Option<Kept>, ReadError>> = (0..PERIODS)
        .map(|back| reader.get(key::reply(view.namespace, last.saturating_sub(back), &idempotency.key)))
        .collect();
    for kept in found {
        match kept? {
            Some(kept) if kept.given_at.after(KEPT) <= view.now => {}
            Some(kept) if kept.fingerprint == idempotency.fingerprint => return Ok(Some(kept.outcome)),
            Some(_) => return Ok(Some(Outcome::IdempotencyKeyReused)),
            None => {}
        }
    }
    Ok(None)
}

/// Keeps the outcome under the key.
pub(crate) fn keep(turn: &mut Turn<'_>, idempotency: &Idempotency, outcome: &Outcome) {
    let period = period_of(turn.now);
    let kept = Kept { given_at: turn.now, fingerprint: idempotency.fingerprint, outcome: outcome.clone() };
    turn.put(key::reply(turn.namespace, period, &idempotency.key), &kept);
    match &mut turn.head.replies {
        Some((_, last)) => *last = period,
        replies @ None => {
            *replies = Some((period, period));
            let (key, timer) = drop_timer(turn.namespace, period);
            turn.timers.set(key, timer);
        }
    }
}

/// The timer that drops the replies of a period, when all of them are older than 24 hours.
pub(crate) fn drop_timer(namespace: NamespaceId, period: u32) -> (TimerKey, Timer) {
    let due = Time((u64::from(period) + u64::from(PERIODS)) * PERIOD.0);
    (TimerKey { due, namespace, source: TimerSource::Replies }, Timer::DropReplies)
}

/// Drops the replies of the oldest period, and sets the timer for the next one.
pub(crate) fn drop_oldest(turn: &mut Turn<'_>) {
    let Some((first, last)) = turn.head.replies else { return };
    turn.head.replies = (first < last).then_some((first + 1, last));
    if turn.head.replies.is_some() {
        let (key, timer) = drop_timer(turn.namespace, first + 1);
        turn.timers.set(key, timer);
    }
    turn.sweep(key::replies(turn.namespace, first));
}
