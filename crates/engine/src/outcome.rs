//! What comes out.

use crate::{Name, Position, events, ledger, limiter, locks};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The engine's answer to a [`crate::Request`]. It may be told only when the writes sealed after it are durable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// The ledger's answer.
    Ledger(Result<ledger::Reply, ledger::Refusal>),
    /// The limiter's answer.
    Limiter(Result<limiter::Reply, limiter::Refusal>),
    /// The answer about locks.
    Locks(Result<locks::Reply, locks::Refusal>),
    /// The answer about events.
    Events(Result<events::Reply, events::Refusal>),
    /// The namespace is gone; what it held is swept away behind the scenes.
    NamespaceDeleted,
    /// There is no such namespace to delete.
    NamespaceNotFound,
    /// A part of the shard's namespaces, by name.
    Namespaces(Vec<NamespaceInfo>),
    /// The idempotency key was used for another request before.
    IdempotencyKeyReused,
    /// A request under this key waits for its answer.
    IdempotencyKeyInUse,
    /// Too many requests of this kind wait in the namespace. Nothing was done.
    TooManyWaiting,
    /// A stored record that the request needs could not be read. Nothing was done.
    Unreadable,
    /// The answer would be too large. Nothing was done.
    AnswerTooLarge {
        /// How large an answer may be.
        max_bytes: u64,
    },
}

impl Outcome {
    /// The family that answered, for metrics.
    pub fn family(&self) -> &'static str {
        match self {
            Outcome::Ledger(_) => "ledger",
            Outcome::Limiter(_) => "limiter",
            Outcome::Locks(_) => "locks",
            Outcome::Events(_) => "events",
            Outcome::NamespaceDeleted
            | Outcome::NamespaceNotFound
            | Outcome::Namespaces(_)
            | Outcome::IdempotencyKeyReused
            | Outcome::IdempotencyKeyInUse
            | Outcome::TooManyWaiting
            | Outcome::Unreadable
            | Outcome::AnswerTooLarge { .. } => "namespace",
        }
    }

    /// Whether it was done.
    pub fn is_done(&self) -> bool {
        self.code() == "Ok"
    }

    /// `"Ok"`, or the word by which the refusal is known in problem documents, metrics and logs.
    pub fn code(&self) -> &'static str {
        match self {
            Outcome::Ledger(Ok(_))
            | Outcome::Limiter(Ok(_))
            | Outcome::Locks(Ok(_))
            | Outcome::Events(Ok(_))
            | Outcome::NamespaceDeleted
            | Outcome::Namespaces(_) => "Ok",
            Outcome::Ledger(Err(refusal)) => refusal.code(),
            Outcome::Limiter(Err(refusal)) => refusal.code(),
            Outcome::Locks(Err(refusal)) => refusal.code(),
            Outcome::Events(Err(refusal)) => refusal.code(),
            Outcome::NamespaceNotFound => "NamespaceNotFound",
            Outcome::IdempotencyKeyReused => "IdempotencyKeyReused",
            Outcome::IdempotencyKeyInUse => "IdempotencyKeyInUse",
            Outcome::TooManyWaiting => "Overloaded",
            Outcome::Unreadable => "ShardUnavailable",
            Outcome::AnswerTooLarge { .. } => "AnswerTooLarge",
        }
    }
}

/// What a list of namespaces shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceInfo {
    /// Its name.
    pub name: Name,
    /// The position of its last change.
    pub position: Position,
}
