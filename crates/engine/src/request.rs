//! Requests, and the door through which the requests of other programs come in.

use crate::{
    Invalid, Millis, Name, Page, RequestId, audit::AuditCursor, decisions, events, ledger, limiter, locks,
};
use core::net::IpAddr;
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
    /// Who asks, from where, and in which request. It decides nothing: it is recorded with changes that are audited.
    pub caller: Caller,
    /// The command.
    pub command: Command,
}

/// Who asks, from where, and in which request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// The name of the client's token. `None` if the server has no tokens, or asks itself.
    pub actor: Option<Name>,
    /// The address from which the client's connection came. `None` if the server asks itself.
    pub address: Option<IpAddr>,
    /// The id of the client's request. `None` if the server asks itself.
    pub request_id: Option<RequestId>,
}

/// A request as another node has encoded it. Its command may be out of its limits, so all that it can do is become a
/// [`Request`], or [`Invalid`].
#[derive(Debug, Clone, Deserialize)]
pub struct UncheckedRequest {
    namespace: Name,
    idempotency: Option<Idempotency>,
    caller: Caller,
    command: Command,
}

impl TryFrom<UncheckedRequest> for Request {
    type Error = Invalid;

    fn try_from(unchecked: UncheckedRequest) -> Result<Request, Invalid> {
        let UncheckedRequest { namespace, idempotency, caller, command } = unchecked;
        command.validate()?;
        Ok(Request { namespace, idempotency, caller, command })
    }
}

/// A client's key for "do this once". The reply to a request that changed something is kept under it for a day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Idempotency {
    /// The name of the token whose key it is. Tokens with different names have different keys. `None` without tokens.
    pub owner: Option<Name>,
    /// The client's word for this request. Each namespace has its own keys.
    pub key: Name,
    /// A hash of everything that distinguishes the request, so that another request under the same key is noticed.
    pub fingerprint: [u8; 16],
}

impl Idempotency {
    /// What distinguishes the key from all others of its namespace: its owner, and the key itself.
    pub fn owned_key(&self) -> (Option<Name>, Name) {
        (self.owner.clone(), self.key.clone())
    }
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
    /// A command about decisions.
    Decisions(decisions::Command),
    /// Remove the namespace with everything in it.
    DeleteNamespace,
    /// A page of the namespaces of this shard, by name. The request's own namespace is ignored.
    ListNamespaces(Page<Name>),
    /// A part of the audit of the namespace, by time. The namespace need not exist any more.
    ListAudit(Page<AuditCursor>),
    /// A part of the audit of all namespaces of this shard, by time. The request's own namespace is ignored.
    ListShardAudit(Page<AuditCursor>),
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
            Command::Decisions(command) => command.is_write(),
            Command::DeleteNamespace => true,
            Command::ListNamespaces(_) | Command::ListAudit(_) | Command::ListShardAudit(_) => false,
        }
    }

    /// Whether the command only asks what would happen.
    pub fn is_dry_run(&self) -> bool {
        match self {
            Command::Limiter(limiter::Command::Check(check)) => check.dry_run(),
            Command::Decisions(decisions::Command::Decide(decide)) => decide.wanted.dry_run(),
            _ => false,
        }
    }

    /// Whether the command removes more than it writes, or overwrites only its own record.
    fn frees_room(&self) -> bool {
        use limiter::{Change, Command as Limiter};
        use locks::Command as Locks;
        match self {
            Command::DeleteNamespace => true,
            Command::Limiter(command) => match command {
                // Nobody must lose a lease because there is no room. Extending one overwrites its own record.
                Limiter::ExtendLease { .. } | Limiter::ReleaseLease { .. } | Limiter::AbandonLease(_) => true,
                Limiter::MoveCounter(change) => change.amount() < 0,
                Limiter::Change(change) => {
                    matches!(
                        **change,
                        Change::DeleteRule(_) | Change::DeleteOverride { .. } | Change::DeleteRuleSet { .. }
                    )
                }
                _ => false,
            },
            Command::Locks(command) => match command {
                Locks::Heartbeat { .. } | Locks::Release { .. } | Locks::Abandon(_) => true,
                Locks::Acquire(_) | Locks::Get(_) | Locks::List { .. } => false,
            },
            Command::Events(command) => matches!(command, events::Command::Delete(_)),
            // A decision must not end because there is no room. Extending it overwrites its own record.
            Command::Decisions(command) => {
                matches!(command, decisions::Command::Heartbeat(_) | decisions::Command::Abandon { .. })
            }
            // An operation must not lose its holds because there is no room. Extending it overwrites its own record.
            Command::Ledger(command) => {
                matches!(command, ledger::Command::DeleteLimit(_) | ledger::Command::Extend(_))
            }
            Command::ListNamespaces(_) | Command::ListAudit(_) | Command::ListShardAudit(_) => false,
        }
    }

    /// The items, if the command is a batch.
    pub(crate) fn as_batch(&self) -> Option<BatchCommand<'_>> {
        match self {
            Command::Ledger(ledger::Command::Batch(transfers)) => Some(BatchCommand::Transfers(transfers)),
            Command::Limiter(limiter::Command::CheckBatch(checks)) => Some(BatchCommand::Checks(checks)),
            Command::Decisions(decisions::Command::Batch(items)) => Some(BatchCommand::Operations(items)),
            _ => None,
        }
    }

    pub(crate) fn validate(&self) -> Result<(), Invalid> {
        match self {
            Command::Ledger(command) => command.validate(),
            Command::Limiter(command) => command.validate(),
            Command::Locks(command) => command.validate(),
            Command::Events(command) => command.validate(),
            Command::Decisions(command) => command.validate(),
            Command::DeleteNamespace => Ok(()),
            Command::ListNamespaces(page) => page.validate(),
            Command::ListAudit(page) | Command::ListShardAudit(page) => page.validate(),
        }
    }
}

