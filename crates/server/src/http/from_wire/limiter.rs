//! The limiter's requests.

use super::{super::problem::Failure, Span, check_same_name, name, optional_name};
use limina_api::{Heartbeat, limiter as wire};
use limina_engine::{
    Invalid, KeyValues, Name,
    limiter::{
        Change, Check, Command, CounterChange, Durability, Limit, NewLease, NewOverride, NewRule, NewRuleSet,
        OverridePatch, RuleChange, RulePatch, SetOverrides, SetRule, Take, Window,
    },
};

pub(crate) fn check(check: wire::Check) -> Result<Check, Failure> {
    // A number that is too large for the engine's type is too large for the engine.
    let hits = i64::try_from(check.hits).unwrap_or(i64::MAX);
    let take = Take::new(check.key_values, hits)?;
    if check.report && check.dry_run {
        return Err(Failure::invalid("report", "A check cannot be both a report and a dry run."));
    }
    let checked = Check::new(vec![take])?.with_require_match(check.require_match);
    Ok(checked.with_dry_run(check.dry_run).with_report(check.report))
}

pub(crate) fn match_query(query: wire::MatchQuery) -> KeyValues {
    query.key_values
}

pub(crate) fn move_counter(change: wire::CounterChange) -> Result<Command, Failure> {
    Ok(Command::MoveCounter(counter_change(change)?))
}

pub(crate) fn set_counter(change: wire::CounterChange) -> Result<Command, Failure> {
    Ok(Command::SetCounter(counter_change(change)?))
}

fn counter_change(change: wire::CounterChange) -> Result<CounterChange, Invalid> {
    CounterChange::new(change.key_values, change.counters)
}

/// The id and the session are drawn by the caller.
pub(crate) fn new_lease(id: Name, session: Name, lease: wire::NewLease) -> Result<NewLease, Failure> {
    let owner = optional_name("owner", lease.owner.as_deref())?;
    let ttl = Span::new("ttl", lease.ttl, lease.ttl_ms)?;
    let new = NewLease::new(id, session, lease.key_values, lease.hits, ttl.required()?)
        .map_err(|invalid| ttl.as_sent(invalid))?;
    let wait = Span::new("wait", lease.wait, lease.wait_ms)?;
    let new = match wait.millis {
        Some(millis) => new.with_wait(millis).map_err(|invalid| wait.as_sent(invalid))?,
        None => new,
    };
    Ok(new.with_owner(owner).with_require_match(lease.require_match))
}

pub(crate) fn extend_lease(id: Name, request: Heartbeat) -> Result<Command, Failure> {
    Ok(Command::ExtendLease { id, session: request.session_id })
}

/// A rule to be created; the body contains its name.
pub(crate) fn create_rule(rule: wire::NewRule) -> Result<RuleChange, Failure> {
    let name = required_name(rule.name.as_deref())?;
    Ok(RuleChange::new(Change::CreateRule(new_rule(name, rule)?))?)
}

/// What a rule set is to be. The path contains its name, and the body may contain it too.
pub(crate) fn rule_set(set: &Name, new: wire::NewRuleSet) -> Result<NewRuleSet, Failure> {
    check_same_name(set, new.name.as_deref())?;
    let rules = new.rules.into_iter().enumerate();
    let rules = rules
        .map(|(index, rule)| set_rule(rule).map_err(|failure| failure.within(&format!("rules[{index}]"))));
    let overrides = match new.overrides {
        None | Some(wire::SetOverrides::Closed) => SetOverrides::Closed,
        Some(wire::SetOverrides::Open) => SetOverrides::Open,
    };
    Ok(NewRuleSet { rules: rules.collect::<Result<_, _>>()?, overrides })
}

fn set_rule(rule: wire::NewSetRule) -> Result<SetRule, Failure> {
    let wire::NewSetRule {
        name: text,
        group_by,
        selection,
        limit,
        window,
        shadow,
        durability,
        description,
        overrides,
        managed_by: _,
        created_position: _,
    } = rule;
    let rule = wire::NewRule {
        name: None,
        group_by,
        selection,
        limit,
        window,
        shadow,
        durability,
        description,
        overrides: None,
        managed_by: None,
        created_position: None,
    };
    let rule = new_rule(name("name", &text)?, rule)?;
    let overrides = overrides.into_iter().enumerate().map(|(index, new)| {
        let named = required_name(new.name.as_deref()).and_then(|name| new_override(name, new));
        named.map_err(|failure| failure.within(&format!("overrides[{index}]")))
    });
    Ok(SetRule { rule, overrides: overrides.collect::<Result<_, _>>()? })
}

