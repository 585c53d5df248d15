//! Inserts the rules of a change, inactive until the change is finished, and checks the quotas for them.

use super::{
    overrides::{Override, Overrides, StoredOverride, override_bytes},
    reply::Refusal,
    rule::{Rule, RuleNumber, StoredRule, rule_bytes},
    state::Limiter,
    terms::{NewOverride, NewRule},
    window::BucketClock,
};
use crate::{Name, Quota, turn::Turn};
use alloc::sync::Arc;

/// Fails if the rules and overrides of `limiter` would grow beyond a quota. `before` are those that are replaced, and
/// `after` those that replace them.
pub(super) fn check_quotas(
    limiter: &Limiter,
    turn: &Turn<'_>,
    before: RuleSizes,
    after: RuleSizes,
) -> Result<(), Refusal> {
    let more = |before: usize, after: usize| after.saturating_sub(before);
    turn.check_quota(Quota::Rules, limiter.rules.len(), more(before.rules, after.rules))?;
    turn.check_quota(Quota::Overrides, limiter.rules.overrides(), more(before.overrides, after.overrides))?;
    turn.check_bytes(limiter.resident_bytes(), after.bytes.saturating_sub(before.bytes))?;
    Ok(())
}

/// How much some rules and overrides are.
#[derive(Clone, Copy, Default)]
pub(super) struct RuleSizes {
    pub(super) rules: usize,
    pub(super) overrides: usize,
    pub(super) bytes: u64,
}

impl RuleSizes {
    pub(super) fn of_rule(terms: &NewRule) -> RuleSizes {
        RuleSizes { rules: 1, overrides: 0, bytes: rule_bytes(terms, None) }
    }

    pub(super) fn of_override(terms: &NewOverride) -> RuleSizes {
        RuleSizes { rules: 0, overrides: 1, bytes: override_bytes(terms) }
    }
}

/// Inserts a new rule with its overrides, which belong to its set if it has one. The rule takes part in checks once it is
/// activated.
pub(super) fn insert_inactive(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    terms: NewRule,
    set: Option<Name>,
    overrides: &[NewOverride],
) -> RuleNumber {
    let id = turn.advance();
    let clock = BucketClock::new(turn.now, terms.limit);
    let mut kept = Overrides::default();
    for new in overrides {
        let stored = StoredOverride::new(new.clone(), turn.advance(), turn.now, set.is_some());
        kept.insert(Override { stored, is_active: true });
    }
    let stored = StoredRule { terms, managed_by: set, id, generation: id, clock };
    limiter.rules.insert_unnamed(Rule::new(stored, kept.into(), false))
}

/// Inserts, inactive, a rule that replaces another one: the same id, name and creation, but a new generation, so that its
/// groups are counted from nothing.
pub(super) fn insert_replacement(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    number: RuleNumber,
    terms: NewRule,
    set: Option<Name>,
    overrides: Arc<Overrides>,
) -> RuleNumber {
    let generation = turn.advance();
    let mut stored = limiter.rules.at(number).stored.clone();
    stored.clock.change(turn.now, terms.limit);
    stored.terms = terms;
    stored.managed_by = set;
    stored.generation = generation;
    limiter.rules.insert_unnamed(Rule::new(*stored, overrides, false))
}
