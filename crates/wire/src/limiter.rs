//! The limiter: rules over any combination of key-values, overrides, checks, counters, leases.
//!
//! What a check reads and answers borrows its texts, from the body or from what is answered: it is asked more often
//! than anything else.

use crate::{Duration, KeyValues, MAX_BATCH, Problem, Selection, object, words::from_word};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use utoipa::ToSchema;

/// `POST /rules` and `PUT /rules/{name}`: make a rule, or replace all of it but its name and its overrides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRule<'a> {
    /// Its name within the namespace. In a PUT it may be left out, or is the one of the path.
    #[serde(default, alias = "Name", skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 256, example = "per-card")]
    pub name: Option<String>,
    /// Each distinct combination of these keys' values has a limit of its own. None: one limit for all.
    #[serde(default, alias = "GroupBy", deserialize_with = "object::values::<16, _, _>")]
    #[schema(max_items = 16, example = json!(["card"]))]
    pub group_by: Vec<String>,
    /// What it applies to, besides having the keys.
    #[serde(
        borrow,
        default,
        alias = "Selection",
        alias = "Seletion",
        skip_serializing_if = "Option::is_none"
    )]
    pub selection: Option<Selection<'a>>,
    /// How much: at most 2^53−1; −1 is no limit, and with 0 nothing passes.
    #[serde(alias = "Limit")]
    #[schema(minimum = -1, maximum = 9_007_199_254_740_991_i64, example = 100)]
    pub limit: i64,
    /// Within what; without, what is in use counts.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub window: Option<NewWindow>,
    /// Count and report, but never refuse.
    #[serde(default)]
    pub shadow: bool,
    /// Whether a check waits for the disk; if absent, `relaxed` with a window and `durable` without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// The client's words about it, up to 1,024 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// The span within which a limit holds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewWindow {
    /// Which kind.
    #[serde(rename = "type")]
    pub kind: WindowType,
    /// How long: 1 ms–366 d. For a bucket, the time in which a whole limit is refilled.
    pub per: Duration,
    /// Of a bucket: how much it holds, 1 to 2^53−1; if absent, the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_i64)]
    pub burst: Option<u64>,
}

/// The kinds of windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", try_from = "Cow<'_, str>")]
pub enum WindowType {
    /// Spans one after another, aligned to the epoch.
    Fixed,
    /// Any span of this length.
    Sliding,
    /// The limit is refilled evenly.
    Bucket,
}

from_word!(WindowType: "fixed" => Fixed, "sliding" => Sliding, "bucket" => Bucket);

/// Whether a reply waits for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", try_from = "Cow<'_, str>")]
pub enum Durability {
    /// What was answered is never forgotten.
    Durable,
    /// After a crash the last instants before it may be forgotten.
    Relaxed,
}

from_word!(Durability: "durable" => Durable, "relaxed" => Relaxed);

/// `PATCH /rules/{name}`: change what is mentioned; `null` removes what may be absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RulePatch<'a> {
    /// The new limit.
    #[serde(
        default,
        alias = "Limit",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object::present"
    )]
    #[schema(minimum = -1, maximum = 9_007_199_254_740_991_i64, nullable = false)]
    pub limit: Option<i64>,
    /// The new window, in place of the old one.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::patch_object")]
    #[schema(value_type = Option<NewWindow>)]
    pub window: Option<Option<NewWindow>>,
    /// The new selection, in place of the old one.
    #[serde(
        borrow,
        default,
        alias = "Selection",
        alias = "Seletion",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object::patch"
    )]
    #[schema(value_type = Option<Selection<'a>>)]
    pub selection: Option<Option<Selection<'a>>>,
    /// Refuse, or only report.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::present")]
    #[schema(nullable = false)]
    pub shadow: Option<bool>,
    /// Wait for the disk or not; `null` is the default of the window.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::patch")]
    #[schema(value_type = Option<Durability>)]
    pub durability: Option<Option<Durability>>,
    /// Other words.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::patch")]
    #[schema(value_type = Option<String>)]
    pub description: Option<Option<String>>,
}

/// `POST /rules/{name}/overrides` and `PUT …/overrides/{override}`: make an override, or replace all of it but its
/// name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewOverride<'a> {
    /// Its name within the rule. In a PUT it may be left out, or is the one of the path.
    #[serde(default, alias = "Name", skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 256, example = "big-customer")]
    pub name: Option<String>,
    /// What it applies to: every key by which the rule groups, and more if wished.
    #[serde(borrow, alias = "KeyValues")]
    pub key_values: KeyValues<'a>,
    /// The limit in place of the rule's; −1 is no limit.
    #[serde(alias = "Limit")]
    #[schema(minimum = -1, maximum = 9_007_199_254_740_991_i64, example = 1000)]
    pub limit: i64,
    /// The burst in place of the rule's, for a bucket; if absent, this limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_i64)]
    pub burst: Option<u64>,
}

