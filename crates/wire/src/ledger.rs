//! The ledger: limits as accounts; hold, commit and rollback; values now and as of any operation.

use crate::{Duration, MAX_BATCH, Problem, object};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// `POST /limits`: make a limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewLimit {
    /// Its name within the namespace.
    #[schema(min_length = 1, max_length = 256, example = "provider-7/daily")]
    pub name: String,
    /// The client's own id for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_id: Option<String>,
    /// The client's words about it: at most 64, keys of 1–256 bytes, values of up to 1,024.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional_texts")]
    pub context: Option<BTreeMap<String, String>>,
    /// What commits and positive open holds together must not pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 100_000)]
    pub ceiling: Option<i64>,
}

/// `PATCH /limits/{name}`: change what is mentioned; `null` removes it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitPatch {
    /// The new ceiling. It refuses later holds and undoes none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::patch")]
    #[schema(value_type = Option<i64>)]
    pub ceiling: Option<Option<i64>>,
    /// The new context, in place of the old one.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::patch_texts")]
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    pub context: Option<Option<BTreeMap<String, String>>>,
}

/// `POST /hold`: hold values in several limits, all or none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Hold {
    /// The client's id for the operation.
    #[schema(min_length = 1, max_length = 256, example = "payment-4711")]
    pub operation_id: String,
    /// What to hold where; each limit once.
    #[serde(deserialize_with = "object::list::<64, _, _>")]
    #[schema(min_items = 1, max_items = 64)]
    pub changes: Vec<Change>,
    /// Pass over limits in which the operation has an open hold already.
    #[serde(default)]
    pub skip_existing_holds: bool,
    /// Make limits that are missing.
    #[serde(default)]
    pub create_missing: bool,
    /// Roll back by itself after this time: 1 ms–366 d.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_after: Option<Duration>,
}

/// What to hold in one limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The limit.
    #[schema(min_length = 1, max_length = 256, example = "provider-7/daily")]
    pub limit_name: String,
    /// How much; may be negative or 0.
    #[schema(example = 250)]
    pub value: i64,
    /// For a limit that is made by this hold: the client's own id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_id: Option<String>,
    /// For a limit that is made by this hold: the client's words about it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional_texts")]
    pub context: Option<BTreeMap<String, String>>,
}

/// `POST /commit` and `POST /rollback`: finish holds of an operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Finalization {
    /// Whose holds.
    #[schema(min_length = 1, max_length = 256, example = "payment-4711")]
    pub operation_id: String,
    /// Which, each limit once; without this, all that are open, at their held values.
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
    /// The limit.
    #[schema(min_length = 1, max_length = 256, example = "provider-7/daily")]
    pub limit_name: String,
    /// What to commit, if not all that is held: of the same sign and no larger, or 0. A rollback always frees all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<i64>,
}

/// `POST /hold/batch`, `/commit/batch` and `/rollback/batch`: several, each on its own, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, bound(deserialize = "I: Deserialize<'de>"))]
pub struct Batch<I> {
    /// The single requests.
    #[serde(deserialize_with = "object::list::<MAX_BATCH, _, _>")]
    #[schema(min_items = 1, max_items = 8192)]
    pub operations: Vec<I>,
}

/// `POST /values`: the values of limits, now or as of some moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ValuesQuery {
    /// Which; each once.
    #[serde(deserialize_with = "object::values::<1000, _, _>")]
    #[schema(min_items = 1, max_items = 1000, example = json!(["provider-7/daily"]))]
    pub limit_names: Vec<String>,
    /// As of this operation: at its last hold request that held something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<String>,
    /// As of this position. Not together with `operation_id`; without either, the latest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
}

/// The values of one limit at some moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LimitValue {
    /// The limit.
    pub limit_name: String,
    /// The client's own id for it.
    #[schema(required)]
    pub limit_id: Option<String>,
    /// What is committed.
    pub commit_value: i64,
    /// What is held open.
    pub hold_value: i64,
    /// Both together.
    pub total_value: i64,
}

