//! Decisions: checks, holds, locks and an event, all or nothing, under one operation id.

#[cfg(feature = "openapi")]
use crate::Name;
#[cfg(feature = "openapi")]
use crate::schema::{Ttl, Wait};
use crate::{
    Duration, KeyValues, MAX_BATCH, Problem, RequestId,
    ledger::{Change, LimitValue},
    limiter::LimitStatus,
    locks::{HeldLock, Mode, WantedLock},
    object,
};
use alloc::borrow::Cow;
use alloc::{string::String, vec::Vec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `POST /decisions`: take, hold, lock and submit at one instant, or nothing. At least one part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewDecision<'a> {
    /// The client's id for the operation. Operations of the ledger share these ids. Whoever knows the id can end the
    /// decision, so choose one that cannot be guessed.
    #[schema(value_type = Name, example = "req-8f2c")]
    pub operation_id: String,
    /// The client's name for itself, which everybody can read. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Name>, example = "gateway-3")]
    pub owner: Option<String>,
    /// How long the decision stays open without a heartbeat: 100 ms–24 h. Default: 60 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Ttl>)]
    pub ttl: Option<Duration>,
    /// The ttl in milliseconds, in place of `ttl`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 100, maximum = 86_400_000)]
    pub ttl_ms: Option<u64>,
    /// How long to wait for locks and slots: 0–5 min. Default: 0. In a batch it must be 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Wait>)]
    pub wait: Option<Duration>,
    /// The wait in milliseconds, in place of `wait`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 300_000)]
    pub wait_ms: Option<u64>,
    /// Decide, but move nothing, and do not wait. Default: `false`.
    #[serde(default)]
    pub dry_run: bool,
    /// If a slot or a ceiling refuses, name those who hold it. Default: `false`.
    #[serde(default)]
    pub explain: bool,
    /// What is taken from limits of the limiter, in this order: a later check sees what an earlier one takes.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "object::list::<16, _, _>")]
    #[schema(max_items = 16)]
    pub checks: Vec<DecisionCheck>,
    /// What is held in limits of the ledger. Each limit may occur once.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "object::list::<64, _, _>")]
    #[schema(max_items = 64)]
    pub holds: Vec<Change>,
    /// Create the limits of the ledger that do not exist. Default: `false`.
    #[serde(default)]
    pub create_missing: bool,
    /// The locks. Each may occur once.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "object::list::<64, _, _>")]
    #[schema(max_items = 64)]
    pub locks: Vec<WantedLock>,
    /// An event that is published after the commit.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub event: Option<DecisionEvent<'a>>,
}

/// A check of a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DecisionCheck {
    /// The name of the check within the decision, each once. A commit needs it to state the actual hits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Name>, example = "tokens")]
    pub name: Option<String>,
    /// What is about to happen. The rules that apply are found by these key-values.
    #[serde(alias = "KeyValues")]
    pub key_values: KeyValues,
    /// How much to take: 0 to 2^53−1. 0 takes nothing and only reports. Default: 1.
    #[serde(default = "one")]
    #[schema(maximum = 9_007_199_254_740_991_i64)]
    pub hits: u64,
    /// If no rule applies, refuse the decision with `NoRuleApplies`. Default: `false`.
    #[serde(default)]
    pub require_match: bool,
    /// `hits` is an estimate: a commit may state the actual hits, and a rollback refunds the windows. Default: `false`.
    #[serde(default)]
    pub estimate: bool,
}

fn one() -> u64 {
    1
}

/// The event of a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DecisionEvent<'a> {
    /// The name of the stream. It must exist.
    #[schema(value_type = Name, example = "mails")]
    pub stream: String,
    /// The text of the event, 1–1,024 bytes. Events with the same text are duplicates.
    #[serde(borrow)]
    #[schema(min_length = 1, max_length = 1024, example = "welcome, ann", extensions(("x-max-bytes" = json!(1024))))]
    pub event: Cow<'a, str>,
}

/// `POST /decisions/{operation_id}/commit`: it has happened, at these amounts. What is not named ends at its default: an
/// estimate as it was taken, a hold as it was held.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CommitDecision {
    /// The actual hits of checks that are estimates. Each check may occur once.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "object::list::<16, _, _>")]
    #[schema(max_items = 16)]
    pub checks: Vec<ActualHits>,
    /// The values to commit. Each limit may occur once.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "object::list::<64, _, _>")]
    #[schema(max_items = 64)]
    pub holds: Vec<ActualValue>,
    /// It has happened anyway: book more than was held, past a ceiling, and also after the decision has expired or was
    /// released by force. Default: `false`.
    #[serde(default)]
    pub record: bool,
}

