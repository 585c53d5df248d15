//! Requests, and the door through which the requests of other programs come in.

use crate::{Invalid, Name, Page, events, ledger, limiter, locks};
use serde::{Deserialize, Serialize};

/// One command for one namespace.
///
/// A command is valid: its constructors check it. For this reason a request cannot be decoded. Decode an
/// [`UncheckedRequest`] instead, and convert it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Request {
    /// The namespace: the unit of atomicity and of order.
    pub namespace: Name,
    /// Makes repeating the request harmless.
    pub idempotency: Option<Idempotency>,
    /// The command.
    pub command: Command,
}

/// A request as another node has encoded it. Its command may be out of its limits, so all that it can do is become a
/// [`Request`], or [`Invalid`].
#[derive(Debug, Clone, Deserialize)]
pub struct UncheckedRequest {
    namespace: Name,
    idempotency: Option<Idempotency>,
    command: Command,
}

impl TryFrom<UncheckedRequest> for Request {
    type Error = Invalid;

    fn try_from(unchecked: UncheckedRequest) -> Result<Request, Invalid> {
        let UncheckedRequest { namespace, idempotency, command } = unchecked;
        command.validate()?;
        Ok(Request { namespace, idempotency, command })
    }
}

/// A client's key for "do this once". The reply to a request that changed something is kept under it for a day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Idempotency {
    /// The client's word for this request. Each namespace has its own keys.
    pub key: Name,
    /// A hash of everything that distinguishes the request, so that another request under the same key is noticed.
    pub fingerprint: [u8; 16],
}

/// A command of one of the families, or about namespaces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// A command of the ledger.
    Ledger(ledger::Command),
    /// A command of the limiter.
    Limiter(limiter::Command),
    /// A command about locks.
    Locks(locks::Command),
    /// A command about events.
    Events(events::Command),
    /// Remove the namespace with everything in it.
    DeleteNamespace,
    /// A page of the namespaces of this shard, by name. The request's own namespace is ignored.
    ListNamespaces(Page<Name>),
}

impl Command {
    /// Whether the command may change something. A command that only reads works where writes are refused, and never
    /// creates a namespace.
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

    /// Whether the command removes more than it writes, or overwrites only its own record.
    fn removes(&self) -> bool {
        use limiter::{Change, Command as Limiter};
        use locks::Command as Locks;
        match self {
            Command::DeleteNamespace => true,
            Command::Limiter(command) => match command {
                // Nobody must lose a lease because the disk is full. Extending one overwrites its own record.
                Limiter::ExtendLease(_) | Limiter::ReleaseLease(_) => true,
                Limiter::MoveCounter(change) => change.amount() < 0,
                Limiter::Change(change) => {
                    matches!(**change, Change::DeleteRule(_) | Change::DeleteOverride { .. })
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

    fn validate(&self) -> Result<(), Invalid> {
        match self {
            Command::Ledger(command) => command.validate(),
            Command::Limiter(command) => command.validate(),
            Command::Locks(command) => command.validate(),
            Command::Events(command) => command.validate(),
            Command::DeleteNamespace => Ok(()),
            Command::ListNamespaces(page) => page.validate(),
        }
    }
}

impl Request {
    /// Whether the request may change something.
    pub fn is_write(&self) -> bool {
        self.command.is_write()
    }

    /// The request that takes this one back, if its client goes away before the answer. None if that is not needed: the
    /// answer can be asked for again, and nothing waits for the request.
    pub fn cancellation(&self) -> Option<Request> {
        let Command::Locks(locks::Command::Acquire(wanted)) = &self.command else { return None };
        let command = Command::Locks(locks::Command::Abandon(wanted.id().clone()));
        Some(Request { namespace: self.namespace.clone(), idempotency: None, command })
    }

    /// Whether the request only takes back an earlier one.
    pub fn is_cancellation(&self) -> bool {
        matches!(self.command, Command::Locks(locks::Command::Abandon(_)))
    }

    /// Whether the request is accepted although the disk is full, because it removes more than it writes.
    pub fn is_allowed_when_full(&self) -> bool {
        // A kept reply would take more room than a command of the limiter or about locks frees.
        let keeps_reply = self.idempotency.is_some();
        self.command.removes()
            && !(keeps_reply && matches!(self.command, Command::Limiter(_) | Command::Locks(_)))
    }

    /// Whether the request ends or keeps alive what an earlier request began: a release, a commit, a rollback, a
    /// heartbeat. A shard with too much to do refuses such a request last, because refusing it frees nothing.
    pub fn makes_room(&self) -> bool {
        use ledger::{Command as Ledger, Transfer};
        let finishes = |transfer: &Transfer| matches!(transfer, Transfer::Finish(_));
        match &self.command {
            Command::Ledger(Ledger::Transfer(transfer)) => finishes(transfer),
            Command::Ledger(Ledger::Batch(transfers)) => transfers.iter().all(finishes),
            command => command.removes(),
        }
    }

    /// The size of the request in its compact encoding, in bytes.
    pub fn encoded_bytes(&self) -> usize {
        let bytes = postcard::serialize_with_flavor(self, postcard::ser_flavors::Size::default());
        bytes.expect("counting bytes cannot fail, and all lengths are known")
    }
}

/// A request on its way through the engine. A batch may need several rounds of reads; its finished items are kept here.
#[derive(Debug)]
pub struct Job {
    /// The request.
    pub request: Request,
    pub(crate) progress: ledger::Progress,
    /// Whether the request has changed something already.
    pub(crate) changed: bool,
}

impl Job {
    /// Begins a request.
    pub fn new(request: Request) -> Job {
        // Only `Deserialize` of a part of a command could have avoided the constructors.
        debug_assert_eq!(request.command.validate(), Ok(()), "the engine was given an invalid command");
        Job { request, progress: ledger::Progress::default(), changed: false }
    }
}
