//! What comes in.

use crate::{Name, Page, events, ledger, limiter, locks};
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

impl Request {
    /// Whether it may change something.
    pub fn is_write(&self) -> bool {
        self.command.is_write()
    }

    /// What takes back the request, if whoever asked is gone before the answer. Most need not be: their answer can be
    /// asked for again, and nothing waits for them.
    pub fn cancellation(&self) -> Option<Request> {
        let Command::Locks(locks::Command::Acquire(wanted)) = &self.command else { return None };
        let command = Command::Locks(locks::Command::Abandon(wanted.id.clone()));
        Some(Request { namespace: self.namespace.clone(), idempotency: None, command })
    }

    /// Whether it only takes back what an earlier request asked for.
    pub fn is_cancellation(&self) -> bool {
        matches!(self.command, Command::Locks(locks::Command::Abandon(_)))
    }

    /// Whether it removes more than it writes, so that a full disk is no reason to refuse it.
    pub fn is_allowed_when_full(&self) -> bool {
        use limiter::{Change, Command as Limiter};
        use locks::Command as Locks;
        match &self.command {
            Command::DeleteNamespace => true,
            // A kept reply would take more than they free.
            Command::Limiter(_) | Command::Locks(_) if self.idempotency.is_some() => false,
            Command::Limiter(command) => match command {
                // Its holder lives: nobody must lose a lease for lack of room. It overwrites its own record.
                Limiter::ExtendLease(_) | Limiter::ReleaseLease(_) => true,
                Limiter::MoveCounter { by, .. } => *by < 0,
                Limiter::Change(change) => {
                    matches!(change, Change::DeleteRule(_) | Change::DeleteOverride { .. })
                }
                _ => false,
            },
            Command::Locks(command) => match command {
                Locks::Heartbeat { .. } | Locks::Release { .. } | Locks::Abandon(_) => true,
                Locks::Acquire(_) | Locks::Get(_) | Locks::List { .. } => false,
            },
            Command::Events(command) => matches!(command, events::Command::Delete(_)),
            Command::Ledger(_) | Command::ListNamespaces(_) => false,
        }
    }
}

/// A request on its way through the engine. A batch may need several rounds of reads, and keeps here what is done.
#[derive(Debug)]
pub struct Job {
    /// What was asked.
    pub request: Request,
    pub(crate) progress: ledger::Progress,
    /// Whether it has changed something already.
    pub(crate) changed: bool,
}

impl Job {
    /// A job of which nothing is done yet.
    pub fn new(request: Request) -> Job {
        Job { request, progress: ledger::Progress::default(), changed: false }
    }
}
