//! What the ledger answers, and why it refuses.

use super::{Context, EntryKind, HoldState};
use crate::{Name, Position, Time};
use alloc::vec::Vec;
use serde::{Deserialize, Deserializer, Serialize};

/// A success.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// One limit.
    Limit(LimitInfo),
    /// A part of the limits; more follow after the last one if so told.
    Limits {
        /// By name.
        items: Vec<LimitInfo>,
        /// Whether there are more.
        more: bool,
    },
    /// What a hold did.
    Hold(HoldReply),
    /// What a commit or rollback did.
    Finalization(FinalizationReply),
    /// The results of a batch, in its order.
    Batch(#[serde(deserialize_with = "of_transfers")] Vec<Result<Reply, Refusal>>),
    /// Values of limits.
    Values(ValuesReply),
    /// One operation.
    Operation(OperationInfo),
    /// A part of the operations.
    Operations {
        /// By id.
        items: Vec<OperationInfo>,
        /// The id after which the next part begins.
        next: Option<Name>,
    },
    /// A part of a limit's history.
    Entries {
        /// By position.
        items: Vec<EntryInfo>,
        /// The position after which the next part begins.
        next: Option<Position>,
    },
}

/// Reads the results of a batch. There is no batch in a batch, so that no bytes decide how deep the stack gets.
fn of_transfers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Result<Reply, Refusal>>, D::Error> {
    /// The first replies, up to the last one that a transfer can have.
    #[derive(Deserialize)]
    enum Item {
        Limit(LimitInfo),
        Limits { items: Vec<LimitInfo>, more: bool },
        Hold(HoldReply),
        Finalization(FinalizationReply),
    }
    let reply = |item| match item {
        Item::Limit(limit) => Reply::Limit(limit),
        Item::Limits { items, more } => Reply::Limits { items, more },
        Item::Hold(reply) => Reply::Hold(reply),
        Item::Finalization(reply) => Reply::Finalization(reply),
    };
    let items = Vec::<Result<Item, Refusal>>::deserialize(deserializer)?;
    Ok(items.into_iter().map(|item| item.map(reply)).collect())
}

/// A limit as it is seen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LimitInfo {
    /// Its sums.
    pub value: Value,
    /// The client's words about it.
    pub context: Context,
    /// What it must not pass.
    pub ceiling: Option<i64>,
    /// The position at which it was made.
    pub created_at: Position,
}

/// The values of one limit at some moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Value {
    /// The limit.
    pub limit_name: Name,
    /// The client's own id for it.
    pub limit_id: Option<Name>,
    /// What is committed.
    pub commit_value: i64,
    /// What is held open.
    pub hold_value: i64,
}

impl Value {
    /// Both together. The worst-case rule of holds guarantees that it does not overflow.
    pub fn total_value(&self) -> i64 {
        self.commit_value + self.hold_value
    }
}

/// What a hold did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldReply {
    /// Whose it is.
    pub operation_id: Name,
    /// The operation's view: the position of its last hold request that held something.
    pub position: Position,
    /// The values at that position, in the order of the request.
    pub values: Vec<Value>,
    /// The limits in which the operation had an open hold already.
    pub skipped: Vec<Name>,
}

/// What a commit or rollback did, now or when it was first asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinalizationReply {
    /// Whose it is.
    pub operation_id: Name,
    /// Where it took place.
    pub position: Position,
    /// The values at that position.
    pub values: Vec<Value>,
}

/// Values of limits at one position.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValuesReply {
    /// The position.
    pub position: Position,
    /// In the order of the request.
    pub values: Vec<Value>,
}

/// An operation as it is seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationInfo {
    /// The client's id for it.
    pub operation_id: Name,
    /// Its view: the position of its last hold request that held something.
    pub position: Position,
    /// Its state in every limit, in the order in which they were held.
    pub holds: Vec<HeldLimitInfo>,
}