/// An item of `POST /decisions/commit/batch`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CommitItem {
    /// The decision to commit.
    #[schema(value_type = Name, example = "req-8f2c")]
    pub operation_id: String,
    /// The actual hits of checks that are estimates. Each check may occur once.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "object::list::<16, _, _>")]
    #[schema(max_items = 16)]
    pub checks: Vec<ActualHits>,
    /// The values to commit. Each limit may occur once.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "object::list::<64, _, _>")]
    #[schema(max_items = 64)]
    pub holds: Vec<ActualValue>,
    /// It has happened anyway. Default: `false`.
    #[serde(default)]
    pub record: bool,
}

/// How much a check that was an estimate has really taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ActualHits {
    /// The name of the check.
    #[schema(value_type = Name, example = "tokens")]
    pub name: String,
    /// The actual hits: 0 to 2^53−1.
    #[schema(maximum = 9_007_199_254_740_991_i64)]
    pub hits: u64,
}

/// The value to commit in one limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ActualValue {
    /// The name of the limit. The decision must hold in it.
    #[schema(value_type = Name, example = "budget/acme/2026-11")]
    pub limit_name: String,
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
    #[schema(value_type = Name, example = "req-8f2c")]
    pub operation_id: String,
}

/// `POST /decisions/batch`: several decisions, made in order. Each succeeds or fails alone, and none may wait.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DecisionBatch<'a> {
    /// The decisions, 1–8,192.
    #[serde(borrow, deserialize_with = "object::list::<MAX_BATCH, _, _>")]
    #[schema(min_items = 1, max_items = 8192)]
    pub operations: Vec<NewDecision<'a>>,
}

/// A decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Decision<'a> {
    /// Only in a batch: the HTTP status that the single call would have.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub status: Option<u16>,
    /// The client's id for the operation.
    pub operation_id: Cow<'a, str>,
    /// Whether the decision is open, or how it has ended.
    pub state: State,
    /// Whether an earlier request made the decision.
    pub repeated: bool,
    /// Whether the decision was recorded after it had ended in another way.
    pub late: bool,
    /// The holder's name for itself, or `null`.
    #[schema(required)]
    pub owner: Option<Cow<'a, str>>,
    /// The position of the change that made the decision or, if it has ended, of its end; `null` in a dry run.
    #[schema(required)]
    pub position: Option<u64>,
    /// A number that grows with every decision and every lock of the namespace; `null` in a dry run.
    #[schema(required)]
    pub fencing_token: Option<u64>,
    /// The time since the decision was made, in milliseconds. If it has ended: until then.
    pub held_ms: u64,
    /// The time until the decision expires without a heartbeat, in milliseconds; `null` if it has ended.
    #[schema(required)]
    pub expires_in_ms: Option<u64>,
    /// The ttl in milliseconds: a heartbeat extends the decision to this time from now.
    pub ttl_ms: u64,
    /// Every limit that applies to the checks, in the order of the checks, then by rule, then by override.
    pub limits: Vec<LimitOfDecision<'a>>,
    /// The values of the limits in which the decision holds, in the order of the request.
    pub values: Vec<LimitValue>,
    /// The locks.
    pub locks: Vec<HeldLock>,
    /// The event; `null` if the decision has none, or if its stream was deleted.
    #[schema(required)]
    pub event: Option<EventOfDecision<'a>>,
}

/// The state of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = DecisionState)]
pub enum State {
    /// A request under the id waits for locks or slots. Nothing is held.
    Waiting,
    /// The decision is open.
    Open,
    /// It has happened.
    Committed,
    /// It has not happened.
    RolledBack,
    /// Its ttl passed without a heartbeat.
    Expired,
}

/// A limit that applies to a check of a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LimitOfDecision<'a> {
    /// The check.
    pub check: CheckOfDecision<'a>,
    /// The limit.
    #[serde(flatten)]
    pub status: LimitStatus<'a>,
}

/// A check of a decision: its name or, if it has none, its place among the checks, from 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum CheckOfDecision<'a> {
    /// The name.
    Name(Cow<'a, str>),
    /// The place.
    Place(u32),
}

/// The event of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventOfDecision<'a> {
    /// The name of the stream.
    pub stream: Cow<'a, str>,
    /// The text of the event.
    pub event: Cow<'a, str>,
    /// What became of the event.
    pub status: EventStatus,
    /// When the event was accepted, in epoch milliseconds.
    pub time: u64,
    /// When the event is published if the decision is committed by then, in epoch milliseconds. A later commit publishes
    /// it at once.
    pub publishes_at: u64,
}

/// What became of the event of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventStatus {
    /// The event incubates.
    Submitted,
    /// The event is published.
    Published,
    /// The event will not be published.
    Invalidated,
}

