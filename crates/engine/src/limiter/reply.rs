//! The replies and refusals of the limiter.

use super::terms::{Limit, NewOverride, NewRule, SetOverrides};
use crate::{Listed, Millis, Name, Position, QuotaExceeded, Time, key_values::KeyValues};
use alloc::{boxed::Box, vec::Vec};
use core::cmp::Ordering;
use serde::{Deserialize, Serialize};

/// The reply to a command that succeeded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// A rule as it is now.
    Rule(RuleInfo),
    /// A rule that this command has created.
    RuleCreated(RuleInfo),
    /// The rule and its overrides are deleted.
    RuleDeleted,
    /// A page of the rules, sorted by name.
    Rules(Listed<RuleInfo, Name>),
    /// An override as it is now.
    Override(OverrideInfo),
    /// An override that this command has created.
    OverrideCreated(OverrideInfo),
    /// The override is deleted.
    OverrideDeleted,
    /// A page of a rule's overrides, sorted by name.
    Overrides(Listed<OverrideInfo, Name>),
    /// The rule set is what it is to be.
    RuleSetPut {
        /// Whether this command has created the set.
        is_new: bool,
        /// What has changed.
        changes: SetChanges,
    },
    /// The rules that apply, sorted by name.
    Matches(Vec<RuleMatch>),
    /// The check is allowed.
    Allowed(Checked),
    /// One decision for each check, in order, allowed or not. A check that no limit has decided is refused with
    /// [`Refusal::NoRuleApplies`] or [`Refusal::QuotaExceeded`].
    Batch(Vec<Result<Checked, Refusal>>),
    /// The decision of a check set, allowed or not. It is no refusal, because a refused set may have counted something.
    Set(Checked),
    /// The counter after taking or giving back.
    Moved {
        /// The counter.
        counter: CounterInfo,
        /// The decision of the check. Without limits if something was given back, because then nothing is checked.
        decision: Checked,
    },
    /// The counter after it was set.
    Counter(CounterInfo),
    /// A page of the counters, sorted by index.
    Counters(Listed<CounterInfo, CounterId>),
    /// A lease that this command has taken.
    LeaseTaken {
        /// The lease. In a box: every reply would be as large as the largest one.
        lease: Box<LeaseInfo>,
        /// The session secret. Only the holder may see it.
        session: Name,
        /// The decision of the check.
        decision: Checked,
    },
    /// A lease as it is now.
    Lease(LeaseInfo),
    /// The lease has ended, and what it held is given back.
    LeaseReleased,
    /// The request no longer waits.
    LeaseAbandoned,
    /// A page of the leases, sorted by id.
    Leases(Listed<LeaseInfo, Name>),
    /// A part of a rule's groups, sorted by index.
    Groups(Listed<GroupInfo, GroupId>),
    /// What putting the rule set would change.
    RuleSetPlanned(SetChanges),
    /// The rule set and its rules are deleted.
    RuleSetDeleted(SetChanges),
    /// A rule set with its rules.
    RuleSet(RuleSet),
    /// A page of the rule sets, sorted by name.
    RuleSets(Listed<RuleSetInfo, Name>),
}

/// A reply, and whether it may be released before its batch is durable.
pub(crate) struct Answer {
    pub(crate) result: Result<Reply, Refusal>,
    pub(crate) is_relaxed: bool,
}

