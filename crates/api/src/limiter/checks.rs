//! Checks, and the problem document of a refused one.

use super::Limit;
use crate::{KeyValues, MAX_BATCH, Millis, Name, Problem, RequestId, object};
use alloc::borrow::Cow;
use alloc::{string::String, vec::Vec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `POST /check`: take hits from every limit that applies, or from none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// What is about to happen. The rules that apply are found by these key-values.
    #[serde(alias = "KeyValues")]
    pub key_values: KeyValues,
    /// How much to take: 0 to 2^53−1. 0 takes nothing and only reports. Default: 1.
    #[serde(default = "one")]
    #[schema(maximum = 9_007_199_254_740_991_i64)]
    pub hits: u64,
    /// Decide, but take nothing. Default: `false`.
    #[serde(default)]
    pub dry_run: bool,
    /// If no rule applies, refuse the check with `NoRuleApplies`, so that a misspelt key cannot switch a limit off. Default:
    /// `false`: then the check is allowed.
    #[serde(default)]
    pub require_match: bool,
    /// It has happened already: count it whatever the limits say, so that a bucket goes into debt. The answer is 200, and
    /// `allowed` says whether it was within all limits. Not together with `dry_run`. Default: `false`.
    #[serde(default)]
    pub report: bool,
}

pub(super) fn one() -> u64 {
    1
}

/// `POST /check/batch`: several checks, executed in order. Each is allowed or refused alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckBatch {
    /// The checks, 1–8,192.
    #[serde(deserialize_with = "object::list::<MAX_BATCH, _, _>")]
    #[schema(min_items = 1, max_items = 8192)]
    pub checks: Vec<Check>,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CheckReply {
    /// Only in a batch: the HTTP status that the single check would have.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub status: Option<u16>,
    /// Whether the check took its hits or, with `dry_run`, would have taken them. With `report`: whether it was within all
    /// limits.
    pub allowed: bool,
    /// Every limit that applied, ordered by rule, then by override.
    pub limits: Vec<LimitStatus>,
    /// The time in milliseconds after which the same check would pass if nothing else happened; `null` if it is
    /// allowed, never passes, or the time is not known.
    #[schema(required, value_type = Option<u64>)]
    pub retry_after_ms: Option<Millis>,
}

/// One limit that applied to a check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LimitStatus {
    /// The name of the rule.
    #[schema(required)]
    pub rule: Option<Name>,
    /// The name of the override; `null` if this is the rule's own limit.
    #[serde(rename = "override")]
    #[schema(required)]
    pub override_name: Option<Name>,
    /// The group: the `group_by` keys with their values, or the key-values of the override.
    pub group: KeyValues,
    /// The limit; for a bucket, its burst. −1: no limit.
    #[schema(value_type = i64)]
    pub limit: Limit,
    /// How much is used: after this check if it was allowed or is a `report`, otherwise unchanged. For a bucket: the burst minus the
    /// whole tokens left.
    pub used: u64,
    /// `limit` − `used`, at least 0; `null` if there is no limit.
    #[schema(required)]
    pub remaining: Option<u64>,
    /// The time in milliseconds after which nothing that is used now counts any more; `null` without a window, if never,
    /// or if it is more than 2^53−1.
    #[schema(required, value_type = Option<u64>)]
    pub reset_ms: Option<Millis>,
    /// Whether the rule only counts and reports.
    pub shadow: bool,
    /// Whether the check asked for more than remained, or earlier requests wait for it.
    pub exceeded: bool,
    /// The number of requests that wait in the group.
    pub waiting: usize,
}

/// The problem document of a refused check, counter or lease. Nothing was taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LimitReached {
    /// The registered type of such problems.
    #[serde(rename = "type")]
    #[schema(example = "https://iana.org/assignments/http-problem-types#quota-exceeded")]
    pub kind: Cow<'static, str>,
    /// What `code` means, in a few words. For people; may change.
    pub title: Cow<'static, str>,
    /// The HTTP status: 429, or 409 for a counter.
    pub status: u16,
    /// Which limits refuse. For people; may change.
    pub detail: String,
    /// Always `LimitReached`.
    pub code: Cow<'static, str>,
    /// The id of the request, which the header `X-Request-Id` has too. Absent in the results of a batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub request_id: Option<RequestId>,
    /// The limits that refuse, with the names that they have in the header `RateLimit-Policy`.
    #[serde(rename = "violated-policies")]
    pub violated_policies: Vec<String>,
    /// Always `false`.
    pub allowed: bool,
    /// Every limit that applied, ordered by rule, then by override.
    pub limits: Vec<LimitStatus>,
    /// The time in milliseconds after which the same check would pass if nothing else happened; `null` if it never
    /// passes, or the time is not known.
    #[schema(required, value_type = Option<u64>)]
    pub retry_after_ms: Option<Millis>,
}

/// The results of a batch of checks.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct CheckBatchReply {
    /// One result per check, in the order of the request.
    pub results: Vec<CheckResult>,
}

/// The result of one check of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum CheckResult {
    /// The check is allowed.
    Allowed(CheckReply),
    /// A limit refuses the check.
    LimitReached(LimitReached),
    /// The check is not valid, no rule applies although it requires one, or a quota is exceeded.
    Refused(Problem),
}
