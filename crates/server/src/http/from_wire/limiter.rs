//! The limiter's requests.

use super::{
    super::problem::Failure, check_distinct, key_values, key_values::key_values as checked_key_values, name,
    optional_name, selection, ttl, within_span,
};
use limina_engine::{
    KeyValues, Millis, Name,
    limiter::{
        Change, Check, Command, Durability, Limit, MAX_COUNT, NewLease, NewOverride, NewRule, OverridePatch,
        RulePatch, Take, Window,
    },
    selection::Selection,
};
use limina_wire::{limiter as wire, selection as wire_selection};

const MAX_GROUP_BY: usize = 16;
const MAX_DESCRIPTION: usize = 1024;
const MAX_WINDOW: Millis = Millis(366 * Millis::DAY.0);

pub(crate) fn check(check: wire::Check<'_>) -> Result<Check, Failure> {
    let hits = signed("hits", check.hits)?;
    let take = Take { key_values: checked_key_values(check.key_values)?, hits, limit: None };
    Ok(Check { entries: vec![take], dry_run: check.dry_run })
}

pub(crate) fn match_query(query: wire::MatchQuery<'_>) -> Result<KeyValues, Failure> {
    checked_key_values(query.key_values)
}

pub(crate) fn move_counter(change: wire::CounterChange<'_>) -> Result<Command, Failure> {
    let (key_values, by) = counter_change(change)?;
    Ok(Command::MoveCounter { key_values, by })
}

pub(crate) fn set_counter(change: wire::CounterChange<'_>) -> Result<Command, Failure> {
    let (key_values, to) = counter_change(change)?;
    Ok(Command::SetCounter { key_values, to })
}

fn counter_change(change: wire::CounterChange<'_>) -> Result<(KeyValues, i64), Failure> {
    if change.counters.unsigned_abs() > MAX_COUNT {
        return Err(Failure::invalid("counters", "must be from −(2^53−1) to 2^53−1"));
    }
    Ok((checked_key_values(change.key_values)?, change.counters))
}

/// The id is drawn by the caller.
pub(crate) fn new_lease(id: Name, lease: wire::NewLease<'_>) -> Result<NewLease, Failure> {
    if lease.hits == 0 {
        return Err(Failure::invalid("hits", "a lease takes at least 1"));
    }
    signed("hits", lease.hits)?;
    Ok(NewLease {
        id,
        key_values: checked_key_values(lease.key_values)?,
        hits: lease.hits,
        ttl: ttl(lease.ttl)?,
        owner: optional_name("owner", lease.owner.as_deref())?,
    })
}

/// A rule to be made; its name stands in the body.
pub(crate) fn create_rule(rule: wire::NewRule<'_>) -> Result<Change, Failure> {
    named_rule(rule).map(Change::CreateRule)
}

/// A rule that says its own name.
pub(crate) fn named_rule(rule: wire::NewRule<'_>) -> Result<NewRule, Failure> {
    let name = required_name(rule.name.as_deref())?;
    new_rule(name, rule)
}

/// A rule to be made or replaced; its name stands in the path, and may stand in the body.
pub(crate) fn put_rule(name: Name, rule: wire::NewRule<'_>) -> Result<Change, Failure> {
    check_same_name(&name, rule.name.as_deref())?;
    new_rule(name, rule).map(Change::PutRule)
}

fn new_rule(name: Name, rule: wire::NewRule<'_>) -> Result<NewRule, Failure> {
    Ok(NewRule {
        name,
        group_by: group_by(rule.group_by)?,
        selection: optional_selection(rule.selection)?,
        limit: limit(rule.limit)?,
        window: rule.window.map(window).transpose()?,
        shadow: rule.shadow,
        durability: rule.durability.map(durability),
        description: rule.description.map(description).transpose()?,
    })
}

pub(crate) fn patch_rule(name: Name, patch: wire::RulePatch<'_>) -> Result<Change, Failure> {
    let patch = RulePatch {
        limit: patch.limit.map(limit).transpose()?,
        window: patch.window.map(|given| given.map(window).transpose()).transpose()?,
        selection: patch.selection.map(optional_selection).transpose()?,
        shadow: patch.shadow,
        durability: patch.durability.map(|given| given.map(durability)),
        description: patch.description.map(|given| given.map(description).transpose()).transpose()?,
    };
    Ok(Change::PatchRule { name, patch })
}

/// An override to be made; its name stands in the body.
pub(crate) fn create_override(rule: Name, new: wire::NewOverride<'_>) -> Result<Change, Failure> {
    Ok(Change::CreateOverride { rule, new: named_override(new)? })
}

/// An override that says its own name.
pub(crate) fn named_override(new: wire::NewOverride<'_>) -> Result<NewOverride, Failure> {
    let name = required_name(new.name.as_deref())?;
    new_override(name, new)
}