/// `PATCH /rules/{name}/overrides/{override}`: change what is mentioned; `null` removes the burst.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OverridePatch<'a> {
    /// Other key-values.
    #[serde(
        borrow,
        default,
        alias = "KeyValues",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object::present"
    )]
    #[schema(nullable = false)]
    pub key_values: Option<KeyValues<'a>>,
    /// The new limit.
    #[serde(
        default,
        alias = "Limit",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object::present"
    )]
    #[schema(minimum = -1, maximum = 9_007_199_254_740_991_i64, nullable = false)]
    pub limit: Option<i64>,
    /// The new burst.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::patch")]
    #[schema(value_type = Option<u64>)]
    pub burst: Option<Option<u64>>,
}

/// `POST /rules/match`: which rules and overrides would apply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MatchQuery<'a> {
    /// To what.
    #[serde(borrow, alias = "KeyValues")]
    pub key_values: KeyValues<'a>,
}

/// `POST /check`: take from every limit that applies, or from none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Check<'a> {
    /// What is to happen.
    #[serde(borrow, alias = "KeyValues")]
    pub key_values: KeyValues<'a>,
    /// How much to take: at most 2^53−1; 0 only looks.
    #[serde(default = "one")]
    #[schema(maximum = 9_007_199_254_740_991_i64)]
    pub hits: u64,
    /// Decide, and take nothing.
    #[serde(default)]
    pub dry_run: bool,
}

fn one() -> u64 {
    1
}

/// `POST /check/batch`: several checks, each on its own, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckBatch<'a> {
    /// The single checks.
    #[serde(borrow, deserialize_with = "object::list::<MAX_BATCH, _, _>")]
    #[schema(min_items = 1, max_items = 8192)]
    pub checks: Vec<Check<'a>>,
}

/// `POST /counters` and `PUT /counters`: take or give back. `PUT /counters/set`: set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CounterChange<'a> {
    /// The exact counter.
    #[serde(borrow, alias = "KeyValues")]
    pub key_values: KeyValues<'a>,
    /// Positive to take, negative to give back, 0 to look; or what to set it to, where 0 or less removes it.
    #[schema(minimum = -9_007_199_254_740_991_i64, maximum = 9_007_199_254_740_991_i64, example = 1)]
    pub counters: i64,
}

/// `POST /leases`: check, and hold what was taken until it is released or its time has run out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewLease<'a> {
    /// What is to happen.
    #[serde(borrow, alias = "KeyValues")]
    pub key_values: KeyValues<'a>,
    /// How much to take: 1 to 2^53−1.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_i64)]
    pub hits: u64,
    /// How long, unless it is extended: 100 ms–24 h.
    pub ttl: Duration,
    /// The client's word for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 256, example = "worker-3")]
    pub owner: Option<String>,
}

/// `POST /leases/{lease_id}/heartbeat`: nothing needs to be said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Heartbeat {}

/// A rule.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Rule<'a> {
    /// Its name.
    pub name: Cow<'a, str>,
    /// Each distinct combination of these keys' values has a limit of its own.
    pub group_by: Vec<Cow<'a, str>>,
    /// What it applies to, besides having the keys.
    pub selection: Selection<'a>,
    /// How much; −1 is no limit.
    pub limit: i64,
    /// Within what; `null` where what is in use counts.
    #[schema(required)]
    pub window: Option<Window>,
    /// Whether it only reports.
    pub shadow: bool,
    /// Whether a check waits for the disk.
    pub durability: Durability,
    /// The client's words about it.
    #[schema(required)]
    pub description: Option<Cow<'a, str>>,
    /// How many overrides it has.
    pub overrides: u64,
    /// `file` if a file manages it, and only the file changes it.
    #[schema(required)]
    pub managed_by: Option<ManagedBy>,
    /// The position at which it was made.
    pub created_position: u64,
}

/// The span within which a limit holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct Window {
    /// Which kind.
    #[serde(rename = "type")]
    pub kind: WindowType,
    /// How long, in milliseconds.
    pub per_ms: u64,
    /// Of a bucket: how much it holds; `null` for the limit, and for other kinds.
    #[schema(required)]
    pub burst: Option<u64>,
}

/// What manages a rule, if clients do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ManagedBy {
    /// A file of the server's.
    File,
}

