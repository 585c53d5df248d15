//! The plan of a change of rules: what `prepare` has decided and `finish` carries out, once the backfill is done.

use super::{
    rule::RuleNumber,
    rules::Rules,
    terms::{NewOverride, NewRule, SetOverrides},
};
use crate::{Name, Position};
use alloc::vec::Vec;
use limina_api::limiter::RuleSetChanges;

/// What a change of rules does once everything is counted. Carrying it out cannot fail.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Rules that were inserted inactive and become active.
    pub(super) rules: Vec<NewActiveRule>,
    /// The rule and the name of an override that was inserted inactive and becomes active.
    pub(super) new_override: Option<(RuleNumber, Name)>,
    /// Changes that need no backfill, in this order, after the above.
    pub(super) steps: Vec<Step>,
    pub(super) reply: PlannedReply,
}

/// A rule that was inserted inactive.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewActiveRule {
    pub(super) number: RuleNumber,
    /// The rule that it replaces, under the same name and id. `None` for a rule that is created.
    pub(super) replaces: Option<RuleNumber>,
}

#[derive(Debug)]
pub(super) enum Step {
    /// Give a rule these terms, and make it a rule of this set or of none.
    ChangeRule(RuleNumber, NewRule, Option<Name>),
    DeleteRule(RuleNumber),
    PutOverride {
        rule: RuleNumber,
        new: NewOverride,
        is_of_set: bool,
        /// The position at which it was created, if another step has deleted it before.
        created_at: Option<Position>,
    },
    DeleteOverride(RuleNumber, Name),
    PutSet(Name, SetOverrides),
    DeleteSet(Name),
}

/// The reply, as far as it is known before the change is carried out.
#[derive(Debug)]
pub(super) enum PlannedReply {
    Rule { name: Name, is_new: bool },
    RuleDeleted,
    Override { rule: Name, name: Name, is_new: bool },
    OverrideDeleted,
    Set { is_new: bool, changes: RuleSetChanges },
    SetDeleted(RuleSetChanges),
}

impl Plan {
    /// A plan that changes nothing.
    pub(super) fn new(reply: PlannedReply) -> Plan {
        Plan { rules: Vec::new(), new_override: None, steps: Vec::new(), reply }
    }

    pub(super) fn with_step(reply: PlannedReply, step: Step) -> Plan {
        Plan { steps: Vec::from([step]), ..Plan::new(reply) }
    }

    pub(super) fn with_rule(reply: PlannedReply, rule: NewActiveRule) -> Plan {
        Plan { rules: Vec::from([rule]), ..Plan::new(reply) }
    }

    /// The rules that are backfilled, or one of whose overrides is.
    pub(super) fn backfilled(&self) -> impl Iterator<Item = RuleNumber> {
        let rules = self.rules.iter().map(|rule| rule.number);
        rules.chain(self.new_override.iter().map(|(number, _)| *number))
    }

    /// Whether counters must be summed up. Rules with windows need none: their groups begin empty.
    pub(super) fn needs_backfill(&self, rules: &Rules) -> bool {
        let counts = |rule: &NewActiveRule| rules.at(rule.number).terms().window.is_none();
        self.new_override.is_some() || self.rules.iter().any(counts)
    }
}