/// A limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Limit {
    /// Its name.
    pub name: String,
    /// The client's own id for it.
    #[schema(required)]
    pub limit_id: Option<String>,
    /// The client's words about it.
    pub context: BTreeMap<String, String>,
    /// What it must not pass.
    #[schema(required)]
    pub ceiling: Option<i64>,
    /// What is committed.
    pub commit_value: i64,
    /// What is held open.
    pub hold_value: i64,
    /// Both together.
    pub total_value: i64,
    /// The position at which it was made.
    pub created_position: u64,
}

/// What a hold did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HoldReply {
    /// Whose it is.
    pub operation_id: String,
    /// The operation's view: the position of its last hold request that held something.
    pub position: u64,
    /// The values at that position, in the order of the request.
    pub values: Vec<LimitValue>,
    /// The limits in which the operation had an open hold already.
    pub skipped: Vec<String>,
}

/// What a commit or rollback did, now or when it was first asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FinalizationReply {
    /// Whose it is.
    pub operation_id: String,
    /// Where it took place.
    pub position: u64,
    /// The values at that position.
    pub values: Vec<LimitValue>,
}

/// Values of limits at one position.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ValuesReply {
    /// The position.
    pub position: u64,
    /// In the order of the request.
    pub values: Vec<LimitValue>,
}

/// What became of a hold, or of an operation as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Open; an operation is, if any of its holds is.
    Held,
    /// Counts for good; an operation does, if none of its holds is open and any was committed.
    Committed,
    /// Freed.
    RolledBack,
}

/// An operation, with its state in every limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Operation {
    /// The client's id for it.
    pub operation_id: String,
    /// Its view: the position of its last hold request that held something.
    pub position: u64,
    /// Its state as a whole.
    pub state: State,
    /// Its holds, in the order in which they were made.
    pub holds: Vec<OperationHold>,
}

/// An operation's hold in one limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperationHold {
    /// The limit.
    pub limit_name: String,
    /// The client's own id for it.
    #[schema(required)]
    pub limit_id: Option<String>,
    /// What became of it.
    pub state: State,
    /// How much was held.
    pub held_value: i64,
    /// How much of it was committed; `null` unless it was.
    #[schema(required)]
    pub committed_value: Option<i64>,
    /// Where it was held.
    pub hold_position: u64,
    /// Where it was committed or freed; `null` while it is open.
    #[schema(required)]
    pub final_position: Option<u64>,
    /// When it expires, or would have, in epoch milliseconds.
    #[schema(required)]
    pub expires_at: Option<u64>,
    /// Whether it was freed because its time had run out.
    pub expired: bool,
}

/// What happened to a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EntryType {
    /// A value was held.
    Hold,
    /// A held value, or a part of it, was committed and the rest freed.
    Commit,
    /// A held value was freed.
    Rollback,
    /// A held value was freed because its time had run out.
    Expiry,
}

/// One entry of a limit's history, with the sums after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Entry {
    /// Where it took place.
    pub position: u64,
    /// When, in epoch milliseconds.
    pub time: u64,
    /// Whose it is.
    pub operation_id: String,
    /// What happened.
    #[serde(rename = "type")]
    pub kind: EntryType,
    /// How much was held, committed or freed.
    pub value: i64,
    /// What is committed, after it.
    pub commit_value: i64,
    /// What is held open, after it.
    pub hold_value: i64,
    /// Both together.
    pub total_value: i64,
}

/// The results of a batch, in its order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BatchReply<T> {
    /// One per item.
    pub results: Vec<BatchResult<T>>,
}

/// The result of one item of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum BatchResult<T> {
    /// It was not done.
    Refused(Problem),
    /// It was done.
    Done(Done<T>),
}

/// A single call's success body, plus its status.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Done<T> {
    /// The HTTP status of the single call.
    pub status: u16,
    /// What the single call answers.
    #[serde(flatten)]
    pub body: T,
}
