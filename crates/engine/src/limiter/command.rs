//! The commands of the limiter. The rules that they carry are in [`super::terms`], the checks in [`super::check_request`].
//!
//! `Deserialize` does not check limits: it reads the engine's own records, and the parts of an
//! [`UncheckedRequest`](crate::UncheckedRequest), which are checked afterwards.

use super::{
    check_request::{Check, CheckBatch, CheckSet},
    reply::{CounterId, GroupId, Usage},
    terms::{MAX_AMOUNT, MAX_COUNT, NewOverride, NewRule, NewRuleSet, OverridePatch, RulePatch, SetAuthor},
};
use crate::{
    Invalid, Millis, Name, Page, Reason,
    key_values::KeyValues,
    selection::{Query, RuleQuery},
};
use alloc::boxed::Box;
use core::ops::Deref;
use limina_api::invalid::{check_duration, check_number};
use serde::{Deserialize, Serialize};

/// A command of the limiter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Create, change or remove rules and overrides.
    Change(RuleChange),
    /// Read a rule.
    GetRule(Name),
    /// A page of the rules, by name.
    ListRules {
        /// The conditions on the keys that the rules group by.
        query: RuleQuery,
        /// The page.
        page: Page<Name>,
    },
    /// Read an override.
    GetOverride {
        /// The rule of the override.
        rule: Name,
        /// The override.
        name: Name,
    },
    /// A page of a rule's overrides, by name.
    ListOverrides {
        /// The rule.
        rule: Name,
        /// The conditions on the key-values of the overrides.
        query: Query,
        /// The page.
        page: Page<Name>,
    },
    /// The rules and overrides that would apply to these key-values.
    Match(KeyValues),
    /// Take from every limit that applies, or from none.
    Check(Check),
    /// Several checks, in order. Each of them is allowed or refused on its own.
    CheckBatch(CheckBatch),
    /// Take from the counter as a check does, or give back. A positive amount takes, a negative amount gives back, and 0
    /// only reads. Counters count even if no rule applies.
    MoveCounter(CounterChange),
    /// Set the part of the counter that no lease holds, without asking any rule. An amount of 0 or less removes it.
    SetCounter(CounterChange),
    /// A page of the counters. Their order does not change while they exist.
    ListCounters {
        /// The conditions on the key-values of the counters.
        query: Query,
        /// The page.
        page: Page<CounterId>,
    },
    /// Check, and hold what was taken until the lease ends.
    TakeLease(NewLease),
    /// Extend a lease: its ttl starts again now.
    ExtendLease {
        /// The lease.
        id: Name,
        /// The session of the holder.
        session: Name,
    },
    /// End a lease, and give back what it holds.
    ReleaseLease {
        /// The lease.
        id: Name,
        /// The session of the holder. None is for operators, who need no session.
        session: Option<Name>,
    },
    /// The client of a [`Command::TakeLease`] that waits has gone: the request stops waiting. A lease that it was granted
    /// meanwhile ends, unless another request was answered with it.
    AbandonLease(Name),
    /// Read a lease.
    GetLease(Name),
    /// A page of the leases, by id.
    ListLeases {
        /// Only the leases of this owner. None means all leases.
        owner: Option<Name>,
        /// The page.
        page: Page<Name>,
    },
    /// Some of a rule's groups that use more than `above`. Their order does not change while they exist.
    /// [`MostUsed`](super::MostUsed) collects those that use the most.
    ListGroups {
        /// The rule.
        rule: Name,
        /// Only groups that use more of their limits than this. None means all groups.
        above: Option<Usage>,
        /// The page.
        page: Page<GroupId>,
    },
    /// What a client's [`Change::PutRuleSet`] would change. It changes nothing.
    PlanRuleSet(RuleSetPlan),
    /// Read a rule set with its rules.
    GetRuleSet(Name),
    /// A page of the rule sets, by name.
    ListRuleSets(Page<Name>),
    /// Several checks at one instant, allowed or refused together.
    CheckSet(CheckSet),
}

impl Command {
    /// Whether the command may change something.
    pub fn is_write(&self) -> bool {
        match self {
            Command::Change(_)
            | Command::Check(_)
            | Command::CheckBatch(_)
            | Command::CheckSet(_)
            | Command::MoveCounter(_)
            | Command::SetCounter(_)
            | Command::TakeLease(_)
            | Command::ExtendLease { .. }
            | Command::ReleaseLease { .. }
            | Command::AbandonLease(_) => true,
            Command::GetRule(_)
            | Command::ListRules { .. }
            | Command::GetOverride { .. }
            | Command::ListOverrides { .. }
            | Command::PlanRuleSet(_)
            | Command::GetRuleSet(_)
            | Command::ListRuleSets(_)
            | Command::Match(_)
            | Command::ListCounters { .. }
            | Command::ListGroups { .. }
            | Command::GetLease(_)
            | Command::ListLeases { .. } => false,
        }
    }

