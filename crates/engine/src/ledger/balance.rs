//! The sums of a limit, and which holds they allow.

use super::reply::ExceededLimit;
use crate::Name;
use serde::{Deserialize, Serialize};

/// The sums of a limit. `held_up` is the sum of the positive open holds, `held_down` that of the negative ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Balance {
    pub(crate) commit: i64,
    pub(crate) held_up: i64,
    pub(crate) held_down: i64,
}

impl Balance {
    pub(crate) fn hold_value(&self) -> i64 {
        self.held_up + self.held_down
    }

    /// The balance with one more open hold. `None` if a sum could overflow, whichever holds are committed later.
    pub(crate) fn hold(self, value: i64) -> Option<Balance> {
        let mut next = self;
        if value >= 0 {
            next.held_up = next.held_up.checked_add(value)?;
            next.commit.checked_add(next.held_up)?;
        } else {
            next.held_down = next.held_down.checked_add(value)?;
            next.commit.checked_add(next.held_down)?;
        }
        Some(next)
    }

    /// The largest value that can be held below the ceiling, if all positive open holds are committed. 0 if there is none.
    pub(crate) fn available(&self, ceiling: i64) -> i64 {
        let below_ceiling = i128::from(ceiling) - i128::from(self.commit) - i128::from(self.held_up);
        // The sum of the positive holds must not overflow either.
        let most = below_ceiling.clamp(0, i128::from(i64::MAX - self.held_up));
        i64::try_from(most).expect("it is between 0 and i64::MAX")
    }

    /// What refuses one more hold, if it could exceed the ceiling. A negative hold never does.
    pub(crate) fn exceeded(&self, limit_name: &Name, value: i64, ceiling: i64) -> Option<ExceededLimit> {
        let below_ceiling = i128::from(ceiling) - i128::from(self.commit) - i128::from(self.held_up);
        (value > 0 && i128::from(value) > below_ceiling).then(|| ExceededLimit {
            limit_name: limit_name.clone(),
            ceiling,
            commit_value: self.commit,
            hold_value: self.hold_value(),
            available: self.available(ceiling),
        })
    }

    /// Whether `value` can be committed after an open hold of `held` has ended (0 if there is none), without a sum that could
    /// overflow, whichever other holds are committed later.
    pub(crate) fn can_book(self, held: i64, value: i64) -> bool {
        let Balance { commit, held_up, held_down } = self.end_hold(held, 0);
        let Some(commit) = commit.checked_add(value) else { return false };
        commit.checked_add(held_up).is_some() && commit.checked_add(held_down).is_some()
    }

    /// The balance after an open hold of `held` has ended and `committed` of it was committed.
    pub(crate) fn end_hold(mut self, held: i64, committed: i64) -> Balance {
        if held >= 0 {
            self.held_up -= held;
        } else {
            self.held_down -= held;
        }
        self.commit += committed;
        self
    }
}