/// An override to be made or replaced; its name stands in the path, and may stand in the body.
pub(crate) fn put_override(rule: Name, name: Name, new: wire::NewOverride<'_>) -> Result<Change, Failure> {
    check_same_name(&name, new.name.as_deref())?;
    Ok(Change::PutOverride { rule, new: new_override(name, new)? })
}

fn new_override(name: Name, new: wire::NewOverride<'_>) -> Result<NewOverride, Failure> {
    Ok(NewOverride {
        name,
        key_values: checked_key_values(new.key_values)?,
        limit: limit(new.limit)?,
        burst: new.burst.map(|size| burst("burst", size)).transpose()?,
    })
}

pub(crate) fn patch_override(
    rule: Name,
    name: Name,
    patch: wire::OverridePatch<'_>,
) -> Result<Change, Failure> {
    let burst = |given: Option<u64>| given.map(|size| burst("burst", size)).transpose();
    let patch = OverridePatch {
        key_values: patch.key_values.map(checked_key_values).transpose()?,
        limit: patch.limit.map(limit).transpose()?,
        burst: patch.burst.map(burst).transpose()?,
    };
    Ok(Change::PatchOverride { rule, name, patch })
}

fn required_name(text: Option<&str>) -> Result<Name, Failure> {
    match text {
        Some(text) => name("name", text),
        None => Err(Failure::invalid("name", "is required")),
    }
}

fn check_same_name(name: &Name, text: Option<&str>) -> Result<(), Failure> {
    match text {
        Some(text) if text != name.as_str() => {
            Err(Failure::invalid("name", "must be the name in the path, or absent"))
        }
        _ => Ok(()),
    }
}

fn group_by(keys: Vec<String>) -> Result<Vec<Box<str>>, Failure> {
    if keys.len() > MAX_GROUP_BY {
        return Err(Failure::invalid("group_by", format!("must not have more than {MAX_GROUP_BY} keys")));
    }
    let field = |place| format!("group_by[{place}]");
    let checked = keys
        .iter()
        .enumerate()
        .map(|(place, text)| key_values::key(text).map_err(|detail| Failure::invalid(field(place), detail)));
    let checked: Vec<Box<str>> = checked.collect::<Result<_, _>>()?;
    check_distinct(keys.iter().map(String::as_str), field)?;
    Ok(checked)
}

fn optional_selection(given: Option<wire_selection::Selection<'_>>) -> Result<Selection, Failure> {
    match given {
        Some(given) => selection::selection("selection", given),
        None => Ok(Selection::default()),
    }
}

fn limit(limit: i64) -> Result<Limit, Failure> {
    match u64::try_from(limit) {
        Ok(limit) if limit <= MAX_COUNT => Ok(Limit::AtMost(limit)),
        Err(_) if limit == -1 => Ok(Limit::Unlimited),
        _ => Err(Failure::invalid("limit", "must be from 0 to 2^53−1, or −1 for no limit")),
    }
}

fn window(window: wire::NewWindow) -> Result<Window, Failure> {
    let per = within_span("window.per", window.per, Millis(1), MAX_WINDOW, "must be from 1 ms to 366 days")?;
    let without_burst = |made: Window| match window.burst {
        None => Ok(made),
        Some(_) => Err(Failure::invalid("window.burst", "must be absent, because only a bucket has a burst")),
    };
    match window.kind {
        wire::WindowType::Fixed => without_burst(Window::Fixed { per }),
        wire::WindowType::Sliding => without_burst(Window::Sliding { per }),
        wire::WindowType::Bucket => {
            let burst = window.burst.map(|size| burst("window.burst", size)).transpose()?;
            Ok(Window::Bucket { per, burst })
        }
    }
}

fn burst(field: &'static str, size: u64) -> Result<u64, Failure> {
    if (1..=MAX_COUNT).contains(&size) {
        Ok(size)
    } else {
        Err(Failure::invalid(field, "must be from 1 to 2^53−1"))
    }
}

fn durability(word: wire::Durability) -> Durability {
    match word {
        wire::Durability::Durable => Durability::Durable,
        wire::Durability::Relaxed => Durability::Relaxed,
    }
}

fn description(text: String) -> Result<Box<str>, Failure> {
    if text.len() <= MAX_DESCRIPTION {
        Ok(text.into())
    } else {
        Err(Failure::invalid("description", format!("must not have more than {MAX_DESCRIPTION} bytes")))
    }
}

fn signed(field: &'static str, count: u64) -> Result<i64, Failure> {
    let signed = i64::try_from(count).ok().filter(|_| count <= MAX_COUNT);
    signed.ok_or_else(|| Failure::invalid(field, "must be from 0 to 2^53−1"))
}
