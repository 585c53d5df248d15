//! Leases: a check whose hits are given back when the lease ends.

use super::{LimitStatus, checks::one};
#[cfg(feature = "openapi")]
use crate::schema::{Ttl, Wait};
use crate::{Duration, KeyValues, Millis, Name, Position};
use alloc::{string::String, vec::Vec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `POST /leases`: check, and hold the hits until the lease is released or expires.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewLease {
    /// What is about to happen. The rules that apply are found by these key-values.
    #[serde(alias = "KeyValues")]
    pub key_values: KeyValues,
    /// How much to take: 1 to 2^53−1. Default: 1.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_i64)]
    pub hits: u64,
    /// How long the lease is held without a heartbeat: 100 ms–24 h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Ttl)]
    pub ttl: Option<Duration>,
    /// The ttl in milliseconds, in place of `ttl`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 100, maximum = 86_400_000)]
    pub ttl_ms: Option<u64>,
    /// How long to wait for limits without a window: 0–5 min. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Wait>)]
    pub wait: Option<Duration>,
    /// The wait in milliseconds, in place of `wait`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 300_000)]
    pub wait_ms: Option<u64>,
    /// The client's name for itself, which everybody can read. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Name>, example = "worker-3")]
    pub owner: Option<String>,
    /// If no rule applies, refuse the lease with `NoRuleApplies`. Default: `false`: then the lease is granted.
    #[serde(default)]
    pub require_match: bool,
}

/// A lease that was granted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LeaseReply {
    /// The id of the lease.
    pub lease_id: Name,
    /// A secret of the holder. Heartbeats and the release need it.
    pub session_id: Name,
    /// A number that grows with every lease of the namespace.
    #[schema(value_type = u64)]
    pub fencing_token: Position,
    /// The time until the lease expires without a heartbeat, in milliseconds.
    #[schema(value_type = u64)]
    pub expires_in_ms: Millis,
    /// Every limit that applied, ordered by rule, then by override.
    pub limits: Vec<LimitStatus>,
}

/// A lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Lease {
    /// The id of the lease.
    pub lease_id: Name,
    /// The decision that the lease is a part of, or `null`.
    #[schema(required)]
    pub operation_id: Option<Name>,
    /// A number that grows with every lease of the namespace.
    #[schema(value_type = u64)]
    pub fencing_token: Position,
    /// The key-values with which the hits were taken.
    pub key_values: KeyValues,
    /// How much the lease holds.
    pub hits: u64,
    /// The holder's name for itself, or `null`.
    #[schema(required)]
    pub owner: Option<Name>,
    /// The time since the lease was granted, in milliseconds.
    #[schema(value_type = u64)]
    pub held_ms: Millis,
    /// The time until the lease expires without a heartbeat, in milliseconds.
    #[schema(value_type = u64)]
    pub expires_in_ms: Millis,
    /// The ttl in milliseconds: a heartbeat extends the lease to this time from now.
    #[schema(value_type = u64)]
    pub ttl_ms: Millis,
}
