//! The ledger's replies.

use super::{super::status, in_request_order};
use limina_api::{
    Page, Problem,
    ledger::{
        BatchReply, BatchResult, Done, Entry, FinalizationReply, HoldReply, Limit, Operation, ValuesReply,
    },
};
use limina_engine::ledger::{Refusal, Reply};
use serde::Serialize;

/// The body of a successful reply of the ledger.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Body {
    Limit(Limit),
    Limits(Page<Limit>),
    Hold(HoldReply),
    Finalization(FinalizationReply),
    Batch(BatchReply<Body>),
    Values(ValuesReply),
    Operation(Operation),
    Operations(Page<Operation>),
    Entries(Page<Entry>),
    /// The answer has no body.
    Nothing,
}

pub(crate) fn body(reply: Reply) -> Body {
    match reply {
        Reply::Limit(limit) => Body::Limit(limit),
        // The list by use ends with its first page: limits that are farther from their ceilings are not shown.
        Reply::Limits(listed) | Reply::LimitsByUse(listed) => Body::Limits(listed.into()),
        Reply::Hold(reply) => Body::Hold(reply),
        Reply::Finalization(reply) => Body::Finalization(reply),
        Reply::Batch(results) => {
            Body::Batch(BatchReply { results: results.into_iter().map(batch_result).collect() })
        }
        Reply::Values(reply) => Body::Values(reply),
        Reply::Operation(operation) => Body::Operation(operation),
        Reply::Operations(listed) => Body::Operations(listed.into()),
        Reply::LimitDeleted => Body::Nothing,
        Reply::Entries(listed) => Body::Entries(listed.into()),
    }
}

/// The results of a batch. `problems` belong to the items that were not valid and so were not submitted.
pub(crate) fn merged_batch(
    results: Vec<Result<Reply, Refusal>>,
    problems: Vec<(usize, Problem)>,
) -> BatchReply<Body> {
    BatchReply {
        results: in_request_order(results.into_iter().map(batch_result), problems, BatchResult::Refused),
    }
}

fn batch_result(result: Result<Reply, Refusal>) -> BatchResult<Body> {
    match result {
        Ok(reply) => BatchResult::Done(Done { status: 200, body: body(reply) }),
        Err(refusal) => BatchResult::Refused(status::ledger::refusal(refusal).into_problem()),
    }
}
