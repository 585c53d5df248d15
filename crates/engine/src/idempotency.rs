//! Kept replies: a request that is repeated under the same idempotency key runs once.
//!
//! Replies are stored by the half day in which they were given, so that old ones are swept as whole ranges. A look-up reads
//! the three half days that can contain a reply of the last 24 hours.

use crate::{
    Idempotency, Millis, Outcome, Time,
    ids::NamespaceId,
    reads::{ReadError, Reader},
    record::{KeptReplies, key},
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

/// The period of this time.
pub(crate) fn period_of(time: Time) -> u32 {
    u32::try_from(time.0 / PERIOD.0).unwrap_or(u32::MAX - 1)
}

/// What is stored under an idempotency key.
#[derive(Default)]
pub(crate) struct Found {
    /// The outcome to return if the key was used within the last 24 hours: the kept one, or
    /// [`Outcome::IdempotencyKeyReused`] if that was another request.
    pub(crate) outcome: Option<Outcome>,
    /// Whether the present period has a reply under this key. A new reply replaces that one.
    pub(crate) is_present: bool,
}

pub(crate) fn find(
    reader: &Reader<'_>,
    view: View<'_>,
    idempotency: &Idempotency,
) -> Result<Found, ReadError> {
    let last = period_of(view.now);
    // Read all periods before looking at the first result, so that one round fetches all of them.
    let found: Vec<Result<Option<Kept>, ReadError>> = (0..PERIODS)
        .map(|back| reader.get(key::reply(view.namespace, last.saturating_sub(back), &idempotency.key)))
        .collect();
    let mut is_present = false;
    for (back, kept) in found.into_iter().enumerate() {
        let Some(kept) = kept? else { continue };
        is_present |= back == 0;
        if kept.given_at.after(KEPT) > view.now {
            let outcome = match kept.fingerprint == idempotency.fingerprint {
                true => kept.outcome,
                false => Outcome::IdempotencyKeyReused,
            };
            return Ok(Found { outcome: Some(outcome), is_present });
        }
    }
    Ok(Found { outcome: None, is_present })
}

/// Keeps the outcome under the key. `replaced` is a period that has a reply under this key already.
pub(crate) fn keep(turn: &mut Turn<'_>, idempotency: &Idempotency, outcome: &Outcome, replaced: Option<u32>) {
    let period = period_of(turn.now);
    let kept = Kept { given_at: turn.now, fingerprint: idempotency.fingerprint, outcome: outcome.clone() };
    turn.put(key::reply(turn.namespace, period, &idempotency.key), &kept);
    if turn.head.replies.is_none() {
        let (key, timer) = drop_timer(turn.namespace, period);
        turn.timers.set(key, timer);
    }
    let replies = turn.head.replies.get_or_insert(KeptReplies { first: period, counts: [0; 3] });
    // The timer drops the first period before a reply of the fourth one can be given.
    let place = (period.saturating_sub(replies.first) as usize).min(replies.counts.len() - 1);
    if replaced != Some(period) {
        replies.counts[place] = replies.counts[place].saturating_add(1);
    }
}

/// The timer that drops the replies of a period, when all of them are older than 24 hours.
pub(crate) fn drop_timer(namespace: NamespaceId, period: u32) -> (TimerKey, Timer) {
    let due = Time((u64::from(period) + u64::from(PERIODS)) * PERIOD.0);
    (TimerKey { due, namespace, source: TimerSource::Replies }, Timer::DropReplies)
}

/// Drops the replies of the oldest period, and sets the timer for the next one.
pub(crate) fn drop_oldest(turn: &mut Turn<'_>) {
    let Some(KeptReplies { first, counts: [_, second, third] }) = turn.head.replies else { return };
    let rest = KeptReplies { first: first + 1, counts: [second, third, 0] };
    turn.head.replies = (rest.sum() > 0).then_some(rest);
    if turn.head.replies.is_some() {
        let (key, timer) = drop_timer(turn.namespace, rest.first);
        turn.timers.set(key, timer);
    }
    turn.sweep(key::replies(turn.namespace, first));
}
