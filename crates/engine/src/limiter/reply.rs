//! What the limiter answers.

use super::{
    command::CounterId,
    terms::{Limit, NewOverride, NewRule},
};
use crate::{Listed, Millis, Name, Position, Time, key_values::KeyValues};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// An answer of the limiter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// A rule as it is now.
    Rule(RuleInfo),
    /// A rule that was made by this command.
    RuleCreated(RuleInfo),
    /// The rule is gone, with its overrides.
    RuleDeleted,
    /// A part of the rules.
    Rules(Listed<RuleInfo, Name>),
    /// An override as it is now.
    Override(OverrideInfo),
    /// An override that was made by this command.
    OverrideCreated(OverrideInfo),
    /// The override is gone.
    OverrideDeleted,
    /// A part of a rule's overrides.
    Overrides(Listed<OverrideInfo, Name>),
    /// What a file's rules changed.
    FileApplied(FileChanges),
    /// Which rules apply, by name.
    Matches(Vec<RuleMatch>),
    /// Allowed.
    Allowed(Decision),
    /// For each check, in order; allowed or not.
    Batch(Vec<Decision>),
    /// The counter after taking or giving back.
    Moved {
        /// The counter.
        counter: CounterInfo,
        /// What the check for it found; nothing was asked where something was given back.
        decision: Decision,
    },
    /// The counter after it was set.
    Counter(CounterInfo),
    /// A part of the counters.
    Counters(Listed<CounterInfo, CounterId>),
    /// A lease that was taken by this command, and what the check for it found.
    LeaseTaken {
        /// The lease.
        lease: LeaseInfo,
        /// What the check found.
        decision: Decision,
    },
    /// A lease as it is now.
    Lease(LeaseInfo),
    /// The lease is gone, and what it held is given back.
    LeaseReleased,
    /// A part of the leases.
    Leases(Listed<LeaseInfo, Name>),
}

/// Why the limiter did not do it. In the order in which they are looked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Refusal {
    /// There is no such rule.
    RuleNotFound {
        /// The name.
        rule: Name,
    },
    /// The rule is managed by the rules file, and only the file changes it.
    RuleManagedByFile {
        /// The name.
        rule: Name,
    },
    /// There is a rule of this name already.
    RuleAlreadyExists {
        /// The name.
        rule: Name,
    },
    /// An override lacks a key of the new group_by.
    OverridesConflict {
        /// The rule.
        rule: Name,
        /// One such override.
        name: Name,
    },
    /// There is no such override.
    OverrideNotFound {
        /// The rule.
        rule: Name,
        /// The name.
        name: Name,
    },
    /// There is an override of this name, or with these key-values, already.
    OverrideAlreadyExists {
        /// The rule.
        rule: Name,
        /// The one that is there.
        name: Name,
    },
    /// The override's key-values lack a key by which the rule groups.
    GroupKeyMissing {
        /// The rule.
        rule: Name,
        /// The key.
        key: alloc::boxed::Box<str>,
    },
    /// A burst stands with a rule that is no bucket.
    BurstWithoutBucket {
        /// The rule.
        rule: Name,
    },
    /// There is no such lease, or no longer.
    LeaseNotFound {
        /// The id.
        lease_id: Name,
    },
    /// At least one limit refuses. Nothing was moved.
    LimitReached(Decision),
}

impl Refusal {
    /// The word by which it is known in problem documents, metrics and logs.
    pub fn code(&self) -> &'static str {
        match self {
            Refusal::RuleNotFound { .. } => "RuleNotFound",
            Refusal::RuleManagedByFile { .. } => "RuleManagedByFile",
            Refusal::RuleAlreadyExists { .. } => "RuleAlreadyExists",
            Refusal::OverridesConflict { .. } => "OverridesConflict",
            Refusal::OverrideNotFound { .. } => "OverrideNotFound",
            Refusal::OverrideAlreadyExists { .. } => "OverrideAlreadyExists",
            Refusal::GroupKeyMissing { .. } | Refusal::BurstWithoutBucket { .. } => "InvalidRequest",
            Refusal::LeaseNotFound { .. } => "LeaseNotFound",
            Refusal::LimitReached(_) => "LimitReached",
        }
    }
}

/// A rule as it is shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuleInfo {
    /// What it is.
    pub rule: NewRule,
    /// How many overrides it has.
    pub overrides: usize,
    /// Whether a file manages it.
    pub is_file_managed: bool,
    /// The change that made it.
    pub created_at: Position,
}

/// An override as it is shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OverrideInfo {
    /// The rule it belongs to.
    pub rule: Name,
    /// What it is.
    pub item: NewOverride,
    /// The change that made it.
    pub created_at: Position,
}

/// A rule that applies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuleMatch {
    /// The rule.
    pub rule: RuleInfo,
    /// The values of the keys by which it groups.
    pub group: KeyValues,
    /// The overrides that apply, by name.
    pub overrides: Vec<OverrideInfo>,
}

/// Names of rules that a file changed, each list in order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FileChanges {
    /// Made.
    pub created: Vec<Name>,
    /// Changed, the rule itself or its overrides.
    pub changed: Vec<Name>,
    /// Removed.
    pub deleted: Vec<Name>,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Whether it took what it asked for, or would have.
    pub allowed: bool,
    /// Every limit that applied, by entry of the check, then by rule, then by override.
    pub limits: Vec<LimitStatus>,
    /// When the same check would pass if nothing else happened; nothing if allowed, not known, or never.
    pub retry_after: Option<Millis>,
}

/// One limit's part in a check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LimitStatus {
    /// Which entry of the check it applied to.
    pub entry: u32,
    /// The rule; none for a limit that came with the request.
    pub rule: Option<Name>,
    /// The override, if it is one's limit.
    pub override_name: Option<Name>,
    /// The values of the keys by which the rule groups, or an override's key-values.
    pub group: KeyValues,
    /// The limit; for a bucket its burst, or 0 where nothing passes.
    pub limit: Limit,
    /// After this check where it was allowed and took something.
    pub used: u64,
    /// When nothing of what is used now counts any more, if nothing is added; none without a window, or if never.
    pub reset: Option<Millis>,
    /// The window's length.
    pub per: Option<Millis>,
    /// It reports and never refuses.
    pub shadow: bool,
    /// What was asked for is more than is left.
    pub exceeded: bool,
}

impl LimitStatus {
    /// What is left; nothing where there is no limit.
    pub fn remaining(&self) -> Option<u64> {
        match self.limit {
            Limit::Unlimited => None,
            Limit::AtMost(limit) => Some(limit.saturating_sub(self.used)),
        }
    }
}

/// A counter as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterInfo {
    /// The exact key-values.
    pub key_values: KeyValues,
    /// What is in use in all.
    pub total: u64,
    /// What of it leases hold.
    pub leased: u64,
}

/// A lease as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseInfo {
    /// Its id.
    pub id: Name,
    /// What it holds from.
    pub key_values: KeyValues,
    /// How much.
    pub hits: u64,
    /// Whose it is.
    pub owner: Option<Name>,
    /// How long it lives, unless extended.
    pub ttl: Millis,
    /// Since when.
    pub taken_at: Time,
    /// Until when.
    pub expires_at: Time,
    /// Grows with every lease of the namespace.
    pub fencing_token: Position,
    /// The instant of this answer, from which the spans above are told.
    pub now: Time,
}
