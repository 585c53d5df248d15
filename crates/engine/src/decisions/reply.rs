//! The replies and refusals of decisions.

use crate::{
    Listed, Millis, Name, Position, QuotaExceeded, Time,
    events::{EventPart, RefusedEvent},
    key_values::KeyValues,
    ledger::{LimitValue, RefusedHold},
    limiter::{HeldBy, LimitOfCheck},
    locks::{Lock, RefusedLock},
};
use alloc::{boxed::Box, vec::Vec};
use limina_api::decisions::State;
use serde::{Deserialize, Serialize};

/// The reply to a command that succeeded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// The answer to [`Decide`](super::Decide): the decision is open, or would be.
    Decided(Box<Decision>),
    /// The decision has ended. A repeated request gets the first answer.
    Ended(Box<Decision>),
    /// The decision expires one ttl from now.
    Extended(Box<Decision>),
    /// The decision as it is now, or as it ended.
    Decision(Box<Decision>),
    /// The results of a batch, in order.
    Batch(Vec<Result<Reply, Refusal>>),
    /// The request no longer waits.
    Abandoned,
    /// A page of the open decisions, the oldest first.
    Decisions(Listed<Decision, Position>),
}

/// A decision as clients see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The client's id for the operation.
    pub operation_id: Name,
    /// Whether it is open, or how it has ended.
    pub state: State,
    /// Whether an earlier request has made the decision.
    pub repeated: bool,
    /// Whether it was recorded after it had ended in another way.
    pub late: bool,
    /// The name that the holder gave itself.
    pub owner: Option<Name>,
    /// The position of the change that made the decision or, if it has ended, of its end. `None` in a dry run.
    pub position: Option<Position>,
    /// The position of the change that made the decision. `None` in a dry run.
    pub fencing_token: Option<Position>,
    /// How long it stays open without a heartbeat.
    pub ttl: Millis,
    /// The time at which the decision was made.
    pub made_at: Time,
    /// The time at which an open decision expires without another heartbeat. `None` if it has ended.
    pub expires_at: Option<Time>,
    /// Every limit that applies to its checks, sorted by check, then by rule, then by override.
    pub limits: Vec<LimitOfCheck>,
    /// The values of the limits in which it holds, in the order of the request.
    pub values: Vec<LimitValue>,
    /// Its locks.
    pub locks: Vec<Lock>,
    /// Its event. `None` if it has none, or if its stream was deleted.
    pub event: Option<EventPart>,
    /// The time of this reply, from which clients compute remaining times.
    pub now: Time,
}

/// Why a command was refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Refusal {
    /// The id is that of another request, which is open.
    OperationReused {
        /// The operation.
        operation_id: Name,
    },
    /// The operation has ended.
    OperationAlreadyInFinalState {
        /// The operation.
        operation_id: Name,
        /// How it has ended. `None` if it is an operation of the ledger: its limits tell. Also `None` in the repeated answer to a
        /// batch, which does not read it again.
        state: Option<State>,
        /// The position of its end, or the view of the ledger's operation. `None` in the repeated answer to a batch.
        position: Option<Position>,
    },
    /// The same request has come again and waits in place of this one.
    OperationWaits {
        /// The operation.
        operation_id: Name,
    },
    /// At least one limit of the ledger does not exist.
    LimitNotFound {
        /// All such limits.
        limit_names: Vec<Name>,
    },
    /// The stream of the event does not exist.
    StreamNotFound {
        /// The stream.
        stream: Name,
    },
    /// No rule applies to a check that requires one.
    NoRuleApplies {
        /// The key-values of the first such check.
        key_values: KeyValues,
    },
    /// At least one part refuses. Nothing has moved, and the id is free.
    Refused(Box<Refused>),
    /// There is no open decision under this id.
    OperationNotFound {
        /// The operation.
        operation_id: Name,
        /// How it has ended, if it is remembered.
        state: Option<State>,
    },
    /// The commit names a check that does not exist, or that is no estimate.
    NotEstimated {
        /// The name.
        check: Name,
    },
    /// The commit names a limit in which the decision does not hold.
    NotHeld {
        /// The limit.
        limit_name: Name,
    },
    /// The value to commit is larger than the held value, or has the other sign.
    CommitExceedsHold {
        /// The operation.
        operation_id: Name,
        /// The limit.
        limit_name: Name,
        /// The held value.
        held: i64,
        /// The value to commit.
        value: i64,
    },
    /// A sum would leave the range of a 64-bit integer.
    ValueOverflow {
        /// Each such limit.
        limit_names: Vec<Name>,
    },
    /// An item of a batch was not done, because the answer to the batch would have been too large.
    AnswerTooLarge {
        /// The largest size of an answer, in bytes.
        max_bytes: usize,
    },
    /// A record that an item of a batch needs could not be read. The item was not done.
    Unreadable,
    /// The namespace would have more than its quota allows. Nothing has changed.
    QuotaExceeded(QuotaExceeded),
}

/// All parts that refuse a decision.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Refused {
    /// Every limit that applies to the checks. Those that refuse say so.
    pub limits: Vec<LimitOfCheck>,
    /// The holds that are refused.
    pub holds: Vec<HoldOfDecision>,
    /// The locks that cannot be had.
    pub locks: Vec<RefusedLock>,
    /// Why the event is refused.
    pub event: Option<RefusedEvent>,
    /// The time after which all of it would be allowed if nothing else happened. `None` if time alone does not help, or if it
    /// is not known.
    pub retry_after: Option<Millis>,
}

impl Refused {
    /// Whether a limit of the limiter refuses.
    pub fn is_limited(&self) -> bool {
        self.limits.iter().any(|limit| limit.refuses)
    }
}

/// A hold that is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldOfDecision {
    /// Why.
    pub refused: RefusedHold,
    /// Open decisions that hold in the limit, the oldest first. Only if the request wants an explanation.
    pub held_by: Vec<HeldBy>,
}

impl From<QuotaExceeded> for Refusal {
    fn from(exceeded: QuotaExceeded) -> Refusal {
        Refusal::QuotaExceeded(exceeded)
    }
}

impl Refusal {
    /// The error code in problem documents, metrics and logs.
    pub fn code(&self) -> &'static str {
        match self {
            Refusal::OperationReused { .. } => "OperationReused",
            Refusal::OperationAlreadyInFinalState { .. } => "OperationAlreadyInFinalState",
            Refusal::OperationWaits { .. } => "OperationWaits",
            Refusal::LimitNotFound { .. } => "LimitNotFound",
            Refusal::StreamNotFound { .. } => "StreamNotFound",
            Refusal::NoRuleApplies { .. } => "NoRuleApplies",
            Refusal::Refused(_) => "Refused",
            Refusal::OperationNotFound { .. } => "OperationNotFound",
            Refusal::NotEstimated { .. } | Refusal::NotHeld { .. } => "InvalidRequest",
            Refusal::CommitExceedsHold { .. } => "CommitExceedsHold",
            Refusal::ValueOverflow { .. } => "ValueOverflow",
            Refusal::AnswerTooLarge { .. } => "AnswerTooLarge",
            Refusal::Unreadable => "LimitsValuesReadingException",
            Refusal::QuotaExceeded(_) => "QuotaExceeded",
        }
    }
}
