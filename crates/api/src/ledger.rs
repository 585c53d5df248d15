//! The ledger: limits as accounts; hold, commit and rollback; values now and as of any operation.

#[cfg(feature = "openapi")]
use crate::schema::Expiry;
use crate::{
    Context, Duration, Ignored, Invalid, MAX_BATCH, Millis, Name, Patch, Position, Problem, Reason, Time,
    invalid::{check_distinct, check_items, check_span},
    object,
};
use alloc::{format, vec::Vec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `POST /limits`: create a limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewLimit {
    /// The name, unique within the namespace.
    #[schema(example = "provider-7/daily")]
    pub name: Name,
    /// The client's own id for the limit, 1–256 bytes. The server only stores and returns it.
    #[serde(default)]
    pub limit_id: Option<Name>,
    /// The client's notes about the limit: at most 64 entries, keys of 1–256 bytes, values of up to 1,024 bytes.
    #[serde(default, deserialize_with = "object::nullable")]
    #[schema(value_type = Option<Context>)]
    pub context: Context,
    /// The committed value plus all positive open holds must not exceed the ceiling. Absent: no ceiling.
    #[serde(default)]
    #[schema(example = 100_000)]
    pub ceiling: Option<i64>,
    /// Ignored: a limit that was read can be sent back.
    #[serde(default)]
    #[schema(ignore)]
    pub commit_value: Ignored<Option<i64>>,
    /// Ignored: a limit that was read can be sent back.
    #[serde(default)]
    #[schema(ignore)]
    pub hold_value: Ignored<Option<i64>>,
    /// Ignored: a limit that was read can be sent back.
    #[serde(default)]
    #[schema(ignore)]
    pub total_value: Ignored<Option<i64>>,
    /// Ignored: a limit that was read can be sent back.
    #[serde(default)]
    #[schema(ignore)]
    pub available: Ignored<Option<i64>>,
    /// Ignored: a limit that was read can be sent back.
    #[serde(default)]
    #[schema(ignore)]
    pub created_position: Ignored<Option<u64>>,
}

impl NewLimit {
    /// A limit with this name, without an id, a context and a ceiling.
    pub fn new(name: Name) -> NewLimit {
        NewLimit {
            name,
            limit_id: None,
            context: Context::default(),
            ceiling: None,
            commit_value: Ignored::default(),
            hold_value: Ignored::default(),
            total_value: Ignored::default(),
            available: Ignored::default(),
            created_position: Ignored::default(),
        }
    }

    /// Checks what reading does not.
    pub fn validate(&self) -> Result<(), Invalid> {
        self.context.validate()
    }
}

/// `PATCH /limits/{name}`: change the given fields. `null` removes a field.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitPatch {
    /// The new ceiling. It applies to later holds. Existing holds and commits stay, even if they exceed it.
    #[serde(default)]
    #[schema(value_type = Option<i64>)]
    pub ceiling: Patch<i64>,
    /// The new context. It replaces the whole old one.
    #[serde(default)]
    #[schema(value_type = Option<Context>)]
    pub context: Patch<Context>,
}

impl LimitPatch {
    /// Checks what reading does not.
    pub fn validate(&self) -> Result<(), Invalid> {
        match &self.context {
            Patch::Set(context) => context.validate(),
            Patch::Keep | Patch::Remove => Ok(()),
        }
    }
}

/// The most limits that one hold, commit or rollback may name.
pub const MAX_CHANGES: usize = 64;

/// `POST /hold`: hold values in one or more limits, in all of them or in none.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Hold {
    /// The client's id for the operation, which later commits or rolls back the holds.
    #[schema(example = "payment-4711")]
    pub operation_id: Name,
    /// The values to hold. Each limit may occur once.
    #[serde(deserialize_with = "object::list::<MAX_CHANGES, _, _>")]
    #[schema(min_items = 1, max_items = 64)]
    pub changes: Vec<Change>,
    /// Skip the limits in which the operation already has an open hold of the same value, instead of answering
    /// `DuplicateOperation`. Default: `false`.
    #[serde(default)]
    pub skip_existing_holds: bool,
    /// Create the limits that do not exist. Default: `false`.
    #[serde(default)]
    pub create_missing: bool,
    /// Roll the holds back automatically after this time: 1 ms–366 d. Absent: they never expire.
    #[serde(default)]
    #[schema(value_type = Option<Expiry>)]
    expires_after: Option<Duration>,
    /// The same in milliseconds, in place of `expires_after`.
    #[serde(default)]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 31_622_400_000_u64)]
    expires_after_ms: Option<Millis>,
}

