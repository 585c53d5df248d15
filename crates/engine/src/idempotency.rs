//! Kept replies: a request that is repeated under the same idempotency key runs once.
//!
//! Replies are stored by the half day in which they were given, so that old ones are swept as whole ranges. A look-up reads
//! the three half days that can contain a reply of the last 24 hours.

use crate::{
    Idempotency, Millis, Outcome, Time,
    ids::NamespaceId,
    reads::{ReadError, Reader},
    record::{self, KeptReplies, key},
    timers::{Timer, TimerKey, TimerSource},
    turn::{Turn, View},
};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

const KEPT: Millis = Millis::DAY;
const PERIOD: Millis = Millis(Millis::DAY.0 / 2);
const PERIODS: u32 = 3;

/// The parts of a kept reply that one round fetches.
const PARTS_AT_ONCE: u32 = 8;

/// A kept reply as it is stored. `O` is the outcome, or a reference to it.
#[derive(Serialize, Deserialize)]
#[serde(bound(serialize = "O: Serialize", deserialize = "O: DeserializeOwned"))]
struct Kept<O> {
    given_at: Time,
    fingerprint: [u8; 16],
    reply: KeptReply<O>,
}

#[derive(Serialize, Deserialize)]
#[serde(bound(serialize = "O: Serialize", deserialize = "O: DeserializeOwned"))]
enum KeptReply<O> {
    /// The reply to a request that was decided in one turn.
    Whole(#[serde(with = "record::answer")] O),
    /// The reply to a batch that took several turns: each has stored its results in a record of its own.
    Parts { count: u32, is_complete: bool },
}

/// The results of one turn of a batch, as they are stored.
#[derive(Serialize, Deserialize)]
#[serde(bound(serialize = "O: Serialize", deserialize = "O: DeserializeOwned"))]
struct KeptPart<O> {
    #[serde(with = "record::answer")]
    results: O,
}

/// A kept reply that consists of parts. The first turn of the batch determines the time from which on it is kept.
#[derive(Debug)]
pub(crate) struct KeptParts {
    given_at: Time,
    count: u32,
    is_complete: bool,
    /// The number of parts that were read.
    read: u32,
}

impl KeptParts {
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub(crate) fn has_unread_parts(&self) -> bool {
        self.read < self.count
    }

    pub(crate) fn handle_read(&mut self) {
        self.read += 1;
    }

