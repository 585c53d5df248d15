//! The replies and refusals of the limiter.

use crate::{Listed, Millis, Name, QuotaExceeded, key_values::KeyValues};
use alloc::{boxed::Box, vec::Vec};
use core::{cmp::Ordering, fmt, ops::Deref};
use limina_api::limiter::{
    CheckReply, Counter, Group, Lease, Limit, LimitStatus, Override, Rule, RuleMatch, RuleSet,
    RuleSetChanges, RuleSetInfo,
};
use serde::{Deserialize, Serialize};

/// The reply to a command that succeeded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// A rule as it is now.
    Rule(Rule),
    /// A rule that this command has created.
    RuleCreated(Rule),
    /// The rule and its overrides are deleted.
    RuleDeleted,
    /// A page of the rules, sorted by name.
    Rules(Listed<Rule, Name>),
    /// An override as it is now.
    Override(Override),
    /// An override that this command has created.
    OverrideCreated(Override),
    /// The override is deleted.
    OverrideDeleted,
    /// A page of a rule's overrides, sorted by name.
    Overrides(Listed<Override, Name>),
    /// The rule set is what it is to be.
    RuleSetPut {
        /// Whether this command has created the set.
        is_new: bool,
        /// What has changed.
        changes: RuleSetChanges,
    },
    /// The rules that apply, sorted by name.
    Matches(#[serde(with = "match_parts")] Vec<RuleMatch>),
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
        counter: Counter,
        /// The decision of the check. Without limits if something was given back, because then nothing is checked.
        decision: Checked,
    },
    /// The counter after it was set.
    Counter(Counter),
    /// A page of the counters, sorted by index.
    Counters(Listed<Counter, CounterId>),
    /// A lease that this command has taken.
    LeaseTaken {
        /// The lease. In a box: every reply would be as large as the largest one.
        lease: Box<Lease>,
        /// The session secret. Only the holder may see it.
        session: Name,
        /// The decision of the check.
        decision: Checked,
    },
    /// A lease as it is now.
    Lease(Lease),
    /// The lease has ended, and what it held is given back.
    LeaseReleased,
    /// The request no longer waits.
    LeaseAbandoned,
    /// A page of the leases, sorted by id.
    Leases(Listed<Lease, Name>),
    /// A part of a rule's groups, sorted by index.
    Groups(Listed<Group, GroupId>),
    /// What putting the rule set would change.
    RuleSetPlanned(RuleSetChanges),
    /// The rule set and its rules are deleted.
    RuleSetDeleted(RuleSetChanges),
    /// A rule set with its rules.
    RuleSet(RuleSet),
    /// A page of the rule sets, sorted by name.
    RuleSets(Listed<RuleSetInfo, Name>),
}

/// Matches as nodes send them. JSON writes the fields of the rule beside the others, which is no struct for a compact encoding.
mod match_parts {
    use super::{KeyValues, Override, Rule, RuleMatch, Vec};
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(matches: &[RuleMatch], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(
            matches
                .iter()
                .map(|RuleMatch { rule, group, matching_overrides }| (rule, group, matching_overrides)),
        )
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<RuleMatch>, D::Error> {
        let parts = Vec::<(Rule, KeyValues, Vec<Override>)>::deserialize(deserializer)?;
        let found = |(rule, group, matching_overrides)| RuleMatch { rule, group, matching_overrides };
        Ok(parts.into_iter().map(found).collect())
    }
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

/// A rule and the set that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagedRule {
    /// The rule.
    pub rule: Name,
    /// The set.
    pub set: Name,
}

/// The decision of a check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// Whether the check is allowed or, if it was reported, whether it was within all limits.
    pub allowed: bool,
    /// Whether the check was counted whatever the limits say.
    pub reported: bool,
    /// Every limit that applied, sorted by entry of the check, then by rule, then by override.
    pub limits: Vec<AppliedLimit>,
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

/// The decision of one check, as HTTP returns it.
impl From<Checked> for CheckReply {
    fn from(Checked { allowed, reported: _, limits, retry_after }: Checked) -> CheckReply {
        let limits = limits.into_iter().map(|limit| limit.status).collect();
        CheckReply { status: None, allowed, limits, retry_after_ms: retry_after }
    }
}

/// One limit of a check: its status, and what else front ends need to know of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AppliedLimit {
    /// The number of the entry of the check, from 0.
    pub entry: u32,
    /// The status of the limit. It has no rule if the limit came with the request.
    pub status: LimitStatus,
    /// The length of the window. `None` without a window.
    pub per: Option<Millis>,
    /// For a bucket: how much is refilled within `per`. `None` for other kinds of limits, and if there is no limit.
    pub refill: Option<u64>,
}

impl Deref for AppliedLimit {
    type Target = LimitStatus;

    fn deref(&self) -> &LimitStatus {
        &self.status
    }
}

impl AppliedLimit {
    /// Whether the limit refuses the check. A shadow limit never does.
    pub fn refuses(&self) -> bool {
        self.exceeded && !self.shadow
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

impl From<&Group> for Usage {
    fn from(group: &Group) -> Usage {
        Usage { limit: group.limit, used: group.used }
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

impl fmt::Display for CounterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A group's position in the list of all groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupId(pub u32);