    pub(crate) fn validate(&self) -> Result<(), Invalid> {
        match self {
            Command::Change(change) => change.validate(),
            Command::ListRules { query, page } => query.validate().and_then(|()| page.validate()),
            Command::ListOverrides { rule: _, query, page } => {
                query.validate().and_then(|()| page.validate())
            }
            Command::ListCounters { query, page } => query.validate().and_then(|()| page.validate()),
            Command::ListGroups { rule: _, above: _, page } => page.validate(),
            Command::ListLeases { owner: _, page } => page.validate(),
            Command::Check(check) => check.validate(),
            Command::CheckBatch(batch) => batch.validate(),
            Command::CheckSet(set) => set.validate(),
            Command::MoveCounter(change) | Command::SetCounter(change) => change.validate(),
            Command::TakeLease(lease) => lease.validate(),
            Command::PlanRuleSet(plan) => plan.new.validate(),
            Command::ListRuleSets(page) => page.validate(),
            Command::GetRule(_)
            | Command::GetOverride { .. }
            | Command::GetRuleSet(_)
            | Command::Match(_)
            | Command::ExtendLease { .. }
            | Command::ReleaseLease { .. }
            | Command::AbandonLease(_)
            | Command::GetLease(_) => Ok(()),
        }
    }
}

/// A change of rules or overrides. If counters must be summed up for it, it is answered when that is done. Later changes
/// wait behind it; checks do not wait.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Change {
    /// Create a rule.
    CreateRule(NewRule),
    /// Create a rule, or replace all of it except its name and its overrides.
    PutRule(NewRule),
    /// Change parts of a rule.
    PatchRule {
        /// The rule.
        name: Name,
        /// The fields to change.
        patch: RulePatch,
    },
    /// Remove a rule with its overrides.
    DeleteRule(Name),
    /// Create an override.
    CreateOverride {
        /// The rule.
        rule: Name,
        /// The override.
        new: NewOverride,
    },
    /// Create an override, or replace all of it except its name.
    PutOverride {
        /// The rule.
        rule: Name,
        /// The override.
        new: NewOverride,
    },
    /// Change parts of an override.
    PatchOverride {
        /// The rule.
        rule: Name,
        /// The override.
        name: Name,
        /// The fields to change.
        patch: OverridePatch,
    },
    /// Remove an override.
    DeleteOverride {
        /// The rule.
        rule: Name,
        /// The override.
        name: Name,
    },
    /// Make a rule set exactly this, or change nothing. Creates the set if it does not exist.
    PutRuleSet {
        /// The set.
        set: Name,
        /// What it is to be.
        new: NewRuleSet,
        /// Who asks.
        author: SetAuthor,
    },
    /// Remove a rule set with its rules.
    DeleteRuleSet {
        /// The set.
        set: Name,
        /// Who asks.
        author: SetAuthor,
    },
}

/// A [`Change`] that was checked. It is in a box, because every command would be as large as the largest one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuleChange(Box<Change>);

impl RuleChange {
    /// Takes a change whose rules and overrides are within their limits.
    pub fn new(change: Change) -> Result<RuleChange, Invalid> {
        change.validate()?;
        Ok(RuleChange(Box::new(change)))
    }

    /// Removes a rule with its overrides.
    pub fn delete_rule(name: Name) -> RuleChange {
        RuleChange(Box::new(Change::DeleteRule(name)))
    }

    /// Removes a rule set with its rules.
    pub fn delete_rule_set(set: Name, author: SetAuthor) -> RuleChange {
        RuleChange(Box::new(Change::DeleteRuleSet { set, author }))
    }

    /// Removes an override of a rule.
    pub fn delete_override(rule: Name, name: Name) -> RuleChange {
        RuleChange(Box::new(Change::DeleteOverride { rule, name }))
    }
}

impl Deref for RuleChange {
    type Target = Change;

    fn deref(&self) -> &Change {
        &self.0
    }
}

/// A change of a rule set that is only looked at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuleSetPlan {
    pub(super) set: Name,
    pub(super) new: NewRuleSet,
}

impl RuleSetPlan {
    /// Takes a set whose rules and overrides are within their limits.
    pub fn new(set: Name, new: NewRuleSet) -> Result<RuleSetPlan, Invalid> {
        new.validate()?;
        Ok(RuleSetPlan { set, new })
    }

    /// The set.
    pub fn set(&self) -> &Name {
        &self.set
    }

    /// What the set would be.
    pub fn rules(&self) -> &NewRuleSet {
        &self.new
    }
}

