//! The ledger: limits as accounts; hold, commit and rollback; values now and as of any operation.

#[cfg(feature = "openapi")]
use crate::schema::Expiry;
use crate::{Context, Duration, MAX_BATCH, Millis, Name, Position, Problem, Time, object};
use alloc::{string::String, vec::Vec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `POST /limits`: create a limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewLimit {
    /// The name, unique within the namespace.
    #[schema(value_type = Name, example = "provider-7/daily")]
    pub name: String,
    /// The client's own id for the limit, 1–256 bytes. The server only stores and returns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Name>)]
    pub limit_id: Option<String>,
    /// The client's notes about the limit: at most 64 entries, keys of 1–256 bytes, values of up to 1,024 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Context>)]
    pub context: Option<Context>,
    /// The committed value plus all positive open holds must not exceed the ceiling. Absent: no ceiling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 100_000)]
    pub ceiling: Option<i64>,
    /// Ignored: a limit that was read can be sent back.
    #[serde(default, skip_serializing)]
    pub commit_value: Option<i64>,
    /// Ignored: a limit that was read can be sent back.
    #[serde(default, skip_serializing)]
    pub hold_value: Option<i64>,
    /// Ignored: a limit that was read can be sent back.
    #[serde(default, skip_serializing)]
    pub total_value: Option<i64>,
    /// Ignored: a limit that was read can be sent back.
    #[serde(default, skip_serializing)]
    pub available: Option<i64>,
    /// Ignored: a limit that was read can be sent back.
    #[serde(default, skip_serializing)]
    pub created_position: Option<u64>,
}

/// `PATCH /limits/{name}`: change the given fields. `null` removes a field.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitPatch {
    /// The new ceiling. It applies to later holds. Existing holds and commits stay, even if they exceed it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::patch")]
    #[schema(value_type = Option<i64>)]
    pub ceiling: Option<Option<i64>>,
    /// The new context. It replaces the whole old one.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::patch")]
    #[schema(value_type = Option<Context>)]
    pub context: Option<Option<Context>>,
}

/// `POST /hold`: hold values in one or more limits, in all of them or in none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Hold {
    /// The client's id for the operation, which later commits or rolls back the holds.
    #[schema(value_type = Name, example = "payment-4711")]
    pub operation_id: String,
    /// The values to hold. Each limit may occur once.
    #[serde(deserialize_with = "object::list::<64, _, _>")]
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Expiry>)]
    pub expires_after: Option<Duration>,
    /// The same in milliseconds, in place of `expires_after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 31_622_400_000_u64)]
    pub expires_after_ms: Option<u64>,
}

/// The value to hold in one limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The name of the limit.
    #[schema(value_type = Name, example = "provider-7/daily")]
    pub limit_name: String,
    /// The value to hold; it may be negative or 0.
    #[schema(example = 250)]
    pub value: i64,
    /// If this hold creates the limit: the client's own id for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Name>)]
    pub limit_id: Option<String>,
    /// If this hold creates the limit: the client's notes about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Context>)]
    pub context: Option<Context>,
    /// If this hold creates the limit: its ceiling, which this hold must not exceed either. Absent: no ceiling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<i64>,
}

/// `POST /extend`: set when the open holds of an operation expire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Extend {
    /// The operation that made the holds.
    #[schema(value_type = Name, example = "payment-4711")]
    pub operation_id: String,
    /// Every open hold of the operation expires this long after now: 1 ms–366 d. `null`: it never expires.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::patch")]
    #[schema(value_type = Option<Expiry>)]
    pub expires_after: Option<Option<Duration>>,
    /// The same in milliseconds, in place of `expires_after`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::patch")]
    #[schema(minimum = 1, maximum = 31_622_400_000_u64)]
    pub expires_after_ms: Option<Option<u64>>,
}

/// `POST /commit` and `POST /rollback`: finish holds of an operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Finalization {
    /// The operation that made the holds.
    #[schema(value_type = Name, example = "payment-4711")]
    pub operation_id: String,
    /// The holds to finish. Each limit may occur once. Absent: all open holds of the operation, with their held values.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object::optional_list::<64, _, _>"
    )]
    #[schema(min_items = 1, max_items = 64)]
    pub changes: Option<Vec<FinalizationChange>>,
}

/// How to finish the hold in one limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FinalizationChange {
    /// The name of the limit.
    #[schema(value_type = Name, example = "provider-7/daily")]
    pub limit_name: String,
    /// The value to commit: 0, or a value with the sign of the held one and not larger. The rest is freed. Absent: the
    /// held value. A rollback ignores it and frees the whole hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
#[serde(deny_unknown_fields)]
pub struct ValuesQuery {
    /// The names of the limits. Each may occur once.
    #[serde(deserialize_with = "object::values::<1000, _, _>")]
    #[schema(value_type = BTreeSet<Name>, min_items = 1, max_items = 1000, example = json!(["provider-7/daily"]))]
    pub limit_names: Vec<String>,
    /// Return the values at the position of the last request with which this operation held something. Not together
    /// with `position`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Name>)]
    pub operation_id: Option<String>,
    /// Return the values at this position. Not together with `operation_id`. If both are absent: the latest values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
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