impl Hold {
    /// The shortest time after which a hold can expire.
    pub const MIN_EXPIRY: Millis = Millis(1);
    /// The longest time after which a hold can expire.
    pub const MAX_EXPIRY: Millis = Millis(366 * Millis::DAY.0);

    /// Holds what `changes` say, which name from 1 to [`MAX_CHANGES`] limits, each once. Every limit must exist, the
    /// operation must not hold anything in any of them, and the hold does not expire; the `with_…` methods change that.
    pub fn new(operation_id: Name, changes: Vec<Change>) -> Result<Hold, Invalid> {
        check_limits(changes.iter().map(|change| &change.limit_name))?;
        Ok(Hold {
            operation_id,
            changes,
            skip_existing_holds: false,
            create_missing: false,
            expires_after: None,
            expires_after_ms: None,
        })
    }

    /// Whether limits in which the operation has an open hold of the same value already are passed over.
    #[must_use]
    pub fn with_skip_existing_holds(self, skip_existing_holds: bool) -> Hold {
        Hold { skip_existing_holds, ..self }
    }

    /// Whether limits that do not exist are created.
    #[must_use]
    pub fn with_create_missing(self, create_missing: bool) -> Hold {
        Hold { create_missing, ..self }
    }

    /// The time after which the hold is rolled back automatically. None means never.
    pub fn with_expires_after(self, expires_after: Option<Millis>) -> Result<Hold, Invalid> {
        let hold = Hold { expires_after: None, expires_after_ms: expires_after, ..self };
        hold.check_expiry().map_err(|invalid| invalid.renamed("expires_after"))?;
        Ok(hold)
    }

    /// The time after which the hold is rolled back automatically. None means never.
    pub fn expires_after(&self) -> Option<Millis> {
        self.expires_after_ms.or(self.expires_after.map(Millis::from))
    }

    /// Checks what reading does not.
    pub fn validate(&self) -> Result<(), Invalid> {
        check_limits(self.changes.iter().map(|change| &change.limit_name))?;
        for (index, change) in self.changes.iter().enumerate() {
            change.context.validate().map_err(|invalid| invalid.within_item("changes", index))?;
        }
        self.check_expiry()
    }

    fn check_expiry(&self) -> Result<(), Invalid> {
        check_expiry(self.expires_after, self.expires_after_ms)
    }
}

/// A time is the same in both forms.
impl PartialEq for Hold {
    fn eq(&self, other: &Hold) -> bool {
        let words = |hold: &Hold| (hold.skip_existing_holds, hold.create_missing, hold.expires_after());
        self.operation_id == other.operation_id
            && self.changes == other.changes
            && words(self) == words(other)
    }
}

/// Checks a time after which holds expire, which may be given in one of two ways.
fn check_expiry(given: Option<Duration>, millis: Option<Millis>) -> Result<(), Invalid> {
    let names = ["expires_after", "expires_after_ms"];
    check_span(names, given, millis, Hold::MIN_EXPIRY..=Hold::MAX_EXPIRY).map(drop)
}

/// Checks the limits that `changes` name.
fn check_limits<'a>(names: impl ExactSizeIterator<Item = &'a Name> + Clone) -> Result<(), Invalid> {
    check_items("changes", names.len(), 1..=MAX_CHANGES)?;
    check_distinct(names, |index| format!("changes[{index}].limit_name"))
}

/// The value to hold in one limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The name of the limit.
    #[schema(example = "provider-7/daily")]
    pub limit_name: Name,
    /// The value to hold; it may be negative or 0.
    #[schema(example = 250)]
    pub value: i64,
    /// If this hold creates the limit: the client's own id for it.
    #[serde(default)]
    pub limit_id: Option<Name>,
    /// If this hold creates the limit: the client's notes about it.
    #[serde(default, deserialize_with = "object::nullable")]
    #[schema(value_type = Option<Context>)]
    pub context: Context,
    /// If this hold creates the limit: its ceiling, which this hold must not exceed either. Absent: no ceiling.
    #[serde(default)]
    pub ceiling: Option<i64>,
}

