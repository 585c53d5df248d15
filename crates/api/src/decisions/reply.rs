//! What became of a decision, and why one was refused.

use crate::{
    KeyValues, Problem, RequestId,
    ledger::LimitValue,
    limiter::LimitStatus,
    locks::{Lock, Mode},
};
use alloc::{borrow::Cow, string::String, vec::Vec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

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
    pub locks: Vec<Lock>,
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
    pub status: LimitStatus,
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
    pub status: LimitStatus,
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
