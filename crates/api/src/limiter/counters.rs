//! Counters: how much is in use.

use super::LimitStatus;
use crate::{KeyValues, Millis};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `POST /counters` and `PUT /counters`: take or give back. `PUT /counters/set`: set the counter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CounterChange {
    /// The counter: exactly these key-values.
    #[serde(alias = "KeyValues")]
    pub key_values: KeyValues,
    /// The change: positive takes, negative gives back, 0 only reports. In `/counters/set`: the new value, where 0 or
    /// less removes the counter. At most 2^53−1 in size.
    #[schema(minimum = -9_007_199_254_740_991_i64, maximum = 9_007_199_254_740_991_i64, example = 1)]
    pub counters: i64,
}

/// A counter: how much is in use for exact key-values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counter {
    /// The key-values of the counter.
    pub key_values: KeyValues,
    /// How much is in use, including leases.
    pub counters: u64,
    /// How much of it leases hold.
    pub leased: u64,
}

/// A counter after taking or giving back, with the result of the check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CounterReply {
    /// The key-values of the counter.
    pub key_values: KeyValues,
    /// How much is in use, including leases.
    pub counters: u64,
    /// How much of it leases hold.
    pub leased: u64,
    /// Always `true`. A refused change is answered with 409.
    pub allowed: bool,
    /// Every limit that applied, ordered by rule, then by override.
    pub limits: Vec<LimitStatus>,
    /// Always `null`.
    #[schema(required, value_type = Option<u64>)]
    pub retry_after_ms: Option<Millis>,
}
