//! Decisions that have ended. Those that held something are remembered for ever. The others are remembered for 24 hours after the
//! last change of their state. They are stored by the half day of that change, so that old ones are swept as whole ranges.

use super::{
    keys, record,
    reply::{Decision, Refusal},
    state::Decisions,
};
use crate::{
    Millis, Name, Time,
    ids::NamespaceId,
    limiter::parts::RefundInfo,
    reads::{ReadError, Reader},
    timers::{Timer, TimerKey, TimerSource},
    turn::{Turn, View},
};
use alloc::{sync::Arc, vec::Vec};
use limina_api::decisions::{ActualHits, ActualValue, Decide, PartCheck, Settle, State};
use serde::{Deserialize, Serialize};

const REMEMBERED: Millis = Millis::DAY;
const PERIOD: Millis = Millis(Millis::DAY.0 / 2);
const PERIODS: u32 = 3;

/// A decision that has ended, as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Ended {
    /// The answer to the request that ended it.
    pub(super) answer: Decision,
    /// When its state changed for the last time: when it ended, or when it was recorded late.
    pub(super) ended_at: Time,
    #[serde(with = "record")]
    pub(super) request: Arc<Decide>,
    pub(super) taken: Vec<RefundInfo>,
    /// The amounts at which it was committed. `None` if it was not.
    pub(super) amounts: Option<Amounts>,
    /// Whether it was not its client who rolled it back: then it can still be recorded.
    pub(super) was_forced: bool,
}

impl Ended {
    pub(super) fn can_be_recorded(&self) -> bool {
        self.answer.state == State::Expired || self.was_forced
    }

    fn key(&self, namespace: NamespaceId) -> crate::record::key::Key {
        let id = self.request.operation_id();
        match self.request.parts().holds.is_empty() {
            true => keys::ended_in(namespace, period_of(self.ended_at), id),
            false => keys::ended(namespace, id),
        }
    }
}

/// The amounts of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Amounts {
    /// The hits of each check.
    pub(super) checks: Vec<u64>,
    /// The value of each hold.
    pub(super) holds: Vec<i64>,
}

impl Amounts {
    /// The amounts of a commit, with the defaults for what it does not name.
    pub(super) fn of(request: &Decide, settle: &Settle) -> Result<Amounts, Refusal> {
        let parts = request.parts();
        let mut checks: Vec<u64> = parts.checks.iter().map(|check| check.hits).collect();
        for ActualHits { name, hits } in &settle.checks {
            let is_meant = |check: &PartCheck| check.estimate && check.name.as_ref() == Some(name);
            let place = parts.checks.iter().position(is_meant);
            checks[place.ok_or_else(|| Refusal::NotEstimated { check: name.clone() })?] = *hits;
        }
        let mut holds: Vec<i64> = parts.holds.iter().map(|change| change.value).collect();
        for ActualValue { limit_name: name, value } in &settle.holds {
            let place = parts.holds.iter().position(|change| change.limit_name == *name);
            holds[place.ok_or_else(|| Refusal::NotHeld { limit_name: name.clone() })?] = *value;
        }
        Ok(Amounts { checks, holds })
    }
}

fn period_of(time: Time) -> u32 {
    u32::try_from(time.0 / PERIOD.0).unwrap_or(u32::MAX - 1)
}

/// The ended decision under this id, if it is remembered.
pub(super) fn find(reader: &Reader<'_>, view: View<'_>, id: &Name) -> Result<Option<Ended>, ReadError> {
    let last = period_of(view.now);
    // All keys are looked up before the first result is used, so that one round fetches all of them.
    let kept: Result<Option<Ended>, ReadError> = reader.get(keys::ended(view.namespace, id));
    let recent: Vec<Result<Option<Ended>, ReadError>> = (0..PERIODS)
        .map(|back| reader.get(keys::ended_in(view.namespace, last.saturating_sub(back), id)))
        .collect();
    if let Some(ended) = kept? {
        return Ok(Some(ended));
    }
    for ended in recent {
        if let Some(ended) = ended?.filter(|ended| ended.ended_at.after(REMEMBERED) > view.now) {
            return Ok(Some(ended));
        }
    }
    Ok(None)
}

/// Notes the records that [`find`] needs.
pub(super) fn want(reader: &Reader<'_>, view: View<'_>, id: &Name) {
    let last = period_of(view.now);
    reader.want(keys::ended(view.namespace, id));
    (0..PERIODS).for_each(|back| reader.want(keys::ended_in(view.namespace, last.saturating_sub(back), id)));
}

/// Remembers a decision that was recorded late, for as long as if it had ended just now.
pub(super) fn remember_late(decisions: &mut Decisions, turn: &mut Turn<'_>, mut ended: Ended) {
    turn.remove(ended.key(turn.namespace));
    ended.ended_at = turn.now;
    remember(decisions, turn, &ended);
}

/// Remembers a decision that has just ended.
pub(super) fn remember(decisions: &mut Decisions, turn: &mut Turn<'_>, ended: &Ended) {
    turn.put(ended.key(turn.namespace), ended);
    if !ended.request.parts().holds.is_empty() {
        return;
    }
    let period = period_of(ended.ended_at);
    let periods = match decisions.periods {
        None => {
            let (key, timer) = drop_timer(turn.namespace, period);
            turn.timers.set(key, timer);
            (period, period)
        }
        Some((first, last)) => (first, last.max(period)),
    };
    if decisions.periods != Some(periods) {
        decisions.periods = Some(periods);
        turn.put(keys::periods(turn.namespace), &periods);
    }
}

/// The timer that drops the decisions that ended in a period, when all of them are older than 24 hours.
pub(super) fn drop_timer(namespace: NamespaceId, period: u32) -> (TimerKey, Timer) {
    let due = Time((u64::from(period) + u64::from(PERIODS)) * PERIOD.0);
    (TimerKey { due, namespace, source: TimerSource::EndedOperations }, Timer::DropEndedOperations)
}

/// Drops the decisions of the oldest period, and sets the timer for the next one.
pub(crate) fn drop_oldest(decisions: &mut Decisions, turn: &mut Turn<'_>) {
    let Some((first, last)) = decisions.periods else { return };
    turn.sweep(keys::period(turn.namespace, first));
    if first < last {
        decisions.periods = Some((first + 1, last));
        turn.put(keys::periods(turn.namespace), &(first + 1, last));
        let (key, timer) = drop_timer(turn.namespace, first + 1);
        turn.timers.set(key, timer);
    } else {
        decisions.periods = None;
        turn.remove(keys::periods(turn.namespace));
    }
}