/// A rule of a file. It contains its own name.
pub(crate) fn file_rule(rule: wire::NewRule) -> Result<NewRule, Failure> {
    let name = required_name(rule.name.as_deref())?;
    let rule = new_rule(name, rule)?;
    rule.validate()?;
    Ok(rule)
}

/// A rule to be created or replaced; the path contains its name, and the body may contain it too.
pub(crate) fn put_rule(name: Name, rule: wire::NewRule) -> Result<RuleChange, Failure> {
    check_same_name(&name, rule.name.as_deref())?;
    Ok(RuleChange::new(Change::PutRule(new_rule(name, rule)?))?)
}

fn new_rule(name: Name, rule: wire::NewRule) -> Result<NewRule, Failure> {
    Ok(NewRule {
        name,
        group_by: rule.group_by.into_iter().map(Into::into).collect(),
        selection: rule.selection.unwrap_or_default(),
        limit: limit(rule.limit)?,
        window: rule.window.map(window).transpose()?,
        shadow: rule.shadow,
        durability: rule.durability.map(durability),
        description: rule.description.map(Into::into),
    })
}

pub(crate) fn patch_rule(name: Name, patch: wire::RulePatch) -> Result<RuleChange, Failure> {
    let patch = RulePatch {
        limit: patch.limit.map(limit).transpose()?,
        window: patch.window.map(|given| given.map(window).transpose()).transpose()?,
        selection: patch.selection.map(Option::unwrap_or_default),
        shadow: patch.shadow.map(Option::unwrap_or_default),
        durability: patch.durability.map(|given| given.map(durability)),
        description: patch.description.map(|given| given.map(Into::into)),
    };
    Ok(RuleChange::new(Change::PatchRule { name, patch })?)
}

/// An override to be created; the body contains its name.
pub(crate) fn create_override(rule: Name, new: wire::NewOverride) -> Result<RuleChange, Failure> {
    let name = required_name(new.name.as_deref())?;
    Ok(RuleChange::new(Change::CreateOverride { rule, new: new_override(name, new)? })?)
}

/// An override of a file. It contains its own name.
pub(crate) fn file_override(new: wire::NewOverride) -> Result<NewOverride, Failure> {
    let name = required_name(new.name.as_deref())?;
    let new = new_override(name, new)?;
    new.validate()?;
    Ok(new)
}

/// An override to be created or replaced; the path contains its name, and the body may contain it too.
pub(crate) fn put_override(rule: Name, name: Name, new: wire::NewOverride) -> Result<RuleChange, Failure> {
    check_same_name(&name, new.name.as_deref())?;
    Ok(RuleChange::new(Change::PutOverride { rule, new: new_override(name, new)? })?)
}

fn new_override(name: Name, new: wire::NewOverride) -> Result<NewOverride, Failure> {
    Ok(NewOverride { name, key_values: new.key_values, limit: limit(new.limit)?, burst: new.burst })
}

pub(crate) fn patch_override(
    rule: Name,
    name: Name,
    patch: wire::OverridePatch,
) -> Result<RuleChange, Failure> {
    let patch = OverridePatch {
        key_values: patch.key_values,
        limit: patch.limit.map(limit).transpose()?,
        burst: patch.burst,
    };
    Ok(RuleChange::new(Change::PatchOverride { rule, name, patch })?)
}

fn required_name(text: Option<&str>) -> Result<Name, Failure> {
    match text {
        Some(text) => Ok(name("name", text)?),
        None => Err(Failure::invalid("name", "is required")),
    }
}

/// The API writes "no limit" as −1.
fn limit(limit: i64) -> Result<Limit, Failure> {
    match u64::try_from(limit) {
        Ok(limit) => Ok(Limit::AtMost(limit)),
        Err(_) if limit == -1 => Ok(Limit::Unlimited),
        Err(_) => Err(Failure::invalid("limit", "must be from 0 to 2^53−1, or −1 for no limit")),
    }
}

fn window(window: wire::NewWindow) -> Result<Window, Failure> {
    let span = Span::new("window.per", window.per, window.per_ms)?;
    let per = span.required()?;
    let window = match (window.kind, window.burst) {
        (wire::WindowType::Fixed, None) => Window::Fixed { per },
        (wire::WindowType::Sliding, None) => Window::Sliding { per },
        (wire::WindowType::Bucket, burst) => Window::Bucket { per, burst },
        (wire::WindowType::Fixed | wire::WindowType::Sliding, Some(_)) => {
            return Err(Failure::invalid(
                "window.burst",
                "must be absent, because only a bucket has a burst",
            ));
        }
    };
    window.validate().map_err(|invalid| span.as_sent(invalid))?;
    Ok(window)
}

fn durability(word: wire::Durability) -> Durability {
    match word {
        wire::Durability::Durable => Durability::Durable,
        wire::Durability::Relaxed => Durability::Relaxed,
    }
}