/// An operation's state in one limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldLimitInfo {
    /// The limit.
    pub limit_name: Name,
    /// The client's own id for it.
    pub limit_id: Option<Name>,
    /// How much was held.
    pub value: i64,
    /// Where it was held.
    pub held_at: Position,
    /// When it expires, or would have.
    pub expires_at: Option<Time>,
    /// What became of it.
    pub state: HoldState,
}

/// One entry of a limit's history, with the sums after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryInfo {
    /// Where it took place.
    pub position: Position,
    /// When.
    pub time: Time,
    /// Whose it is.
    pub operation_id: Name,
    /// What happened.
    pub kind: EntryKind,
    /// How much was held, committed or freed.
    pub value: i64,
    /// What is committed, after it.
    pub commit_value: i64,
    /// What is held open, after it.
    pub hold_value: i64,
}

/// Why the ledger did not do it. For a hold, the earlier of two that both apply is the one that is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// There is a limit of that name already.
    DuplicateLimitName {
        /// The name.
        limit_name: Name,
    },
    /// These limits do not exist.
    LimitNotFound {
        /// All that are missing.
        limit_names: Vec<Name>,
    },
    /// The operation has no (open) hold to finish, or is not known.
    OperationNotFound {
        /// The operation.
        operation_id: Name,
        /// The limit in which there is none, where it is about one.
        limit_name: Option<Name>,
        /// How it was finished instead.
        state: Option<HoldState>,
    },
    /// The operation's hold is committed or rolled back in these limits.
    OperationAlreadyInFinalState {
        /// The operation.
        operation_id: Name,
        /// The limits, with the state in each.
        limits: Vec<(Name, HoldState)>,
    },
    /// The operation has an open hold in these limits.
    DuplicateOperation {
        /// The operation.
        operation_id: Name,
        /// The limits.
        limit_names: Vec<Name>,
    },
    /// A ceiling would be exceeded.
    LimitExceeded {
        /// Each such limit, with its ceiling.
        limits: Vec<(Name, i64)>,
    },
    /// A sum would leave the range of a 64-bit integer.
    ValueOverflow {
        /// Each such limit.
        limit_names: Vec<Name>,
    },
    /// More, or of the other sign, than is held.
    CommitExceedsHold {
        /// The operation.
        operation_id: Name,
        /// The limit.
        limit_name: Name,
        /// What is held.
        held: i64,
        /// What was to be committed.
        value: i64,
    },
    /// The operation would touch more limits than one may.
    OperationTooLarge {
        /// The operation.
        operation_id: Name,
    },
    /// Values were asked for as of a position that is still to come.
    PositionNotReached {
        /// The last one so far.
        current: Position,
    },
    /// Stored history could not be read.
    LimitsValuesReadingException,
    /// An item of a batch needs a stored record that could not be read. Nothing was done for it.
    Unreadable,
}

impl Refusal {
    /// The word by which it is known in problem documents, metrics and logs.
    pub fn code(&self) -> &'static str {
        match self {
            Refusal::DuplicateLimitName { .. } => "DuplicateLimitName",
            Refusal::LimitNotFound { .. } => "LimitNotFound",
            Refusal::OperationNotFound { .. } => "OperationNotFound",
            Refusal::OperationAlreadyInFinalState { .. } => "OperationAlreadyInFinalState",
            Refusal::DuplicateOperation { .. } => "DuplicateOperation",
            Refusal::LimitExceeded { .. } => "LimitExceeded",
            Refusal::ValueOverflow { .. } => "ValueOverflow",
            Refusal::CommitExceedsHold { .. } => "CommitExceedsHold",
            Refusal::OperationTooLarge { .. } | Refusal::PositionNotReached { .. } => "InvalidRequest",
            Refusal::LimitsValuesReadingException => "LimitsValuesReadingException",
            Refusal::Unreadable => "ShardUnavailable",
        }
    }
}
