//! What comes out.

use crate::{Name, Position, ledger};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The engine's answer to a [`crate::Request`]. It may be told only when the writes sealed after it are durable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// The ledger's answer.
    Ledger(Result<ledger::Reply, ledger::Refusal>),
    /// The namespace is gone; what it held is swept away behind the scenes.
    NamespaceDeleted,
    /// There is no such namespace to delete.
    NamespaceNotFound,
    /// A part of the shard's namespaces, by name.
    Namespaces(Vec<NamespaceInfo>),
    /// The idempotency key was used for another request before.
    IdempotencyKeyReused,
    /// A stored record that the request needs could not be read. Nothing was done.
    Unreadable,
}

impl Outcome {
    /// The family that answered, for metrics.
    pub fn family(&self) -> &'static str {
        match self {
            Outcome::Ledger(_) => "ledger",
            Outcome::NamespaceDeleted
            | Outcome::NamespaceNotFound
            | Outcome::Namespaces(_)
            | Outcome::IdempotencyKeyReused
            | Outcome::Unreadable => "namespace",
        }
    }

    /// `"Ok"`, or the word by which the refusal is known in problem documents, metrics and logs.
    pub fn code(&self) -> &'static str {
        match self {
            Outcome::Ledger(Ok(_)) | Outcome::NamespaceDeleted | Outcome::Namespaces(_) => "Ok",
            Outcome::Ledger(Err(refusal)) => refusal.code(),
            Outcome::NamespaceNotFound => "NamespaceNotFound",
            Outcome::IdempotencyKeyReused => "IdempotencyKeyReused",
            Outcome::Unreadable => "ShardUnavailable",
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