impl Change {
    fn validate(&self) -> Result<(), Invalid> {
        match self {
            Change::CreateRule(new) | Change::PutRule(new) => new.validate(),
            Change::PatchRule { name: _, patch } => patch.validate(),
            Change::CreateOverride { rule: _, new } | Change::PutOverride { rule: _, new } => new.validate(),
            Change::PatchOverride { rule: _, name: _, patch } => patch.validate(),
            Change::PutRuleSet { set: _, new, author: _ } => new.validate(),
            Change::DeleteRule(_) | Change::DeleteOverride { .. } | Change::DeleteRuleSet { .. } => Ok(()),
        }
    }
}

/// A change of one counter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CounterChange {
    pub(super) key_values: KeyValues,
    pub(super) amount: i64,
}

impl CounterChange {
    /// Changes the counter of exactly these key-values. The amount is at most [`MAX_COUNT`] either way. The API calls it
    /// `counters`.
    pub fn new(key_values: KeyValues, amount: i64) -> Result<CounterChange, Invalid> {
        let change = CounterChange { key_values, amount };
        change.validate()?;
        Ok(change)
    }

    /// The counter's identity.
    pub fn key_values(&self) -> &KeyValues {
        &self.key_values
    }

    /// What to add, or the new value: that depends on the command.
    pub fn amount(&self) -> i64 {
        self.amount
    }

    fn validate(&self) -> Result<(), Invalid> {
        check_number("counters", self.amount, -MAX_AMOUNT..=MAX_AMOUNT)
    }
}

/// A lease to be taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewLease {
    pub(super) id: Name,
    pub(super) session: Name,
    pub(super) key_values: KeyValues,
    pub(super) hits: u64,
    pub(super) ttl: Millis,
    pub(super) owner: Option<Name>,
    pub(super) require_match: bool,
    pub(super) wait: Millis,
}

impl NewLease {
    /// The longest wait.
    pub const MAX_WAIT: Millis = Millis(5 * 60_000);
    /// The shortest ttl.
    pub const MIN_TTL: Millis = Millis(100);
    /// The longest ttl.
    pub const MAX_TTL: Millis = Millis::DAY;

    /// Takes `hits`, from 1 to [`MAX_COUNT`], from the limits that apply to the key-values, and gives them back after
    /// `ttl` unless the lease is extended. The lease has no owner unless [`NewLease::with_owner`] names one, and rules
    /// need not apply to it unless [`NewLease::with_require_match`] says so.
    ///
    /// The caller draws the id, and the session: the holder's secret word, without which nobody can extend or release the
    /// lease, except an operator.
    pub fn new(
        id: Name,
        session: Name,
        key_values: KeyValues,
        hits: u64,
        ttl: Millis,
    ) -> Result<NewLease, Invalid> {
        let lease = NewLease {
            id,
            session,
            key_values,
            hits,
            ttl,
            owner: None,
            require_match: false,
            wait: Millis(0),
        };
        lease.validate()?;
        Ok(lease)
    }

    /// The client's own word for the holder. Other clients can read it.
    #[must_use]
    pub fn with_owner(self, owner: Option<Name>) -> NewLease {
        NewLease { owner, ..self }
    }

    /// Whether the lease is refused if no rule applies to it.
    #[must_use]
    pub fn with_require_match(self, require_match: bool) -> NewLease {
        NewLease { require_match, ..self }
    }

    /// How long the request waits for limits without a window, at most [`NewLease::MAX_WAIT`].
    pub fn with_wait(self, wait: Millis) -> Result<NewLease, Invalid> {
        let lease = NewLease { wait, ..self };
        lease.validate()?;
        Ok(lease)
    }

    /// How long the request waits for limits without a window.
    pub fn wait(&self) -> Millis {
        self.wait
    }

    /// The id of the lease.
    pub fn id(&self) -> &Name {
        &self.id
    }

    /// The holder's secret word.
    pub fn session(&self) -> &Name {
        &self.session
    }

    /// Whether a rule must apply.
    pub fn require_match(&self) -> bool {
        self.require_match
    }

    /// The key-values that select the limits.
    pub fn key_values(&self) -> &KeyValues {
        &self.key_values
    }

    /// How much the lease takes, at least 1.
    pub fn hits(&self) -> u64 {
        self.hits
    }

    /// How long the lease lives without being extended.
    pub fn ttl(&self) -> Millis {
        self.ttl
    }

    /// The client's own word for the holder.
    pub fn owner(&self) -> Option<&Name> {
        self.owner.as_ref()
    }

    fn validate(&self) -> Result<(), Invalid> {
        if !(1..=MAX_COUNT).contains(&self.hits) {
            return Err(Invalid::new("hits", Reason::Number { min: 1, max: MAX_AMOUNT }));
        }
        check_duration("ttl", self.ttl, NewLease::MIN_TTL..=NewLease::MAX_TTL)?;
        check_duration("wait", self.wait, Millis(0)..=NewLease::MAX_WAIT)
    }
}
