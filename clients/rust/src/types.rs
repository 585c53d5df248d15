//! The documents of the API, as this client reads them. Unknown fields are ignored, so that an older client understands a newer
//! server; [`Reply::json`](crate::Reply::json) has them all.

use limina_wire as wire;
use serde::{Deserialize, Serialize};

pub use wire::{
    KeyValues, Page, Problem,
    audit::AuditRecord,
    key_values::KeyValue,
    ledger::{Entry, FinalizationReply, HoldReply, Limit, LimitValue, Operation, ValuesReply},
    namespace::Namespace,
};

/// The answer to a check.
pub type CheckReply = wire::limiter::CheckReply<'static>;
/// A limit that applied to a check.
pub type LimitStatus = wire::limiter::LimitStatus<'static>;
/// A counter after taking or giving back.
pub type CounterReply = wire::limiter::CounterReply<'static>;
/// How much is in use for exact key-values.
pub type Counter = wire::limiter::Counter<'static>;
/// A lease that was granted to this client.
pub type LeaseGrant = wire::limiter::LeaseReply<'static>;
/// A lease, as everybody can read it.
pub type Lease = wire::limiter::Lease<'static>;
/// A rule.
pub type Rule = wire::limiter::Rule<'static>;
/// The rules that apply to key-values.
pub type MatchReply = wire::limiter::MatchReply<'static>;
/// An override.
pub type Override = wire::limiter::Override<'static>;
/// The groups of a rule that use the most.
pub type Groups = wire::limiter::Groups<'static>;
/// Locks that were granted to this client.
pub type LockGrant = wire::locks::Granted<'static>;
/// One lock of a grant.
pub type HeldLock = wire::locks::HeldLock<'static>;
/// A grant of locks, as everybody can read it.
pub type Lock = wire::locks::Lock<'static>;
/// A stream of events.
pub type Stream = wire::events::Stream<'static>;
/// An event that was accepted.
pub type Submitted = wire::events::Submitted<'static>;
/// All incubating events of a stream.
pub type Incubating = wire::events::Incubating<'static>;
/// A message to the followers of a stream: a change, or a key frame.
pub type Message = wire::events::Message<'static>;

/// A decision over limits, holds, locks and an event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The id under which retries and the end find the decision.
    pub operation_id: String,
    /// Whether the decision is open, or how it has ended.
    pub state: DecisionState,
    /// Whether an earlier request made the decision.
    #[serde(default)]
    pub repeated: bool,
    /// Whether the decision was recorded after it had ended in another way.
    #[serde(default)]
    pub late: bool,
    /// The position of the decision or, if it has ended, of its end; `None` in a dry run.
    pub position: Option<u64>,
    /// Grows with every grant of the namespace; `None` in a dry run.
    pub fencing_token: Option<u64>,
    /// The time until the decision expires without a heartbeat; `None` if it has ended.
    pub expires_in_ms: Option<u64>,
    /// Every limit that applied to the checks.
    pub limits: Vec<DecisionLimit>,
    /// The values of the limits in which the decision holds.
    pub values: Vec<LimitValue>,
    /// The locks.
    pub locks: Vec<HeldLock>,
    /// The event, if there is one.
    pub event: Option<DecisionEvent>,
}

/// Whether a decision is open, or how it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionState {
    /// The decision is open.
    Open,
    /// It has happened.
    Committed,
    /// It has not happened.
    RolledBack,
    /// Its ttl passed without a heartbeat.
    Expired,
}

/// A limit that applied to a check of a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecisionLimit {
    /// The name of the check, or its place from 0.
    pub check: serde_json::Value,
    /// The limit.
    #[serde(flatten)]
    pub status: LimitStatus,
}

/// The event of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionEvent {
    /// The stream.
    pub stream: String,
    /// The text of the event.
    pub event: String,
    /// `submitted`, `published` or `invalidated`.
    pub status: String,
    /// When the event was accepted, in epoch milliseconds.
    pub time: u64,
    /// When the event is published if the decision is committed by then, in epoch milliseconds.
    pub publishes_at: u64,
}

/// A rule set without its rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleSetInfo {
    /// The name of the set.
    pub name: String,
    /// The number of its rules.
    pub rules: u64,
    /// Whether clients may make overrides of the rules: `open` or `closed`.
    pub overrides: String,
    /// The position at which the set was created.
    pub created_position: u64,
}

/// What putting a rule set has changed, or would change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleSetChanges {
    /// The rules that are created.
    pub created: Vec<String>,
    /// The rules that change.
    pub changed: Vec<RuleChange>,
    /// The rules that are deleted.
    pub deleted: Vec<String>,
    /// Why putting the set is refused. Empty unless this is a dry run.
    pub conflicts: Vec<RuleSetConflict>,
}

/// A rule that a rule set changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleChange {
    /// The rule.
    pub rule: String,
    /// The fields that change.
    pub fields: Vec<String>,
    /// Whether what the rule has counted is forgotten.
    pub starts_empty: bool,
}

/// Why a rule set cannot be put.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleSetConflict {
    /// The rule.
    pub rule: String,
    /// The code with which the set is refused.
    pub code: String,
    /// The set that the rule belongs to.
    pub managed_by: Option<String>,
    /// The override that is in the way.
    #[serde(rename = "override")]
    pub override_name: Option<String>,
}

/// A request that was refused. A field that does not apply is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// When it was refused, in epoch milliseconds.
    pub time: u64,
    /// The namespace of the request.
    pub namespace: String,
    /// The family of the request.
    pub family: String,
    /// The error code, as in problem documents.
    pub code: String,
    /// The first rule of the limiter that refused the request.
    pub rule: Option<String>,
    /// The first limit of the ledger that refused the request.
    pub limit_name: Option<String>,
    /// The stream that refused the event.
    pub stream: Option<String>,
    /// The group of the rule, or the lock.
    pub key_values: Option<serde_json::Map<String, serde_json::Value>>,
    /// The operation of the ledger, or the decision.
    pub operation_id: Option<String>,
}