    /// Whether the key is free again.
    pub(crate) fn is_over(&self, now: Time) -> bool {
        is_over(self.given_at, now)
    }
}

fn is_over(given_at: Time, now: Time) -> bool {
    given_at.after(KEPT) <= now
}

/// What an idempotency key was used for.
pub(crate) enum FoundReply {
    /// The outcome to return: the kept one, or [`Outcome::IdempotencyKeyReused`] if that was another request.
    Whole(Outcome),
    /// The parts of the outcome, which must be read. If they are not complete, the batch continues behind them.
    Parts(KeptParts),
}

/// The period of this time.
pub(crate) fn period_of(time: Time) -> u32 {
    u32::try_from(time.0 / PERIOD.0).unwrap_or(u32::MAX - 1)
}

/// What is stored under an idempotency key.
pub(crate) struct Found {
    /// What the key was used for within the last 24 hours.
    pub(crate) reply: Option<FoundReply>,
    /// Whether the present period has a reply under this key. A new reply replaces that one.
    pub(crate) is_present: bool,
}

/// Looks for what the key was used for within the last 24 hours.
pub(crate) fn find(
    reader: &Reader<'_>,
    view: View<'_>,
    idempotency: &Idempotency,
) -> Result<Found, ReadError> {
    let last = period_of(view.now);
    // Read all periods before looking at the first result, so that one round fetches all of them.
    let found: Vec<Result<Option<Kept<Outcome>>, ReadError>> = (0..PERIODS)
        .map(|back| {
            reader.get(key::reply(
                view.namespace,
                last.saturating_sub(back),
                idempotency.owner.as_ref(),
                &idempotency.key,
            ))
        })
        .collect();
    let mut is_present = false;
    for (back, kept) in found.into_iter().enumerate() {
        let Some(kept) = kept? else { continue };
        is_present |= back == 0;
        if is_over(kept.given_at, view.now) {
            continue;
        }
        let reply = match kept.reply {
            _ if kept.fingerprint != idempotency.fingerprint => {
                FoundReply::Whole(Outcome::IdempotencyKeyReused)
            }
            KeptReply::Whole(outcome) => FoundReply::Whole(outcome),
            KeptReply::Parts { count, is_complete } => {
                FoundReply::Parts(KeptParts { given_at: kept.given_at, count, is_complete, read: 0 })
            }
        };
        return Ok(Found { reply: Some(reply), is_present });
    }
    Ok(Found { reply: None, is_present })
}

/// The next part of a kept reply that was not read yet. `None` if all were read.
pub(crate) fn read_part(
    reader: &Reader<'_>,
    view: View<'_>,
    idempotency: &Idempotency,
    kept: &KeptParts,
) -> Result<Option<Outcome>, ReadError> {
    let period = period_of(kept.given_at);
    let key = |number| {
        key::reply_part(view.namespace, period, idempotency.owner.as_ref(), &idempotency.key, number)
    };
    if !kept.has_unread_parts() {
        return Ok(None);
    }
    match reader.get::<KeptPart<Outcome>>(key(kept.read)) {
        Err(ReadError::NotFetched) => {
            // One round fetches several parts.
            let more = kept.read + 1..kept.count.min(kept.read + PARTS_AT_ONCE);
            more.for_each(|number| reader.want(key(number)));
            Err(ReadError::NotFetched)
        }
        // The record that counts the parts was stored after them, so a part that is not there is damage.
        part => part?.map(|part| Some(part.results)).ok_or(ReadError::Unreadable),
    }
}

/// Keeps the outcome under the key. `replaced` is a period that has a reply under this key already.
pub(crate) fn keep(turn: &mut Turn<'_>, idempotency: &Idempotency, outcome: &Outcome, replaced: Option<u32>) {
    let period = period_of(turn.now);
    let reply = KeptReply::Whole(outcome);
    let kept = Kept { given_at: turn.now, fingerprint: idempotency.fingerprint, reply };
    turn.put(key::reply(turn.namespace, period, idempotency.owner.as_ref(), &idempotency.key), &kept);
    count_reply(turn, period, replaced);
}

/// Keeps the results of one turn of a batch under the key, together with what that turn changed. So a crash between two turns
/// neither loses nor repeats an item. `replaced` is a period that has a reply under this key already.
pub(crate) fn keep_part(
    turn: &mut Turn<'_>,
    idempotency: &Idempotency,
    kept: &mut Option<KeptParts>,
    results: &Outcome,
    is_complete: bool,
    replaced: Option<u32>,
) {
    let is_first = kept.is_none();
    let kept = kept.get_or_insert(KeptParts { given_at: turn.now, count: 0, is_complete: false, read: 0 });
    let period = period_of(kept.given_at);
    turn.put(
        key::reply_part(turn.namespace, period, idempotency.owner.as_ref(), &idempotency.key, kept.count),
        &KeptPart { results },
    );
    kept.count += 1;
    kept.read = kept.count;
    kept.is_complete = is_complete;
    let reply = KeptReply::<&Outcome>::Parts { count: kept.count, is_complete };
    let record = Kept { given_at: kept.given_at, fingerprint: idempotency.fingerprint, reply };
    turn.put(key::reply(turn.namespace, period, idempotency.owner.as_ref(), &idempotency.key), &record);
    if is_first {
        count_reply(turn, period, replaced);
    }
}

/// Counts a new reply of this period, which is the present one.
fn count_reply(turn: &mut Turn<'_>, period: u32, replaced: Option<u32>) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Name, Position, ledger};
    use limina_api::ledger::FinalizationReply;

    /// What is stored changes only with the version of the format, and never because a type of the API does: replies that were
    /// kept before an update are read after it.
    #[test]
    fn the_bytes_of_a_kept_reply() {
        let operation_id = Name::new("op").unwrap();
        let finished = FinalizationReply { operation_id, position: Position(300), values: Vec::new() };
        let outcome = Outcome::Ledger(Ok(ledger::Reply::Finalization(finished)));
        let reply = KeptReply::Whole(&outcome);
        let mut bytes = Vec::new();
        record::encode_into(&Kept { given_at: Time(5), fingerprint: [7; 16], reply }, &mut bytes);
        let answer: &[&[u8]] = &[
            &[0xe6, 0xc6],
            b"Ledger",
            &[0xe6, 0xc2],
            b"Ok",
            &[0xe6, 0xcc],
            b"Finalization",
            &[0xc3, 0xcc],
            b"operation_id",
            &[0x82],
            b"op",
            &[0xc8],
            b"position",
            &[0xe9, 44, 1, 0xc6],
            b"values",
            &[0xd0],
        ];
        let answer = answer.concat();
        let expect = [&[record::VERSION, 5], &[7; 16][..], &[0, answer.len() as u8], &answer].concat();
        assert_eq!(bytes, expect);
        let read: Kept<Outcome> = record::decode(&bytes).unwrap();
        assert!(matches!(read.reply, KeptReply::Whole(read) if read == outcome));
    }
}