impl Change {
    /// Holds a value. If this hold creates the limit, the limit has no id, no context and no ceiling.
    pub fn new(limit_name: Name, value: i64) -> Change {
        Change { limit_name, value, limit_id: None, context: Context::default(), ceiling: None }
    }
}

/// `POST /extend`: set when the open holds of an operation expire, all of them at the same time.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Extend {
    /// The operation that made the holds.
    #[schema(example = "payment-4711")]
    pub operation_id: Name,
    /// Every open hold of the operation expires this long after now: 1 ms–366 d. `null`: it never expires.
    #[serde(default)]
    #[schema(value_type = Option<Expiry>)]
    expires_after: Patch<Duration>,
    /// The same in milliseconds, in place of `expires_after`.
    #[serde(default)]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 31_622_400_000_u64)]
    expires_after_ms: Patch<Millis>,
}

impl Extend {
    /// The holds expire so long after the request, between [`Hold::MIN_EXPIRY`] and [`Hold::MAX_EXPIRY`]. None means never.
    pub fn new(operation_id: Name, expires_after: Option<Millis>) -> Result<Extend, Invalid> {
        check_expiry(None, expires_after).map_err(|invalid| invalid.renamed("expires_after"))?;
        let expires_after_ms = expires_after.map_or(Patch::Remove, Patch::Set);
        Ok(Extend { operation_id, expires_after: Patch::Keep, expires_after_ms })
    }

    /// The time from the request until the holds expire. None means that they never do.
    pub fn expires_after(&self) -> Option<Millis> {
        self.expires_after_ms.value().copied().or(self.expires_after.value().copied().map(Millis::from))
    }

    /// Checks what reading does not.
    pub fn validate(&self) -> Result<(), Invalid> {
        match (&self.expires_after, &self.expires_after_ms) {
            (Patch::Keep, Patch::Keep) => Err(Invalid::new("expires_after", Reason::Missing)),
            (Patch::Keep, millis) => check_expiry(None, millis.value().copied()),
            (given, Patch::Keep) => check_expiry(given.value().copied(), None),
            _ => Err(Invalid::new("expires_after_ms", Reason::GivenBy("expires_after"))),
        }
    }
}

/// A time is the same in both forms.
impl PartialEq for Extend {
    fn eq(&self, other: &Extend) -> bool {
        (&self.operation_id, self.expires_after()) == (&other.operation_id, other.expires_after())
    }
}

/// `POST /commit` and `POST /rollback`: finish holds of an operation, all that are named, or none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Finalization {
    /// The operation that made the holds.
    #[schema(example = "payment-4711")]
    pub operation_id: Name,
    /// The holds to finish. Each limit may occur once. Absent: all open holds of the operation, with their held values.
    #[serde(default, deserialize_with = "object::optional_list::<MAX_CHANGES, _, _>")]
    #[schema(min_items = 1, max_items = 64)]
    pub changes: Option<Vec<FinalizationChange>>,
}

impl Finalization {
    /// Finishes the holds that `changes` name, from 1 to [`MAX_CHANGES`] limits, each once. None finishes every open hold
    /// of the operation, at its held value.
    pub fn new(
        operation_id: Name,
        changes: Option<Vec<FinalizationChange>>,
    ) -> Result<Finalization, Invalid> {
        let finalization = Finalization { operation_id, changes };
        finalization.validate()?;
        Ok(finalization)
    }

    /// Checks what reading does not.
    pub fn validate(&self) -> Result<(), Invalid> {
        match &self.changes {
            Some(changes) => check_limits(changes.iter().map(|change| &change.limit_name)),
            None => Ok(()),
        }
    }
}

/// How to finish the hold in one limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FinalizationChange {
    /// The name of the limit.
    pub limit_name: Name,
    /// The value to commit: 0, or a value with the sign of the held one and not larger. The rest is freed. Absent: the
    /// held value. A rollback ignores it and frees the whole hold.
    #[serde(default)]
    pub value: Option<i64>,
}

