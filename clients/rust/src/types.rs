//! The documents of the API, as this client reads them. Unknown fields are ignored, so that an older client understands a newer
//! server; [`Reply::json`](crate::Reply::json) has them all.

use limina_api as wire;

pub use wire::{
    KeyValues, Keys, Page, Problem,
    audit::AuditRecord,
    cluster::{Cluster, Node, Shard},
    decisions::{EventStatus as DecisionEventStatus, Part as DecisionPart, State as DecisionState},
    key_values::OwnedValue as KeyValue,
    ledger::{
        Entry, EntryType, FinalizationReply, HoldReply, Limit, LimitValue, Operation, OperationHold,
        State as HoldState, ValuesReply,
    },
    limiter::{
        ChangedRule as RuleChange, CheckReply, ConflictCode as RuleSetConflictCode, Counter, CounterReply,
        Durability, Group, Groups, Lease, LeaseReply as LeaseGrant, Limit as LimitOfRule, LimitReached,
        LimitStatus, MatchReply, Override, Rule, RuleField, RuleMatch, RuleSet, RuleSetChanges, RuleSetInfo,
        SetConflict as RuleSetConflict, SetOverrides, Window, WindowType,
    },
    locks::{GrantInfo as Lock, Granted as LockGrant, Lock as HeldLock, Mode as LockMode},
    namespace::Namespace,
    time::{Millis, Position},
};

/// A stream of events.
pub type Stream = wire::events::Stream<'static>;
/// An event that was accepted.
pub type Submitted = wire::events::Submitted<'static>;
/// All incubating events of a stream.
pub type Incubating = wire::events::Incubating<'static>;
/// A message to the followers of a stream: a change, or a key frame.
pub type Message = wire::events::Message<'static>;

/// A decision over limits, holds, locks and an event.
pub type Decision = wire::decisions::Decision<'static>;
/// A limit that applied to a check of a decision.
pub type DecisionLimit = wire::decisions::LimitOfDecision<'static>;
/// The event of a decision.
pub type DecisionEvent = wire::decisions::EventOfDecision<'static>;
/// Why a decision was refused, part by part: read by [`Failure::document`](crate::Failure::document).
pub type RefusedDecision = wire::decisions::Refused<'static>;
/// A request that was refused. A field that does not apply is `None`.
pub type Refusal = wire::refusals::RefusedRequest<'static>;