/// An override.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Override<'a> {
    /// The rule that it belongs to.
    pub rule: Cow<'a, str>,
    /// Its name within the rule.
    pub name: Cow<'a, str>,
    /// What it applies to.
    pub key_values: KeyValues<'a>,
    /// The limit in place of the rule's; −1 is no limit.
    pub limit: i64,
    /// The burst in place of the rule's; `null` for the limit, and where the rule is no bucket.
    #[schema(required)]
    pub burst: Option<u64>,
    /// The position at which it was made.
    pub created_position: u64,
}

/// What would apply.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct MatchReply<'a> {
    /// The rules, by name.
    pub rules: Vec<RuleMatch<'a>>,
}

/// A rule that applies, with what of it does.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct RuleMatch<'a> {
    /// The rule.
    #[serde(flatten)]
    pub rule: Rule<'a>,
    /// The values of the keys by which it groups.
    pub group: KeyValues<'a>,
    /// Its overrides that apply, by name.
    pub matching_overrides: Vec<Override<'a>>,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct CheckReply<'a> {
    /// In a batch, the HTTP status of the single check.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub status: Option<u16>,
    /// Whether it took what it asked for, or would have.
    pub allowed: bool,
    /// Every limit that applied, by rule, then by override.
    pub limits: Vec<LimitStatus<'a>>,
    /// When the same check would pass if nothing else happened; `null` if allowed, not known, or never.
    #[schema(required)]
    pub retry_after_ms: Option<u64>,
}

/// One limit's part in a check.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct LimitStatus<'a> {
    /// The rule.
    #[schema(required)]
    pub rule: Option<Cow<'a, str>>,
    /// The override, if it is one's limit.
    #[serde(rename = "override")]
    #[schema(required)]
    pub override_name: Option<Cow<'a, str>>,
    /// The values of the keys by which the rule groups, or the override's key-values.
    pub group: KeyValues<'a>,
    /// The limit; for a bucket its burst; −1 is no limit.
    pub limit: i64,
    /// After this check where it was allowed, and unchanged where it was not.
    pub used: u64,
    /// What is left; `null` where there is no limit.
    #[schema(required)]
    pub remaining: Option<u64>,
    /// When nothing of what is used now counts any more; `null` without a window.
    #[schema(required)]
    pub reset_ms: Option<u64>,
    /// It reports and never refuses.
    pub shadow: bool,
    /// What was asked for is more than is left.
    pub exceeded: bool,
}

/// The problem document of a check that was refused. Nothing was moved.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct LimitReached<'a> {
    /// The registered type of such a problem.
    #[serde(rename = "type")]
    #[schema(example = "https://iana.org/assignments/http-problem-types#quota-exceeded")]
    pub kind: Cow<'static, str>,
    /// The kind of problem in a few words.
    pub title: Cow<'static, str>,
    /// The HTTP status: 429, or 409 of a counter.
    pub status: u16,
    /// Which limits refuse, for a human reader.
    pub detail: String,
    /// `LimitReached`.
    pub code: Cow<'static, str>,
    /// The limits that refuse, by the names that they have in the header `RateLimit-Policy`.
    #[serde(rename = "violated-policies")]
    pub violated_policies: Vec<Cow<'a, str>>,
    /// `false`.
    pub allowed: bool,
    /// Every limit that applied, by rule, then by override.
    pub limits: Vec<LimitStatus<'a>>,
    /// When the same check would pass if nothing else happened; `null` if not known, or never.
    #[schema(required)]
    pub retry_after_ms: Option<u64>,
}

/// The results of a batch of checks, in its order.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct CheckBatchReply<'a> {
    /// One per check.
    pub results: Vec<CheckResult<'a>>,
}

/// The result of one check of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum CheckResult<'a> {
    /// Allowed.
    Allowed(CheckReply<'a>),
    /// A limit refuses.
    LimitReached(LimitReached<'a>),
    /// It does not parse or validate.
    Refused(Problem),
}

/// A counter.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Counter<'a> {
    /// The exact key-values.
    pub key_values: KeyValues<'a>,
    /// What is in use in all.
    pub counters: u64,
    /// What of it leases hold.
    pub leased: u64,
}

/// A counter after taking or giving back, and what the check for it found.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct CounterReply<'a> {
    /// The exact key-values.
    pub key_values: KeyValues<'a>,
    /// What is in use in all.
    pub counters: u64,
    /// What of it leases hold.
    pub leased: u64,
    /// Whether it took what it asked for.
    pub allowed: bool,
    /// Every limit that applied, by rule, then by override.
    pub limits: Vec<LimitStatus<'a>>,
    /// `null`.
    #[schema(required)]
    pub retry_after_ms: Option<u64>,
}