/// `POST /hold/batch`, `/commit/batch` and `/rollback/batch`: several requests, executed in order. Each succeeds or
/// fails alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, bound(deserialize = "I: Deserialize<'de>"))]
pub struct Batch<I> {
    /// The requests, 1–8,192.
    #[serde(deserialize_with = "object::list::<MAX_BATCH, _, _>")]
    #[schema(min_items = 1, max_items = 8192)]
    pub operations: Vec<I>,
}

/// `POST /values`: the values of limits, now or at an earlier position.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = ValuesQuery)]
#[serde(deny_unknown_fields)]
pub struct Values {
    /// The names of the limits. Each may occur once.
    #[serde(deserialize_with = "object::values::<1000, _, _>")]
    #[schema(value_type = BTreeSet<Name>, min_items = 1, max_items = 1000, example = json!(["provider-7/daily"]))]
    pub limit_names: Vec<Name>,
    /// Return the values at the position of the last request with which this operation held something. Not together
    /// with `position`.
    #[serde(default)]
    operation_id: Option<Name>,
    /// Return the values at this position. Not together with `operation_id`. If both are absent: the latest values.
    #[serde(default)]
    #[schema(value_type = Option<u64>)]
    position: Option<Position>,
}

/// The moment for which values are read.
#[derive(Debug, Clone, PartialEq)]
pub enum AsOf {
    /// The latest change.
    Now,
    /// The view of an operation: at its last hold request that held something.
    Operation(Name),
    /// After the change at this position, and before the next change.
    Position(Position),
}

impl Values {
    /// The most limits that one question may name.
    pub const MAX_LIMITS: usize = 1000;

    /// Asks for from 1 to [`Values::MAX_LIMITS`] limits, each once.
    pub fn new(limit_names: Vec<Name>, as_of: AsOf) -> Result<Values, Invalid> {
        let (operation_id, position) = match as_of {
            AsOf::Now => (None, None),
            AsOf::Operation(id) => (Some(id), None),
            AsOf::Position(position) => (None, Some(position)),
        };
        let values = Values { limit_names, operation_id, position };
        values.validate()?;
        Ok(values)
    }

    /// The moment for which the values are read.
    pub fn as_of(&self) -> AsOf {
        match (&self.operation_id, self.position) {
            (Some(id), _) => AsOf::Operation(id.clone()),
            (None, Some(position)) => AsOf::Position(position),
            (None, None) => AsOf::Now,
        }
    }

    /// Checks what reading does not.
    pub fn validate(&self) -> Result<(), Invalid> {
        check_items("limit_names", self.limit_names.len(), 1..=Values::MAX_LIMITS)?;
        check_distinct(self.limit_names.iter(), |index| format!("limit_names[{index}]"))?;
        match (&self.operation_id, self.position) {
            (Some(_), Some(_)) => Err(Invalid::new("position", Reason::GivenBy("operation_id"))),
            _ => Ok(()),
        }
    }
}

/// The values of one limit at one position.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LimitValue {
    /// The name of the limit.
    pub limit_name: Name,
    /// The client's own id for the limit, or `null`.
    #[schema(required)]
    pub limit_id: Option<Name>,
    /// The sum of all commits.
    pub commit_value: i64,
    /// The sum of all open holds.
    pub hold_value: i64,
    /// `commit_value` + `hold_value`.
    pub total_value: i64,
}

/// A limit with its current values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Limit {
    /// The name, unique within the namespace.
    pub name: Name,
    /// The client's own id for the limit, or `null`.
    #[schema(required)]
    pub limit_id: Option<Name>,
    /// The client's notes about the limit.
    pub context: Context,
    /// The ceiling, or `null` if the limit has none.
    #[schema(required)]
    pub ceiling: Option<i64>,
    /// The sum of all commits.
    pub commit_value: i64,
    /// The sum of all open holds.
    pub hold_value: i64,
    /// `commit_value` + `hold_value`.
    pub total_value: i64,
    /// The largest value that could be held now, or `null` if the limit has no ceiling. 0 if the ceiling is reached.
    #[schema(required)]
    pub available: Option<i64>,
    /// The position at which the limit was created.
    #[schema(value_type = u64)]
    pub created_position: Position,
}

/// The result of a hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HoldReply {
    /// The operation.
    pub operation_id: Name,
    /// The position of the last request with which the operation held something.
    #[schema(value_type = u64)]
    pub position: Position,
    /// The values of the limits at that position, in the order of the request.
    pub values: Vec<LimitValue>,
    /// The limits that were skipped, because the operation already had an open hold of the same value there.
    pub skipped: Vec<Name>,
}

