//! Failures that requests of every family can have.

use super::super::problem::{Code, Failure};
use limina_engine::{Name, Quota, QuotaExceeded};
use limina_node::Unavailable;

pub(super) fn answer_too_large(max_bytes: u64) -> Failure {
    let detail = format!("The answer could have more than {max_bytes} bytes. Nothing was done.");
    Failure::new(Code::AnswerTooLarge, detail).with("max_bytes", max_bytes)
}

/// The answer to a request that has no outcome.
pub(crate) fn unavailable(reason: Unavailable) -> Failure {
    let (code, detail) = match reason {
        Unavailable::Overloaded { retry_after_ms } => {
            let detail = "The request would have to wait too long. Nothing was done.";
            return Failure::new(Code::Overloaded, detail).retry_after(retry_after_ms);
        }
        Unavailable::MemoryFull => {
            (Code::Overloaded, "The server's memory budget is used up. Nothing was done.")
        }
        Unavailable::ShuttingDown => (Code::ShuttingDown, "The server is shutting down. Nothing was done."),
        Unavailable::StorageFull => {
            (Code::StorageFull, "The storage is full. Nothing was done. Reads still work.")
        }
        Unavailable::ShardUnavailable => {
            (Code::ShardUnavailable, "The namespace is temporarily unavailable. Nothing was done.")
        }
        Unavailable::OutcomeUnknown => (
            Code::OutcomeUnknown,
            "The request may have been executed. \
             Send it again with the same Idempotency-Key or operation id to find out.",
        ),
    };
    Failure::new(code, detail)
}

/// A part of an open decision cannot be changed alone.
pub(super) fn part_of_operation(operation_id: &Name) -> Failure {
    let detail = format!("It is a part of the decision {operation_id:?}, which is open. Nothing was done.");
    Failure::new(Code::PartOfOperation, detail).with("operation_id", operation_id.as_str())
}

/// A namespace has its fill.
pub(crate) fn quota_exceeded(exceeded: QuotaExceeded) -> Failure {
    let QuotaExceeded { quota, limit, used } = exceeded;
    let detail =
        format!("The namespace may have {limit} {}, and has {used}. Nothing was done.", quota_noun(quota));
    Failure::new(Code::QuotaExceeded, detail)
        .with("quota", quota.name())
        .with("limit", limit)
        .with("used", used)
}

fn quota_noun(quota: Quota) -> &'static str {
    match quota {
        Quota::KeptReplies => "replies kept under idempotency keys",
        Quota::Rules => "rules",
        Quota::Overrides => "overrides",
        Quota::Groups => "groups of rules",
        Quota::Counters => "counters",
        Quota::Leases => "leases",
        Quota::LedgerLimits => "ledger limits",
        Quota::Streams => "streams",
        Quota::LocksHeld => "held locks",
        Quota::LocksWaiting => "requests that wait for locks",
        Quota::ResidentBytes => "bytes of memory",
    }
}

pub(crate) fn unreadable() -> Failure {
    Failure::new(Code::ShardUnavailable, "A stored record could not be read. Nothing was done.")
}