/// Why a command was refused. If several apply, the first in this order is returned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Refusal {
    /// The rule does not exist.
    RuleNotFound {
        /// The name.
        rule: Name,
    },
    /// The rule set does not exist.
    RuleSetNotFound {
        /// The name.
        set: Name,
    },
    /// The rule set is the server's own. Only the server's configuration can change it.
    RuleSetManagedByServer {
        /// The name.
        set: Name,
    },
    /// The rules belong to a set, or to another one. Only a change of their set can change them.
    RuleManagedBySet {
        /// All such rules that the command names, sorted by name. There is at least one.
        rules: Vec<ManagedRule>,
    },
    /// A rule of this name exists already.
    RuleAlreadyExists {
        /// The name.
        rule: Name,
    },
    /// An override lacks a key of the new group_by.
    OverridesConflict {
        /// The rule.
        rule: Name,
        /// The first such override by name.
        name: Name,
    },
    /// The override does not exist.
    OverrideNotFound {
        /// The rule.
        rule: Name,
        /// The name.
        name: Name,
    },
    /// An override of this name, or with these key-values, exists already.
    OverrideAlreadyExists {
        /// The rule.
        rule: Name,
        /// The existing override.
        name: Name,
    },
    /// The override's key-values lack a key of the rule's group_by.
    GroupKeyMissing {
        /// The rule.
        rule: Name,
        /// The key.
        key: Box<str>,
    },
    /// The override has a burst, but its rule is not a bucket.
    BurstWithoutBucket {
        /// The rule.
        rule: Name,
    },
    /// The lease does not exist, or has ended.
    LeaseNotFound {
        /// The id.
        lease_id: Name,
    },
    /// The session secret is not that of the holder.
    SessionMismatch {
        /// The id of the lease.
        lease_id: Name,
    },
    /// The lease is a part of a decision, which is open. Only the decision as a whole can be changed.
    PartOfOperation {
        /// The id of the lease.
        lease_id: Name,
        /// The decision.
        operation_id: Name,
    },
    /// No rule applies to the key-values, and the request requires one. Nothing was taken.
    NoRuleApplies {
        /// The key-values.
        key_values: KeyValues,
    },
    /// At least one limit refuses. Nothing was taken.
    LimitReached(Checked),
    /// The namespace would have more than its quota allows. Nothing has changed.
    QuotaExceeded(QuotaExceeded),
}

impl From<QuotaExceeded> for Refusal {
    fn from(exceeded: QuotaExceeded) -> Refusal {
        Refusal::QuotaExceeded(exceeded)
    }
}

impl Refusal {
    /// The error code in problem documents, metrics and logs.
    pub fn code(&self) -> &'static str {
        match self {
            Refusal::RuleNotFound { .. } => "RuleNotFound",
            Refusal::RuleSetNotFound { .. } => "RuleSetNotFound",
            Refusal::RuleSetManagedByServer { .. } => "RuleSetManagedByServer",
            Refusal::RuleManagedBySet { .. } => "RuleManagedBySet",
            Refusal::RuleAlreadyExists { .. } => "RuleAlreadyExists",
            Refusal::OverridesConflict { .. } => "OverridesConflict",
            Refusal::OverrideNotFound { .. } => "OverrideNotFound",
            Refusal::OverrideAlreadyExists { .. } => "OverrideAlreadyExists",
            Refusal::GroupKeyMissing { .. } | Refusal::BurstWithoutBucket { .. } => "InvalidRequest",
            Refusal::LeaseNotFound { .. } => "LeaseNotFound",
            Refusal::SessionMismatch { .. } => "SessionMismatch",
            Refusal::NoRuleApplies { .. } => "NoRuleApplies",
            Refusal::PartOfOperation { .. } => "PartOfOperation",
            Refusal::LimitReached(_) => "LimitReached",
            Refusal::QuotaExceeded(_) => "QuotaExceeded",
        }
    }
}

/// A rule as clients see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuleInfo {
    /// What was set.
    pub rule: NewRule,
    /// The number of overrides.
    pub overrides: usize,
    /// The set to which the rule belongs.
    pub managed_by: Option<Name>,
    /// The position of the change that created it.
    pub created_at: Position,
}

/// An override as clients see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OverrideInfo {
    /// The rule it belongs to.
    pub rule: Name,
    /// What was set.
    pub item: NewOverride,
    /// The position of the change that created it.
    pub created_at: Position,
}

/// A rule that applies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuleMatch {
    /// The rule.
    pub rule: RuleInfo,
    /// The values of the keys of group_by.
    pub group: KeyValues,
    /// The overrides that apply, sorted by name.
    pub overrides: Vec<OverrideInfo>,
}

/// A rule set without its rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleSetInfo {
    /// The name.
    pub name: Name,
    /// The number of its rules.
    pub rules: usize,
    /// Whether clients may make overrides of the rules.
    pub overrides: SetOverrides,
    /// The position of the change that created it.
    pub created_at: Position,
}

/// A rule set with its rules.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuleSet {
    /// The set.
    pub info: RuleSetInfo,
    /// Its rules, sorted by name.
    pub rules: Vec<RuleOfSet>,
}

/// A rule of a set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuleOfSet {
    /// The rule.
    pub rule: RuleInfo,
    /// Those of its overrides that belong to the set, sorted by name. Clients' overrides of an open set are not among
    /// them.
    pub overrides: Vec<OverrideInfo>,
}

/// A rule and the set that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagedRule {
    /// The rule.
    pub rule: Name,
    /// The set.
    pub set: Name,
}

