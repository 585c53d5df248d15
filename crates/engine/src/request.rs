//! What comes in.

use crate::{Name, Page, events, ledger, limiter, locks};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// One command for one namespace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Where it is to be done: the unit of atomicity and of order.
    pub namespace: Name,
    /// Makes repeating the request harmless.
    pub idempotency: Option<Idempotency>,
    /// What is to be done.
    pub command: Command,
}

/// A client's key for "do this once". Replies of requests that changed something are kept under it for a day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Idempotency {
    /// The client's word for this request; it belongs to the namespace.
    pub key: Name,
    /// A hash of everything that makes the request what it is, so that another one under the same key is noticed.
    pub fingerprint: [u8; 16],
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Something of the ledger.
    Ledger(ledger::Command),
    /// Something of the limiter.
    Limiter(limiter::Command),
    /// Something about locks.
    Locks(locks::Command),
    /// Something about events.
    Events(events::Command),
    /// Remove the namespace with all that it holds.
    DeleteNamespace,
    /// The namespaces of this shard, by name. The request's own namespace plays no part.
    ListNamespaces(Page<Name>),
}

impl Command {
    /// Whether it may change something. Reads go on where writes are refused, and never bring a namespace into being.
    pub fn is_write(&self) -> bool {
        match self {
            Command::Ledger(command) => command.is_write(),
            Command::Limiter(command) => command.is_write(),
            Command::Locks(command) => command.is_write(),
            Command::Events(command) => command.is_write(),
            Command::DeleteNamespace => true,
            Command::ListNamespaces(_) => false,
        }
    }
}

/// A request on its way through the engine. A batch may need several rounds of reads, and keeps here what is done.
#[derive(Debug)]
pub struct Job {
    /// What was asked.
    pub request: Request,
    pub(crate) batch_results: Vec<Result<ledger::Reply, ledger::Refusal>>,
    pub(crate) changed: bool,
}

impl Job {
    /// A job of which nothing is done yet.
    pub fn new(request: Request) -> Job {
        Job { request, batch_results: Vec::new(), changed: false }
    }

    /// Whether a part of it is done.
    pub(crate) fn is_begun(&self) -> bool {
        self.changed || !self.batch_results.is_empty()
    }
}