/// A command whose items are done one by one, in slices.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BatchCommand<'a> {
    /// Holds, commits and rollbacks.
    Transfers(&'a [ledger::Transfer]),
    /// Checks.
    Checks(&'a [limiter::Check]),
    /// Decisions, and their ends.
    Operations(&'a [decisions::BatchItem]),
}

impl BatchCommand<'_> {
    /// The number of items.
    pub(crate) fn len(self) -> usize {
        match self {
            BatchCommand::Transfers(transfers) => transfers.len(),
            BatchCommand::Checks(checks) => checks.len(),
            BatchCommand::Operations(items) => items.len(),
        }
    }
}

impl Request {
    /// A request of nobody in particular, without an idempotency key.
    pub fn new(namespace: Name, command: Command) -> Request {
        Request { namespace, idempotency: None, caller: Caller::default(), command }
    }

    /// About how much work the request is, in units of about a microsecond. A batch is done in slices, so its weight may be
    /// more than others should wait for.
    pub fn weight(&self) -> usize {
        /// The work of a small command.
        const SMALL: usize = 4;
        /// The work of a check's entry, if few rules apply.
        const ENTRY: usize = 4;
        /// The work of a rule change: it may count a whole slice of counters.
        const RULE_CHANGE: usize = 512;
        /// The work of one rule or override of a rule set that is put.
        const RULE: usize = 4;
        /// The work of reading a rule set, whose size is not known yet.
        const RULE_SET: usize = 2_048;
        /// The work of a list or a query, which looks at a bounded number of objects.
        const LIST: usize = 256;
        match &self.command {
            Command::Ledger(command) => match command {
                ledger::Command::Batch(transfers) => transfers.iter().map(ledger::Transfer::weight).sum(),
                ledger::Command::Transfer(transfer) => transfer.weight(),
                ledger::Command::Values(values) => SMALL + values.limit_names.len(),
                ledger::Command::ListLimits(_)
                | ledger::Command::ListLimitsByUse(_)
                | ledger::Command::ListOperations { .. }
                | ledger::Command::ListEntries { .. } => LIST,
                _ => SMALL,
            },
            Command::Limiter(command) => match command {
                limiter::Command::CheckBatch(checks) => {
                    checks.iter().map(|check| SMALL + ENTRY * check.entries().len()).sum()
                }
                limiter::Command::Check(check) => SMALL + ENTRY * check.entries().len(),
                limiter::Command::CheckSet(set) => SMALL + ENTRY * set.entries().len(),
                limiter::Command::Change(change) => match &**change {
                    limiter::Change::PutRuleSet { new, .. } => RULE_CHANGE + RULE * new.len(),
                    _ => RULE_CHANGE,
                },
                limiter::Command::PlanRuleSet(plan) => LIST + plan.rules().len(),
                limiter::Command::GetRuleSet(_) => RULE_SET,
                limiter::Command::Match(_)
                | limiter::Command::ListRules { .. }
                | limiter::Command::ListOverrides { .. }
                | limiter::Command::ListCounters { .. }
                | limiter::Command::ListGroups { .. }
                | limiter::Command::ListRuleSets(_)
                | limiter::Command::ListLeases { .. } => LIST,
                _ => SMALL,
            },
            Command::Locks(locks::Command::List { .. })
            | Command::Events(events::Command::List(_) | events::Command::Changes(_))
            | Command::DeleteNamespace
            | Command::ListNamespaces(_)
            | Command::ListAudit(_)
            | Command::ListShardAudit(_) => LIST,
            Command::Locks(_) | Command::Events(_) => SMALL,
            Command::Decisions(command) => match command {
                decisions::Command::Decide(request) => decisions::weight(&request.wanted),
                decisions::Command::Batch(items) => items.iter().map(decisions::BatchItem::weight).sum(),
                decisions::Command::List { .. } => LIST,
                _ => 4 * SMALL,
            },
        }
    }

    /// Whether the request may change something.
    pub fn is_write(&self) -> bool {
        self.command.is_write()
    }

    /// The request that takes this one back, if its client goes away before the answer. None if that is not needed: the
    /// answer can be asked for again, and nothing waits for the request.
    pub fn cancellation(&self) -> Option<Request> {
        let command = match &self.command {
            Command::Locks(locks::Command::Acquire(request)) => {
                Command::Locks(locks::Command::Abandon(request.id.clone()))
            }
            Command::Limiter(limiter::Command::TakeLease(new)) if new.wait() > Millis(0) => {
                Command::Limiter(limiter::Command::AbandonLease(new.id().clone()))
            }
            Command::Decisions(decisions::Command::Decide(request)) => {
                let (operation_id, waiter) = (request.wanted.operation_id().clone(), request.waiter.clone()?);
                Command::Decisions(decisions::Command::Abandon { operation_id, waiter })
            }
            _ => return None,
        };
        Some(Request::new(self.namespace.clone(), command))
    }

    /// Whether the request only takes back an earlier one.
    pub fn is_cancellation(&self) -> bool {
        matches!(
            self.command,
            Command::Locks(locks::Command::Abandon(_))
                | Command::Limiter(limiter::Command::AbandonLease(_))
                | Command::Decisions(decisions::Command::Abandon { .. })
        )
    }

    /// Whether the request is accepted although the disk is full, because it removes more than it writes.
    pub fn is_allowed_when_full(&self) -> bool {
        // A kept reply would take more room than a command of the limiter, the ledger or about locks frees.
        let keeps_reply = self.idempotency.is_some();
        self.command.frees_room()
            && !(keeps_reply
                && matches!(
                    self.command,
                    Command::Ledger(_) | Command::Limiter(_) | Command::Locks(_) | Command::Decisions(_)
                ))
    }

    /// Whether the request ends or keeps alive what an earlier request began: a release, a commit, a rollback, a
    /// heartbeat. A shard with too much to do refuses such a request last, because refusing it frees nothing.
    pub fn makes_room(&self) -> bool {
        use ledger::{Command as Ledger, Transfer};
        let finishes = |transfer: &Transfer| matches!(transfer, Transfer::Finish(..));
        match &self.command {
            Command::Ledger(Ledger::Transfer(transfer)) => finishes(transfer),
            Command::Ledger(Ledger::Batch(transfers)) => transfers.iter().all(finishes),
            Command::Decisions(decisions::Command::Settle(_) | decisions::Command::Rollback(_)) => true,
            Command::Decisions(decisions::Command::Batch(items)) => {
                !items.iter().any(|item| matches!(item, decisions::BatchItem::Decide(_)))
            }
            command => command.frees_room(),
        }
    }

    /// Whether the request may make the resident state grow. Requests that cannot are accepted although memory is used up:
    /// reads, and what makes room. (Kept replies are not resident, so an idempotency key makes no difference.)
    pub fn may_add_state(&self) -> bool {
        self.is_write() && !self.makes_room()
    }

    /// The size of the request in its compact encoding, in bytes.
    pub fn encoded_bytes(&self) -> usize {
        let bytes = postcard::serialize_with_flavor(self, postcard::ser_flavors::Size::default());
        bytes.expect("counting bytes cannot fail, and all lengths are known")
    }
}
