//! The requests about decisions.

use super::{super::problem::Failure, Span, name, optional_name};
use limina_api::decisions as wire;
use limina_engine::{
    Invalid, Name,
    decisions::{Decide, PartCheck, Parts, Settle},
    events::Submit,
    locks::Lock,
};

/// The id of the request, if it waits, is drawn by the caller.
pub(crate) fn decide(waiter: Name, new: wire::NewDecision<'_>) -> Result<Decide, Failure> {
    let operation_id = name("operation_id", &new.operation_id)?;
    let owner = optional_name("owner", new.owner.as_deref())?;
    let checks = new.checks.into_iter().enumerate();
    let checks = checks
        .map(|(index, part)| check(part).map_err(|invalid| invalid.within_item("checks", index)))
        .collect::<Result<_, _>>()?;
    let holds = new.holds.into_iter().enumerate();
    let holds = holds
        .map(|(index, change)| {
            let checked = change.context.validate().map_err(|invalid| invalid.within_item("holds", index));
            checked.map(|()| change)
        })
        .collect::<Result<_, _>>()?;
    let event = new.event.map(|part| event(&part).map_err(|invalid| invalid.within("event"))).transpose()?;
    let locks = new.locks.into_iter().map(Lock::from).collect();
    let parts = Parts { checks, holds, create_missing: new.create_missing, locks, event };
    let mut decide = Decide::new(operation_id, parts)?;
    let ttl = Span::new("ttl", new.ttl, new.ttl_ms)?;
    if let Some(millis) = ttl.millis {
        decide = decide.with_ttl(millis).map_err(|invalid| ttl.as_sent(invalid))?;
    }
    let wait = Span::new("wait", new.wait, new.wait_ms)?;
    if let Some(millis) = wait.millis {
        decide = decide.with_wait(millis, waiter).map_err(|invalid| wait.as_sent(invalid))?;
    }
    Ok(decide.with_owner(owner).with_dry_run(new.dry_run).with_explain(new.explain))
}

/// A decision in a batch, which must not wait.
pub(crate) fn decide_now(waiter: Name, new: wire::NewDecision<'_>) -> Result<Decide, Failure> {
    let field = if new.wait_ms.is_some() { "wait_ms" } else { "wait" };
    let decide = decide(waiter, new)?;
    match decide.wait().0 {
        0 => Ok(decide),
        _ => Err(Failure::invalid(field, "must be 0 or absent in a batch")),
    }
}

fn check(check: wire::DecisionCheck) -> Result<PartCheck, Invalid> {
    Ok(PartCheck {
        name: optional_name("name", check.name.as_deref())?,
        key_values: check.key_values,
        hits: check.hits,
        require_match: check.require_match,
        estimate: check.estimate,
    })
}

fn event(event: &wire::DecisionEvent<'_>) -> Result<Submit, Invalid> {
    Submit::new(name("stream", &event.stream)?, (*event.event).into())
}

pub(crate) fn commit(operation_id: Name, body: wire::CommitDecision) -> Result<Settle, Failure> {
    let wire::CommitDecision { checks, holds, record } = body;
    settle(operation_id, checks, holds, record)
}

pub(crate) fn commit_item(item: wire::CommitItem) -> Result<Settle, Failure> {
    let wire::CommitItem { operation_id, checks, holds, record } = item;
    settle(name("operation_id", &operation_id)?, checks, holds, record)
}

pub(crate) fn rollback_item(item: wire::RollbackItem) -> Result<Name, Failure> {
    Ok(name("operation_id", &item.operation_id)?)
}

fn settle(
    operation_id: Name,
    checks: Vec<wire::ActualHits>,
    holds: Vec<wire::ActualValue>,
    record: bool,
) -> Result<Settle, Failure> {
    let checks = checks.iter().enumerate().map(|(index, check)| {
        let named = name("name", &check.name).map_err(|invalid| invalid.within_item("checks", index))?;
        Ok((named, check.hits))
    });
    let holds = holds.iter().enumerate().map(|(index, hold)| {
        let named =
            name("limit_name", &hold.limit_name).map_err(|invalid| invalid.within_item("holds", index))?;
        Ok((named, hold.value))
    });
    let settle = Settle::new(operation_id)
        .with_checks(checks.collect::<Result<_, Invalid>>()?)?
        .with_holds(holds.collect::<Result<_, Invalid>>()?)?;
    Ok(settle.with_record(record))
}