/// The result of a commit or rollback. A repeated request returns the result of the first one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FinalizationReply {
    /// The operation.
    pub operation_id: Name,
    /// The position of the commit or rollback.
    #[schema(value_type = u64)]
    pub position: Position,
    /// The values of the limits at that position.
    pub values: Vec<LimitValue>,
}

/// The values of limits at one position.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ValuesReply {
    /// The position.
    #[schema(value_type = u64)]
    pub position: Position,
    /// The values, in the order of the request.
    pub values: Vec<LimitValue>,
}

/// The state of a hold, or of an operation as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The hold is open. An operation is `held` if any of its holds is open.
    Held,
    /// The hold was committed. An operation is `committed` if none of its holds is open and at least one was committed.
    Committed,
    /// The hold was rolled back, or has expired.
    RolledBack,
}

/// An operation with all its holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Operation {
    /// The client's id for the operation.
    pub operation_id: Name,
    /// The position of the last request with which the operation held something.
    #[schema(value_type = u64)]
    pub position: Position,
    /// The state of the operation as a whole.
    pub state: State,
    /// The holds, in the order in which they were made.
    pub holds: Vec<OperationHold>,
}

/// The hold of an operation in one limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperationHold {
    /// The name of the limit.
    pub limit_name: Name,
    /// The client's own id for the limit, or `null`.
    #[schema(required)]
    pub limit_id: Option<Name>,
    /// Whether the limit was deleted after the hold had ended. A limit that was created later under the same name is
    /// another limit.
    pub deleted: bool,
    /// The state of the hold.
    pub state: State,
    /// The value that was held.
    pub held_value: i64,
    /// The value that was committed, or `null` if the hold was not committed.
    #[schema(required)]
    pub committed_value: Option<i64>,
    /// When the value was held, in epoch milliseconds.
    #[schema(value_type = u64)]
    pub held_at: Time,
    /// The position of the hold.
    #[schema(value_type = u64)]
    pub hold_position: Position,
    /// The position of the commit, rollback or expiry; `null` while the hold is open.
    #[schema(required, value_type = Option<u64>)]
    pub final_position: Option<Position>,
    /// When the hold expires or would have expired, in epoch milliseconds; `null` if it never expires.
    #[schema(required, value_type = Option<u64>)]
    pub expires_at: Option<Time>,
    /// The time until the hold expires; `null` if it never does, or is no longer open.
    #[schema(required, value_type = Option<u64>)]
    pub expires_in_ms: Option<Millis>,
    /// Whether the hold was rolled back because it had expired.
    pub expired: bool,
}

/// The type of an entry in the history of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EntryType {
    /// A value was held.
    Hold,
    /// A held value, or a part of it, was committed. The rest was freed.
    Commit,
    /// A held value was freed.
    Rollback,
    /// A held value was freed because the hold had expired.
    Expiry,
    /// A decision recorded more than it held, or after its hold had ended. The entry stands in place of a commit.
    Overage,
}

/// One entry in the history of a limit, with the sums after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Entry {
    /// The position of the change.
    #[schema(value_type = u64)]
    pub position: Position,
    /// When the change happened, in epoch milliseconds.
    #[schema(value_type = u64)]
    pub time: Time,
    /// The operation that made the change.
    pub operation_id: Name,
    /// The type of the change.
    #[serde(rename = "type")]
    pub kind: EntryType,
    /// The value that was held, committed or freed.
    pub value: i64,
    /// The sum of all commits, after the change.
    pub commit_value: i64,
    /// The sum of all open holds, after the change.
    pub hold_value: i64,
    /// `commit_value` + `hold_value`.
    pub total_value: i64,
}

/// The results of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BatchReply<T> {
    /// One result per item, in the order of the request.
    pub results: Vec<BatchResult<T>>,
}

/// The result of one item of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum BatchResult<T> {
    /// The item failed. Nothing was done for it.
    Refused(Problem),
    /// The item succeeded.
    Done(Done<T>),
}

/// The success body of the single call, plus its status.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Done<T> {
    /// The HTTP status that the single call would have.
    pub status: u16,
    /// The success body of the single call.
    #[serde(flatten)]
    pub body: T,
}