/// The problem document of a refused decision. Nothing has moved, and the id is free.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = RefusedDecision)]
pub struct Refused<'a> {
    /// A reference to the description of `code`.
    #[serde(rename = "type")]
    #[schema(example = "/docs#Refused")]
    pub kind: Cow<'static, str>,
    /// What `code` means, in a few words. For people; may change.
    pub title: Cow<'static, str>,
    /// The HTTP status: 429 if a limit of the limiter refuses, else 409.
    pub status: u16,
    /// Which parts refuse. For people; may change.
    pub detail: String,
    /// Always `Refused`.
    pub code: Cow<'static, str>,
    /// The id of the request, which the header `X-Request-Id` has too. Absent in the results of a batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub request_id: Option<RequestId>,
    /// The kinds of parts that refuse.
    pub refused_by: Vec<Part>,
    /// The limits of the limiter that refuse.
    pub limits: Vec<RefusedLimit<'a>>,
    /// The holds that are refused.
    pub holds: Vec<RefusedHold<'a>>,
    /// The locks that cannot be had.
    pub locks: Vec<RefusedLock<'a>>,
    /// Why the event is refused; `null` if it is not.
    #[schema(required)]
    pub event: Option<RefusedEvent>,
    /// The time in milliseconds after which all of it would be allowed if nothing else happened; `null` if a slot, a
    /// ceiling or a lock refuses, or if the time is not known.
    #[schema(required)]
    pub retry_after_ms: Option<u64>,
}

/// A kind of parts of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = DecisionPart)]
pub enum Part {
    /// Limits of the limiter.
    Limits,
    /// Holds in limits of the ledger.
    Holds,
    /// Locks.
    Locks,
    /// The event.
    Event,
}

/// A limit of the limiter that refuses a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RefusedLimit<'a> {
    /// Always `LimitReached`.
    pub code: Cow<'static, str>,
    /// The check.
    pub check: CheckOfDecision<'a>,
    /// The limit.
    #[serde(flatten)]
    pub status: LimitStatus<'a>,
    /// Only with `explain`, for a limit without a window: those who have held it longest, at most 8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub held_by: Option<Vec<HeldBy<'a>>>,
}

/// A hold that refuses a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RefusedHold<'a> {
    /// `LimitExceeded`, or `ValueOverflow`.
    pub code: Cow<'static, str>,
    /// The name of the limit.
    pub limit_name: Cow<'a, str>,
    /// The ceiling. `null` if the limit has none.
    pub ceiling: Option<i64>,
    /// The sum of all commits.
    pub commit_value: i64,
    /// The sum of all open holds.
    pub hold_value: i64,
    /// The largest value that could be held now.
    pub available: i64,
    /// Only with `explain`: the decisions that have held in the limit longest, at most 8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub held_by: Option<Vec<HeldBy<'a>>>,
}

/// Who holds a part of a slot or of a ceiling: a decision (`operation_id`) or a lease (`lease_id`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HeldBy<'a> {
    /// The decision. Absent for a lease by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub operation_id: Option<Cow<'a, str>>,
    /// The lease. Absent for a decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub lease_id: Option<Cow<'a, str>>,
    /// The holder's name for itself, or `null`.
    #[schema(required)]
    pub owner: Option<Cow<'a, str>>,
    /// The time since it is held, in milliseconds.
    pub held_ms: u64,
    /// The time until it expires without a heartbeat, in milliseconds.
    pub expires_in_ms: u64,
}

/// A lock that refuses a decision, with the first that is in its way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RefusedLock<'a> {
    /// Always `LockHeld`.
    pub code: Cow<'static, str>,
    /// The key-values that identify the lock.
    pub key_values: KeyValues,
    /// The mode that was asked for.
    pub mode: Mode,
    /// The holder's name for itself, or `null`.
    #[schema(required)]
    pub owner: Option<Cow<'a, str>>,
    /// The time since the lock is held, in milliseconds; `null` if an earlier request waits for the lock and nobody holds it.
    #[schema(required)]
    pub held_ms: Option<u64>,
    /// The time until the holder's grant expires without a heartbeat, in milliseconds; `null` as for `held_ms`.
    #[schema(required)]
    pub expires_in_ms: Option<u64>,
    /// The number of requests that wait for the lock.
    pub waiting: usize,
}

/// Why the event of a decision is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefusedEvent {
    /// `EventConflict`: the same event happened within the duration. `StreamFull`: the stream remembers its maximum of events.
    pub code: Cow<'static, str>,
    /// The time of the latest occurrence, in epoch milliseconds. `null` with `StreamFull`.
    pub conflicting_time: Option<u64>,
    /// When the event is accepted again, in epoch milliseconds. `null` with `StreamFull`, and if it is not known, because an open
    /// decision has submitted the event.
    pub open_at: Option<u64>,
    /// With `StreamFull`: how many distinct events the stream can remember.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub max_events: Option<u32>,
}

/// The results of a batch of decisions, commits or rollbacks.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct DecisionBatchReply<'a> {
    /// One result per item, in the order of the request.
    pub results: Vec<DecisionResult<'a>>,
}

/// The result of one item of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum DecisionResult<'a> {
    /// The item succeeded.
    Done(Decision<'a>),
    /// At least one part refuses.
    Refused(Refused<'a>),
    /// The item is not valid, or was refused for another reason.
    Problem(Problem),
}
