//! The replies and refusals of the ledger, and the words in them that are also stored.

use crate::{Listed, Name, Position, QuotaExceeded};
use alloc::vec::Vec;
use core::cmp::Ordering;
use limina_api::ledger::{Entry, FinalizationReply, HoldReply, Limit, Operation, State, ValuesReply};
use serde::{Deserialize, Deserializer, Serialize};

/// The reply to a command that succeeded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// One limit.
    Limit(Limit),
    /// A page of the limits, sorted by name.
    Limits(Listed<Limit, Name>),
    /// The result of a hold.
    Hold(HoldReply),
    /// The result of a commit or rollback.
    Finalization(FinalizationReply),
    /// The results of a batch, in its order.
    Batch(#[serde(deserialize_with = "of_transfers")] Vec<Result<Reply, Refusal>>),
    /// Values of limits.
    Values(ValuesReply),
    /// One operation.
    Operation(Operation),
    /// A page of the operations, sorted by id.
    Operations(Listed<Operation, Name>),
    /// A page of a limit's history, sorted by position.
    Entries(Listed<Entry, Position>),
    /// The limits that are nearest to their ceilings, the nearest first, among those that the command looked at. The cursor
    /// is the last of these by name.
    LimitsByUse(Listed<Limit, Name>),
    /// The limit is deleted. A sweep removes its history later.
    LimitDeleted,
}

/// Decodes the results of a batch. A batch within a batch is rejected: otherwise the bytes could make the recursion
/// arbitrarily deep.
fn of_transfers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Result<Reply, Refusal>>, D::Error> {
    /// The first variants of [`Reply`], up to the last one that an item of a batch can have.
    #[derive(Deserialize)]
    enum Item {
        Limit(Limit),
        Limits(Listed<Limit, Name>),
        Hold(HoldReply),
        Finalization(FinalizationReply),
    }
    let reply = |item| match item {
        Item::Limit(limit) => Reply::Limit(limit),
        Item::Limits(listed) => Reply::Limits(listed),
        Item::Hold(reply) => Reply::Hold(reply),
        Item::Finalization(reply) => Reply::Finalization(reply),
    };
    let items = Vec::<Result<Item, Refusal>>::deserialize(deserializer)?;
    Ok(items.into_iter().map(|item| item.map(reply)).collect())
}

/// How near a limit is to its ceiling. The nearest is the smallest: first limits in which nothing more can be held, then by the
/// fraction of the ceiling that is available; limits without a ceiling are last.
#[derive(Debug, Clone, Copy)]
pub enum Nearness {
    /// Nothing more can be held.
    Full,
    /// So much of a positive ceiling is available.
    Part {
        /// What is available.
        available: i64,
        /// The ceiling, which is positive.
        ceiling: i64,
    },
    /// The ceiling is not positive, and there is room below it because the committed sum is negative.
    Below {
        /// What is available.
        available: i64,
    },
    /// There is no ceiling.
    Endless,
}

impl Nearness {
    /// How near this limit is to its ceiling.
    pub fn of(limit: &Limit) -> Nearness {
        Nearness::new(limit.ceiling, limit.available)
    }

    /// The nearness of a limit with this ceiling, in which so much is available.
    pub fn new(ceiling: Option<i64>, available: Option<i64>) -> Nearness {
        match (ceiling, available) {
            (None, _) | (_, None) => Nearness::Endless,
            (Some(_), Some(..=0)) => Nearness::Full,
            (Some(ceiling @ 1..), Some(available)) => Nearness::Part { available, ceiling },
            (Some(_), Some(available)) => Nearness::Below { available },
        }
    }

    fn rank(self) -> u8 {
        match self {
            Nearness::Full => 0,
            Nearness::Part { .. } => 1,
            Nearness::Below { .. } => 2,
            Nearness::Endless => 3,
        }
    }
}

impl Ord for Nearness {
    fn cmp(&self, other: &Nearness) -> Ordering {
        use Nearness::{Below, Part};
        match (*self, *other) {
            (Part { available: a, ceiling: of_a }, Part { available: b, ceiling: of_b }) => {
                // Compares a / of_a with b / of_b.
                (i128::from(a) * i128::from(of_b)).cmp(&(i128::from(b) * i128::from(of_a)))
            }
            (Below { available: a }, Below { available: b }) => a.cmp(&b),
            (a, b) => a.rank().cmp(&b.rank()),
        }
    }
}

