//! `counters`: takes from a counter as a check does, gives back, or sets what is in use.

use super::{
    check::{self, TakeKind},
    check_request::Take,
    reply::{Checked, Refusal, Reply},
    state::Limiter,
};
use crate::{
    answer_size::{AnswerBudget, TooLarge},
    key_values::KeyValues,
    turn::Turn,
};

/// Takes, as a check does, or gives back if `by` is negative.
pub(super) fn move_by(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    key_values: &KeyValues,
    by: i64,
    budget: AnswerBudget,
) -> Result<Result<Reply, Refusal>, TooLarge> {
    let decision = if by < 0 {
        give_back(limiter, turn, key_values, by.unsigned_abs());
        Ok(Checked::without_limits(true))
    } else {
        let entry = Take { key_values: key_values.clone(), hits: by, limit: None };
        let entries = core::slice::from_ref(&entry);
        check::decide(limiter, turn, entries, false, TakeKind::Counter, budget)?.allowed_or_refused()
    };
    Ok(decision.map(|decision| Reply::Moved { counter: limiter.counters.info(key_values), decision }))
}

/// Sets the unleased part, without asking any rule. A negative value counts as 0.
pub(super) fn set(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    key_values: &KeyValues,
    to: i64,
) -> Result<Reply, Refusal> {
    if to > 0 {
        limiter.check_growth(turn, &limiter.growth_by_counter(key_values))?;
    }
    let leased = limiter.counters.get(key_values).leased;
    turn.advance();
    limiter.set_counter(turn, key_values, u64::try_from(to).unwrap_or(0), leased);
    limiter.wake_by_counter(key_values);
    Ok(Reply::Counter(limiter.counters.info(key_values)))
}

/// Gives back at most the unleased part: leases give back their own.
fn give_back(limiter: &mut Limiter, turn: &mut Turn<'_>, key_values: &KeyValues, hits: u64) {
    let counter = limiter.counters.get(key_values);
    let unleased = counter.unleased.saturating_sub(hits);
    if unleased != counter.unleased {
        turn.advance();
        limiter.set_counter(turn, key_values, unleased, counter.leased);
        limiter.wake_by_counter(key_values);
    }
}
