//! Requests that end decisions: commits with the actual amounts, rollbacks, and batches.

use super::request::{Decide, NewDecision, check_hits};
use crate::{
    Invalid, MAX_BATCH, Name,
    invalid::{check_distinct, check_items},
    object,
};
use alloc::{format, vec::Vec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `POST /decisions/{operation_id}/commit`: it has happened, at these amounts. What is not named ends at its default: an
/// estimate as it was taken, a hold as it was held.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CommitDecision {
    /// The actual hits of checks that are estimates. Each check may occur once.
    #[serde(default, deserialize_with = "object::list::<{ Decide::MAX_CHECKS }, _, _>")]
    #[schema(max_items = 16)]
    pub checks: Vec<ActualHits>,
    /// The values to commit. Each limit may occur once.
    #[serde(default, deserialize_with = "object::list::<{ Decide::MAX_HOLDS }, _, _>")]
    #[schema(max_items = 64)]
    pub holds: Vec<ActualValue>,
    /// It has happened anyway: book more than was held, past a ceiling, and also after the decision has expired or was
    /// released by force. Default: `false`.
    #[serde(default)]
    pub record: bool,
}

impl CommitDecision {
    /// The commit of this decision.
    pub fn of(self, operation_id: Name) -> Result<Settle, Invalid> {
        let CommitDecision { checks, holds, record } = self;
        let settle = Settle { operation_id, checks, holds, record };
        settle.validate()?;
        Ok(settle)
    }
}

/// An item of `POST /decisions/commit/batch`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CommitItem)]
pub struct Settle {
    /// The decision to commit.
    #[schema(example = "req-8f2c")]
    pub operation_id: Name,
    /// The actual hits of checks that are estimates. Each check may occur once.
    #[serde(default, deserialize_with = "object::list::<{ Decide::MAX_CHECKS }, _, _>")]
    #[schema(max_items = 16)]
    pub checks: Vec<ActualHits>,
    /// The values to commit. Each limit may occur once.
    #[serde(default, deserialize_with = "object::list::<{ Decide::MAX_HOLDS }, _, _>")]
    #[schema(max_items = 64)]
    pub holds: Vec<ActualValue>,
    /// It has happened anyway. Default: `false`.
    #[serde(default)]
    pub record: bool,
}

impl Settle {
    /// Commits every part at its default.
    pub fn new(operation_id: Name) -> Settle {
        Settle { operation_id, checks: Vec::new(), holds: Vec::new(), record: false }
    }

    /// The actual hits of checks, by their names. Each must be an estimate.
    pub fn with_checks(self, checks: impl IntoIterator<Item = (Name, u64)>) -> Result<Settle, Invalid> {
        let checks = checks.into_iter().map(|(name, hits)| ActualHits { name, hits }).collect();
        let settle = Settle { checks, ..self };
        settle.validate()?;
        Ok(settle)
    }

    /// The values to commit, by the names of the limits. In each of these the decision must hold.
    pub fn with_holds(self, holds: impl IntoIterator<Item = (Name, i64)>) -> Result<Settle, Invalid> {
        let holds = holds.into_iter().map(|(limit_name, value)| ActualValue { limit_name, value }).collect();
        let settle = Settle { holds, ..self };
        settle.validate()?;
        Ok(settle)
    }

    /// Whether it has happened anyway: more than was held, past a ceiling, or after the decision has expired.
    #[must_use]
    pub fn with_record(self, record: bool) -> Settle {
        Settle { record, ..self }
    }

    /// Checks what reading does not.
    pub fn validate(&self) -> Result<(), Invalid> {
        check_items("checks", self.checks.len(), 0..=Decide::MAX_CHECKS)?;
        check_items("holds", self.holds.len(), 0..=Decide::MAX_HOLDS)?;
        check_distinct(self.checks.iter().map(|check| &check.name), |index| format!("checks[{index}].name"))?;
        check_distinct(self.holds.iter().map(|hold| &hold.limit_name), |index| {
            format!("holds[{index}].limit_name")
        })?;
        let mut checks = self.checks.iter().enumerate();
        checks.try_for_each(|(index, check)| {
            check_hits(check.hits).map_err(|invalid| invalid.within_item("checks", index))
        })
    }
}

/// How much a check that was an estimate has really taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ActualHits {
    /// The name of the check.
    #[schema(example = "tokens")]
    pub name: Name,
    /// The actual hits: 0 to 2^53−1.
    #[schema(maximum = 9_007_199_254_740_991_i64)]
    pub hits: u64,
}

/// The value to commit in one limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ActualValue {
    /// The name of the limit. The decision must hold in it.
    #[schema(example = "budget/acme/2026-11")]
    pub limit_name: Name,
    /// The value: without `record`, 0 or a value with the sign of the held one and not larger.
    pub value: i64,
}

/// A body without fields. It may be absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NoFields {}

/// An item of `POST /decisions/rollback/batch`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RollbackItem {
    /// The decision to roll back.
    #[schema(example = "req-8f2c")]
    pub operation_id: Name,
}

/// `POST /decisions/batch`: several decisions, made in order. Each succeeds or fails alone, and none may wait.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DecisionBatch {
    /// The decisions, 1–8,192.
    #[serde(deserialize_with = "object::list::<MAX_BATCH, _, _>")]
    #[schema(min_items = 1, max_items = 8192)]
    pub operations: Vec<NewDecision>,
}