/// What a change of a rule set changes. Each list is sorted by the names of rules.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SetChanges {
    /// Created rules.
    pub created: Vec<Name>,
    /// Rules that change, or whose overrides do.
    pub changed: Vec<ChangedRule>,
    /// Deleted rules.
    pub deleted: Vec<Name>,
    /// Why the change is refused. None if it is not.
    pub conflicts: Vec<SetConflict>,
}

impl SetChanges {
    /// Whether no rule changes.
    pub fn is_empty(&self) -> bool {
        self.created.is_empty() && self.changed.is_empty() && self.deleted.is_empty()
    }
}

/// A rule that a change of its set changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedRule {
    /// The rule.
    pub rule: Name,
    /// What changes, at least one.
    pub fields: Vec<RuleField>,
    /// Whether what the rule has counted is forgotten: it has another window or groups by other keys.
    pub starts_empty: bool,
}

/// A field of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RuleField {
    /// The keys by which it groups.
    GroupBy,
    /// Its selection.
    Selection,
    /// Its limit.
    Limit,
    /// Its window.
    Window,
    /// Whether it only reports.
    Shadow,
    /// Whether its answers wait for the disk.
    Durability,
    /// Its description.
    Description,
    /// Its overrides.
    Overrides,
    /// The set that it belongs to.
    ManagedBy,
}

impl RuleField {
    /// The field's name in the API.
    pub fn word(self) -> &'static str {
        match self {
            RuleField::GroupBy => "group_by",
            RuleField::Selection => "selection",
            RuleField::Limit => "limit",
            RuleField::Window => "window",
            RuleField::Shadow => "shadow",
            RuleField::Durability => "durability",
            RuleField::Description => "description",
            RuleField::Overrides => "overrides",
            RuleField::ManagedBy => "managed_by",
        }
    }
}

/// Why a rule set cannot be put.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetConflict {
    /// The rule belongs to another set.
    RuleManagedBySet(ManagedRule),
    /// An override that a client has made lacks a key of the new group_by.
    OverridesConflict {
        /// The rule.
        rule: Name,
        /// The first such override by name.
        name: Name,
    },
    /// An override that a client has made has the key-values of an override of the set, and another name.
    OverrideAlreadyExists {
        /// The rule.
        rule: Name,
        /// The client's override.
        name: Name,
    },
}

impl SetConflict {
    /// The rule that the conflict is about.
    pub fn rule(&self) -> &Name {
        match self {
            SetConflict::RuleManagedBySet(managed) => &managed.rule,
            SetConflict::OverridesConflict { rule, .. } | SetConflict::OverrideAlreadyExists { rule, .. } => {
                rule
            }
        }
    }

    /// The error code with which putting the set is refused.
    pub fn code(&self) -> &'static str {
        match self {
            SetConflict::RuleManagedBySet(_) => "RuleManagedBySet",
            SetConflict::OverridesConflict { .. } => "OverridesConflict",
            SetConflict::OverrideAlreadyExists { .. } => "OverrideAlreadyExists",
        }
    }
}

/// The decision of a check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// Whether the check is allowed or, if it was reported, whether it was within all limits.
    pub allowed: bool,
    /// Whether the check was counted whatever the limits say.
    pub reported: bool,
    /// Every limit that applied, sorted by entry of the check, then by rule, then by override.
    pub limits: Vec<LimitStatus>,
    /// The time after which the same check would be allowed if nothing else happened. `None` if it is allowed now, if it never
    /// would be, or if the time is not known.
    pub retry_after: Option<Millis>,
}

impl Checked {
    /// A decision that no limit has made.
    pub(super) fn without_limits(allowed: bool) -> Checked {
        Checked { allowed, reported: false, limits: Vec::new(), retry_after: None }
    }

    /// Whether a limit refuses, so that nothing was taken.
    pub fn is_refused(&self) -> bool {
        !self.allowed && !self.reported
    }
}

