//! The outcomes of requests.

use crate::{
    Listed, Name, Position, Quota,
    audit::{AuditCursor, AuditRecord},
    decisions, events, ledger, limiter, locks,
};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The engine's answer to a [`crate::Request`]. It may be released only when the batch that is sealed after it is durable; a
/// relaxed outcome may be released at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// The ledger's answer.
    Ledger(Result<ledger::Reply, ledger::Refusal>),
    /// The limiter's answer.
    Limiter(Result<limiter::Reply, limiter::Refusal>),
    /// The locks' answer.
    Locks(Result<locks::Reply, locks::Refusal>),
    /// The events' answer.
    Events(Result<events::Reply, events::Refusal>),
    /// The answer about decisions.
    Decisions(Result<decisions::Reply, decisions::Refusal>),
    /// The namespace is deleted. Sweeps remove its records later.
    NamespaceDeleted,
    /// The namespace to delete does not exist.
    NamespaceNotFound,
    /// A page of the shard's namespaces, sorted by name.
    Namespaces(Vec<NamespaceInfo>),
    /// A part of the audit, by time.
    Audit(Listed<AuditRecord, AuditCursor>),
    /// The idempotency key was used for a different request before.
    IdempotencyKeyReused,
    /// Another request under this idempotency key is waiting for its answer.
    IdempotencyKeyInUse,
    /// Too many requests of this kind wait in the namespace. Nothing has changed.
    TooManyWaiting,
    /// A stored record that the request needs could not be read. Nothing has changed.
    Unreadable,
    /// The answer would be too large. Nothing has changed.
    AnswerTooLarge {
        /// The largest size of an answer, in bytes.
        max_bytes: u64,
    },
}

impl Outcome {
    /// The quota that has refused the request as a whole.
    pub(crate) fn exceeded_quota(&self) -> Option<Quota> {
        match self {
            Outcome::Ledger(Err(ledger::Refusal::QuotaExceeded(exceeded)))
            | Outcome::Limiter(Err(limiter::Refusal::QuotaExceeded(exceeded)))
            | Outcome::Locks(Err(locks::Refusal::QuotaExceeded(exceeded)))
            | Outcome::Decisions(Err(decisions::Refusal::QuotaExceeded(exceeded)))
            | Outcome::Events(Err(events::Refusal::QuotaExceeded(exceeded))) => Some(exceeded.quota),
            _ => None,
        }
    }

    /// The quotas that have refused the request, or items of its batch.
    pub fn exceeded_quotas(&self) -> Vec<Quota> {
        match self {
            Outcome::Ledger(Ok(ledger::Reply::Batch(items))) => quotas_of(items, |refusal| match refusal {
                ledger::Refusal::QuotaExceeded(exceeded) => Some(exceeded.quota),
                _ => None,
            }),
            Outcome::Limiter(Ok(limiter::Reply::Batch(items))) => quotas_of(items, |refusal| match refusal {
                limiter::Refusal::QuotaExceeded(exceeded) => Some(exceeded.quota),
                _ => None,
            }),
            Outcome::Decisions(Ok(decisions::Reply::Batch(items))) => {
                quotas_of(items, |refusal| match refusal {
                    decisions::Refusal::QuotaExceeded(exceeded) => Some(exceeded.quota),
                    _ => None,
                })
            }
            other => other.exceeded_quota().into_iter().collect(),
        }
    }

    /// The label of the family in metrics.
    pub fn family(&self) -> &'static str {
        match self {
            Outcome::Ledger(_) => "ledger",
            Outcome::Limiter(_) => "limiter",
            Outcome::Locks(_) => "locks",
            Outcome::Events(_) => "events",
            Outcome::Decisions(_) => "decisions",
            Outcome::NamespaceDeleted
            | Outcome::NamespaceNotFound
            | Outcome::Namespaces(_)
            | Outcome::Audit(_)
            | Outcome::IdempotencyKeyReused
            | Outcome::IdempotencyKeyInUse
            | Outcome::TooManyWaiting
            | Outcome::Unreadable
            | Outcome::AnswerTooLarge { .. } => "namespace",
        }
    }

    /// Whether the request succeeded.
    pub fn is_done(&self) -> bool {
        match self {
            Outcome::Ledger(result) => result.is_ok(),
            Outcome::Limiter(result) => result.is_ok(),
            Outcome::Locks(result) => result.is_ok(),
            Outcome::Events(result) => result.is_ok(),
            Outcome::Decisions(result) => result.is_ok(),
            Outcome::NamespaceDeleted | Outcome::Namespaces(_) | Outcome::Audit(_) => true,
            Outcome::NamespaceNotFound
            | Outcome::IdempotencyKeyReused
            | Outcome::IdempotencyKeyInUse
            | Outcome::TooManyWaiting
            | Outcome::Unreadable
            | Outcome::AnswerTooLarge { .. } => false,
        }
    }

    /// `"Ok"`, or the error code in problem documents, metrics and logs.
    pub fn code(&self) -> &'static str {
        match self {
            Outcome::Ledger(Ok(_))
            | Outcome::Limiter(Ok(_))
            | Outcome::Locks(Ok(_))
            | Outcome::Events(Ok(_))
            | Outcome::Decisions(Ok(_))
            | Outcome::NamespaceDeleted
            | Outcome::Namespaces(_)
            | Outcome::Audit(_) => "Ok",
            Outcome::Ledger(Err(refusal)) => refusal.code(),
            Outcome::Limiter(Err(refusal)) => refusal.code(),
            Outcome::Locks(Err(refusal)) => refusal.code(),
            Outcome::Events(Err(refusal)) => refusal.code(),
            Outcome::Decisions(Err(refusal)) => refusal.code(),
            Outcome::NamespaceNotFound => "NamespaceNotFound",
            Outcome::IdempotencyKeyReused => "IdempotencyKeyReused",
            Outcome::IdempotencyKeyInUse => "IdempotencyKeyInUse",
            Outcome::TooManyWaiting => "Overloaded",
            Outcome::Unreadable => "ShardUnavailable",
            Outcome::AnswerTooLarge { .. } => "AnswerTooLarge",
        }
    }
}

/// The quotas that have refused items of a batch.
fn quotas_of<T, R>(items: &[Result<T, R>], quota: impl Fn(&R) -> Option<Quota>) -> Vec<Quota> {
    items.iter().filter_map(|item| quota(item.as_ref().err()?)).collect()
}

/// A namespace in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceInfo {
    /// The namespace's name.
    pub name: Name,
    /// The position of the namespace's last change.
    pub position: Position,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quotas::QuotaExceeded;
    use alloc::vec;

    #[test]
    fn a_batch_tells_the_quotas_that_refused_its_items() {
        let exceeded = QuotaExceeded { quota: Quota::Rules, limit: 1, used: 1 };
        let batches = [
            Outcome::Ledger(Ok(ledger::Reply::Batch(vec![Err(ledger::Refusal::QuotaExceeded(exceeded))]))),
            Outcome::Limiter(Ok(limiter::Reply::Batch(vec![Err(limiter::Refusal::QuotaExceeded(exceeded))]))),
            Outcome::Decisions(Ok(decisions::Reply::Batch(vec![Err(decisions::Refusal::QuotaExceeded(
                exceeded,
            ))]))),
        ];
        for batch in batches {
            assert_eq!(batch.exceeded_quotas(), [Quota::Rules], "{}", batch.family());
        }
    }
}