impl PartialEq for Nearness {
    fn eq(&self, other: &Nearness) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Nearness {}

impl PartialOrd for Nearness {
    fn partial_cmp(&self, other: &Nearness) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The state of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HoldState {
    /// The hold is open.
    Held,
    /// The hold is committed. This is final.
    Committed {
        /// The committed value; the rest of the hold was freed.
        value: i64,
        /// The position of the commit.
        at: Position,
    },
    /// The hold is rolled back: its value was freed. This is final.
    RolledBack {
        /// The position of the rollback.
        at: Position,
        /// Whether the hold expired, as opposed to a rollback by a client.
        expired: bool,
    },
}

/// Why the ledger refused a command. If several apply to a hold, the first in this order is returned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// A limit of this name exists already.
    DuplicateLimitName {
        /// The name.
        limit_name: Name,
    },
    /// These limits do not exist.
    LimitNotFound {
        /// All limits that do not exist.
        limit_names: Vec<Name>,
    },
    /// The operation does not exist, or has no open hold to commit or roll back.
    OperationNotFound {
        /// The operation.
        operation_id: Name,
        /// The limit without an open hold. `None` if the refusal is about the whole operation.
        limit_name: Option<Name>,
        /// How the hold has ended already.
        state: Option<HoldState>,
    },
    /// The operation's hold is committed or rolled back in these limits.
    OperationAlreadyInFinalState {
        /// The operation.
        operation_id: Name,
        /// The limits, with the state in each.
        limits: Vec<(Name, HoldState)>,
    },
    /// The operation has an open hold in these limits. With `skip_existing_holds`: an open hold of another value.
    DuplicateOperation {
        /// The operation.
        operation_id: Name,
        /// Each such limit, with the value that is held in it.
        limits: Vec<(Name, i64)>,
    },
    /// The hold could exceed a ceiling.
    LimitExceeded {
        /// Each such limit.
        limits: Vec<ExceededLimit>,
    },
    /// A sum would leave the range of a 64-bit integer.
    ValueOverflow {
        /// Each such limit.
        limit_names: Vec<Name>,
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
    /// The operation is that of a decision, which is open. Only the decision as a whole can be changed.
    PartOfOperation {
        /// The operation.
        operation_id: Name,
    },
    /// A hold is open in the limit, so it cannot be deleted.
    LimitInUse {
        /// The limit.
        limit_name: Name,
        /// The number of open holds.
        open_holds: u64,
    },
    /// The operation would hold in more limits than [`super::MAX_LIMITS_PER_OPERATION`].
    OperationTooLarge {
        /// The operation.
        operation_id: Name,
    },
    /// The position of a read is in the future.
    PositionNotReached {
        /// The position of the namespace's last change.
        current: Position,
    },
    /// Stored history that the values depend on could not be read.
    LimitsValuesReadingException,
    /// An item of a batch needs a stored record that could not be read. The item changed nothing.
    Unreadable,
    /// The namespace would have more than its quota allows. Nothing has changed.
    QuotaExceeded(QuotaExceeded),
}

/// A limit whose ceiling a hold could exceed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExceededLimit {
    /// The limit.
    pub limit_name: Name,
    /// Its ceiling.
    pub ceiling: i64,
    /// The committed sum.
    pub commit_value: i64,
    /// The sum of the open holds.
    pub hold_value: i64,
    /// The largest value that could be held now. 0 if there is none.
    pub available: i64,
}

/// A limit that refuses a hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusedHold {
    /// The hold could exceed the ceiling.
    LimitExceeded(ExceededLimit),
    /// A sum would leave the range of a 64-bit integer.
    ValueOverflow {
        /// The limit.
        limit_name: Name,
        /// The ceiling of the limit, if it has one.
        ceiling: Option<i64>,
        /// The sum of what was committed.
        commit_value: i64,
        /// The sum of the open holds.
        hold_value: i64,
        /// The largest value that could be held.
        available: i64,
    },
}

impl HoldState {
    /// The state in a reply.
    pub fn state(self) -> State {
        match self {
            HoldState::Held => State::Held,
            HoldState::Committed { .. } => State::Committed,
            HoldState::RolledBack { .. } => State::RolledBack,
        }
    }
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
            Refusal::DuplicateLimitName { .. } => "DuplicateLimitName",
            Refusal::LimitNotFound { .. } => "LimitNotFound",
            Refusal::OperationNotFound { .. } => "OperationNotFound",
            Refusal::OperationAlreadyInFinalState { .. } => "OperationAlreadyInFinalState",
            Refusal::DuplicateOperation { .. } => "DuplicateOperation",
            Refusal::LimitExceeded { .. } => "LimitExceeded",
            Refusal::ValueOverflow { .. } => "ValueOverflow",
            Refusal::CommitExceedsHold { .. } => "CommitExceedsHold",
            Refusal::PartOfOperation { .. } => "PartOfOperation",
            Refusal::LimitInUse { .. } => "LimitInUse",
            Refusal::OperationTooLarge { .. } | Refusal::PositionNotReached { .. } => "InvalidRequest",
            Refusal::LimitsValuesReadingException => "LimitsValuesReadingException",
            Refusal::Unreadable => "ShardUnavailable",
            Refusal::QuotaExceeded(_) => "QuotaExceeded",
        }
    }
}