/// A lease that was taken.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct LeaseReply<'a> {
    /// Its id.
    pub lease_id: Cow<'a, str>,
    /// Grows with every lease of the namespace.
    pub fencing_token: u64,
    /// When it ends, unless it is extended.
    pub expires_in_ms: u64,
    /// Every limit that applied, by rule, then by override.
    pub limits: Vec<LimitStatus<'a>>,
}

/// A lease.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Lease<'a> {
    /// Its id.
    pub lease_id: Cow<'a, str>,
    /// Grows with every lease of the namespace.
    pub fencing_token: u64,
    /// What it holds from.
    pub key_values: KeyValues<'a>,
    /// How much.
    pub hits: u64,
    /// Whose it is.
    #[schema(required)]
    pub owner: Option<Cow<'a, str>>,
    /// For how long it has been held.
    pub held_ms: u64,
    /// When it ends, unless it is extended.
    pub expires_in_ms: u64,
    /// By how much a heartbeat extends it.
    pub ttl_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Object;

    /// Which message parsing a rule ends in; none if it is one.
    #[track_caller]
    fn check<'a, T: Deserialize<'a>>(json: &'a str, expect: Option<&str>) {
        match (serde_json::from_str::<Object<T>>(json), expect) {
            (Ok(_), None) => {}
            (Err(error), Some(part)) => assert!(error.to_string().contains(part), "{json} gave {error}"),
            (Ok(_), Some(_)) => panic!("{json} was accepted"),
            (Err(error), None) => panic!("{json} gave {error}"),
        }
    }

    #[test]
    fn aliases_are_the_same_field() {
        let rule = check::<NewRule<'_>>;
        rule(r#"{"Name": "r", "GroupBy": ["k"], "Selection": {}, "Limit": 1}"#, None);
        rule(r#"{"Name": "r", "GroupBy": ["k"], "Seletion": {}, "Limit": 1}"#, None);
        rule(r#"{"name": "r", "Name": "r", "limit": 1}"#, Some("duplicate field `name`"));
        rule(r#"{"name": "r", "limit": 1, "Limit": 1}"#, Some("duplicate field `limit`"));
        rule(r#"{"Selection": {}, "Seletion": {}, "limit": 1}"#, Some("duplicate field `selection`"));
        rule(r#"{"group_by": [], "GroupBy": [], "limit": 1}"#, Some("duplicate field `group_by`"));
        rule(r#"{"NAME": "r", "limit": 1}"#, Some("unknown field `NAME`"));
        check::<Check<'_>>(r#"{"KeyValues": {"k": 1}}"#, None);
        check::<Check<'_>>(r#"{"KeyValues": {}, "key_values": {}}"#, Some("duplicate field `key_values`"));
        check::<NewOverride<'_>>(r#"{"Name": "o", "KeyValues": {"k": 1}, "Limit": 1}"#, None);
        check::<OverridePatch<'_>>(r#"{"KeyValues": {"k": 1}, "Limit": 1}"#, None);
        check::<RulePatch<'_>>(r#"{"Seletion": null, "Limit": 1}"#, None);
        check::<CounterChange<'_>>(r#"{"KeyValues": {"k": 1}, "counters": 1}"#, None);
        check::<NewLease<'_>>(r#"{"KeyValues": {"k": 1}, "ttl": "1s"}"#, None);
        check::<MatchQuery<'_>>(r#"{"KeyValues": {"k": 1}}"#, None);
    }

    #[test]
    fn null_stands_only_where_something_may_be_absent() {
        let patch = check::<RulePatch<'_>>;
        patch(r#"{"window": null, "selection": null, "durability": null, "description": null}"#, None);
        patch(r#"{"limit": null}"#, Some("invalid type: null"));
        patch(r#"{"shadow": null}"#, Some("invalid type: null"));
        patch(r#"{"window": ["fixed", 1]}"#, Some("an object"));
        check::<OverridePatch<'_>>(r#"{"burst": null}"#, None);
        check::<OverridePatch<'_>>(r#"{"key_values": null}"#, Some("invalid type: null"));
        check::<Check<'_>>(r#"{"key_values": null}"#, Some("invalid type: null"));
        check::<Check<'_>>(r#"{"key_values": {}, "hits": null}"#, Some("invalid type: null"));
        check::<Heartbeat>("{}", None);
        check::<Heartbeat>(r#"{"x": 1}"#, Some("unknown field"));
    }
}
