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
    limiter::{Durability, SetOverrides, Window, WindowType},
    locks::{GrantInfo as Lock, Granted as LockGrant, Lock as HeldLock, Mode as LockMode},
    namespace::Namespace,
};

/// The answer to a check.
pub type CheckReply = wire::limiter::CheckReply<'static>;
/// A limit that applied to a check.
pub type LimitStatus = wire::limiter::LimitStatus<'static>;
/// Why a check, a counter or a lease was refused: read by [`Failure::document`](crate::Failure::document).
pub type LimitReached = wire::limiter::LimitReached<'static>;
/// A counter after taking or giving back.
pub type CounterReply = wire::limiter::CounterReply<'static>;
/// How much is in use for exact key-values.
pub type Counter = wire::limiter::Counter;
/// A lease that was granted to this client.
pub type LeaseGrant = wire::limiter::LeaseReply<'static>;
/// A lease, as everybody can read it.
pub type Lease = wire::limiter::Lease<'static>;
/// A rule.
pub type Rule = wire::limiter::Rule<'static>;
/// The rules that apply to key-values.
pub type MatchReply = wire::limiter::MatchReply<'static>;
/// A rule that applies to key-values, with the overrides that apply.
pub type RuleMatch = wire::limiter::RuleMatch<'static>;
/// An override.
pub type Override = wire::limiter::Override<'static>;
/// The groups of a rule that use the most.
pub type Groups = wire::limiter::Groups<'static>;
/// A group of a rule, and what it uses.
pub type Group = wire::limiter::Group<'static>;
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
/// A rule set with its rules. It can be put back.
pub type RuleSet = wire::limiter::RuleSet<'static>;
/// A rule set without its rules.
pub type RuleSetInfo = wire::limiter::RuleSetInfo<'static>;
/// What putting a rule set has changed, or would change.
pub type RuleSetChanges = wire::limiter::RuleSetChanges<'static>;
/// A rule that a rule set changes.
pub type RuleChange = wire::limiter::ChangedRule<'static>;
/// Why a rule set cannot be put.
pub type RuleSetConflict = wire::limiter::SetConflict<'static>;
/// A request that was refused. A field that does not apply is `None`.
pub type Refusal = wire::refusals::RefusedRequest<'static>;