/// The status of one limit in a check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LimitStatus {
    /// The number of the entry of the check, from 0.
    pub entry: u32,
    /// The rule. `None` for a limit that came with the request.
    pub rule: Option<Name>,
    /// The override whose limit this is. `None` for the limit of the rule.
    pub override_name: Option<Name>,
    /// The values of the keys of group_by, or the override's key-values.
    pub group: KeyValues,
    /// The limit. For a bucket its burst, or 0 if it never allows anything.
    pub limit: Limit,
    /// What is used, after this check.
    pub used: u64,
    /// The time after which nothing of what is used now counts any more. `None` without a window, if never, or if it is more
    /// than [`MAX_COUNT`](super::MAX_COUNT) milliseconds.
    pub reset: Option<Millis>,
    /// The length of the window. `None` without a window.
    pub per: Option<Millis>,
    /// For a bucket: how much is refilled within `per`. `None` for other kinds of limits, and if there is no limit.
    pub refill: Option<u64>,
    /// Whether the limit only reports and never refuses.
    pub shadow: bool,
    /// Whether the check asked for more than was left.
    pub exceeded: bool,
    /// The number of requests that wait in the group. If an earlier one waits, the limit counts as exceeded.
    pub waiting: usize,
}

impl LimitStatus {
    /// What is left. `None` if the limit is unlimited.
    pub fn remaining(&self) -> Option<u64> {
        Usage { limit: self.limit, used: self.used }.remaining()
    }
}

/// A group of a rule that uses some of its limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupInfo {
    /// The override whose limit applies. `None` for the limit of the rule.
    pub override_name: Option<Name>,
    /// The values of the keys of group_by, or the override's key-values.
    pub group: KeyValues,
    /// The limit. For a bucket its burst, or 0 if it never allows anything.
    pub limit: Limit,
    /// What is used, at least 1.
    pub used: u64,
    /// The time after which nothing of what is used now counts any more, as in [`LimitStatus::reset`].
    pub reset: Option<Millis>,
    /// The number of requests that wait in the group.
    pub waiting: usize,
}

impl GroupInfo {
    /// How much of its limit the group uses.
    pub fn usage(&self) -> Usage {
        Usage { limit: self.limit, used: self.used }
    }

    /// What is left. `None` if the limit is unlimited.
    pub fn remaining(&self) -> Option<u64> {
        self.usage().remaining()
    }

    /// No two groups of a rule have the same.
    pub(super) fn identity(&self) -> (Option<&Name>, &KeyValues) {
        (self.override_name.as_ref(), &self.group)
    }
}

/// How much of a limit is used. The order is that of the used part of the limit, then that of what is used. A limit of 0
/// comes last, and no limit comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// The limit.
    pub limit: Limit,
    /// What is used. 0 counts as 1, so that there is an order for a limit of 0 too.
    pub used: u64,
}

impl Usage {
    fn remaining(self) -> Option<u64> {
        match self.limit {
            Limit::Unlimited => None,
            Limit::AtMost(limit) => Some(limit.saturating_sub(self.used)),
        }
    }
}

impl Ord for Usage {
    fn cmp(&self, other: &Usage) -> Ordering {
        let used = |usage: &Usage| u128::from(usage.used.max(1));
        let share = match (self.limit, other.limit) {
            (Limit::Unlimited, Limit::Unlimited) => Ordering::Equal,
            (Limit::Unlimited, Limit::AtMost(_)) => Ordering::Less,
            (Limit::AtMost(_), Limit::Unlimited) => Ordering::Greater,
            // a/b < c/d if a·d < c·b.
            (Limit::AtMost(own), Limit::AtMost(others)) => {
                (used(self) * u128::from(others)).cmp(&(used(other) * u128::from(own)))
            }
        };
        share.then(used(self).cmp(&used(other)))
    }
}

impl PartialOrd for Usage {
    fn partial_cmp(&self, other: &Usage) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A counter's position in the list of all counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CounterId(pub u32);

/// A group's position in the list of all groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupId(pub u32);

/// A counter as clients see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterInfo {
    /// The exact key-values.
    pub key_values: KeyValues,
    /// What is in use, with leases.
    pub total: u64,
    /// The part of the total that leases hold.
    pub leased: u64,
}

/// A lease as clients see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseInfo {
    /// The lease's id.
    pub id: Name,
    /// The key-values of the counter that the lease holds a part of.
    pub key_values: KeyValues,
    /// How much the lease holds.
    pub hits: u64,
    /// The name that the holder gave itself.
    pub owner: Option<Name>,
    /// The time after which the lease expires unless it is extended.
    pub ttl: Millis,
    /// The time at which the lease was taken.
    pub taken_at: Time,
    /// The time at which the lease expires unless it is extended.
    pub expires_at: Time,
    /// A number that is larger than that of every earlier lease of the namespace.
    pub fencing_token: Position,
    /// The decision that the lease is a part of.
    pub operation_id: Option<Name>,
    /// The time of this reply, from which clients compute remaining times.
    pub now: Time,
}
