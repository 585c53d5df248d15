//! The ledger's requests.

use super::{super::problem::Failure, Span, name, optional_name};
use limina_api::ledger as wire;
use limina_engine::{
    Command, Invalid, Name, Position,
    ledger::{self, AsOf, Change, Context, Finish, Patch, Transfer},
};

pub(crate) fn new_limit(limit: wire::NewLimit) -> Result<Command, Failure> {
    Ok(Command::Ledger(ledger::Command::CreateLimit(ledger::NewLimit {
        name: name("name", &limit.name)?,
        limit_id: optional_name("limit_id", limit.limit_id.as_deref())?,
        context: context(limit.context)?,
        ceiling: limit.ceiling,
    })))
}

pub(crate) fn limit_patch(name: Name, patch: wire::LimitPatch) -> Result<Command, Failure> {
    let ceiling = match patch.ceiling {
        None => Patch::Keep,
        Some(None) => Patch::Remove,
        Some(Some(ceiling)) => Patch::Set(ceiling),
    };
    let context = match patch.context {
        None => Patch::Keep,
        Some(None) => Patch::Remove,
        Some(Some(context)) => Patch::Set(checked(context)?),
    };
    Ok(Command::Ledger(ledger::Command::PatchLimit { name, ceiling, context }))
}

pub(crate) fn hold(hold: wire::Hold) -> Result<Transfer, Failure> {
    let changes =
        hold.changes.into_iter().enumerate().map(|(index, change)| {
            hold_change(change).map_err(|invalid| invalid.within_item("changes", index))
        });
    let operation_id = name("operation_id", &hold.operation_id)?;
    let expiry = Span::new("expires_after", hold.expires_after, hold.expires_after_ms)?;
    let hold = ledger::Hold::new(operation_id, changes.collect::<Result<_, _>>()?)?
        .with_skip_existing_holds(hold.skip_existing_holds)
        .with_create_missing(hold.create_missing)
        .with_expires_after(expiry.millis)
        .map_err(|invalid| expiry.as_sent(invalid))?;
    Ok(Transfer::Hold(hold))
}

pub(super) fn hold_change(change: wire::Change) -> Result<Change, Invalid> {
    Ok(Change {
        limit_name: name("limit_name", &change.limit_name)?,
        value: change.value,
        limit_id: optional_name("limit_id", change.limit_id.as_deref())?,
        context: context(change.context)?,
        ceiling: change.ceiling,
    })
}

pub(crate) fn extend(request: wire::Extend) -> Result<Command, Failure> {
    let operation_id = name("operation_id", &request.operation_id)?;
    let (given, millis) = (request.expires_after, request.expires_after_ms);
    if given.is_some() && millis.is_some() {
        return Err(Failure::invalid("expires_after_ms", "must be absent, because `expires_after` is given"));
    }
    let is_never = given == Some(None) || millis == Some(None);
    let expiry = Span::new("expires_after", given.flatten(), millis.flatten())?;
    let expires_after = if is_never { None } else { Some(expiry.required()?) };
    let extend =
        ledger::Extend::new(operation_id, expires_after).map_err(|invalid| expiry.as_sent(invalid))?;
    Ok(Command::Ledger(ledger::Command::Extend(extend)))
}

pub(crate) fn finalization(finish: Finish, request: wire::Finalization) -> Result<Transfer, Failure> {
    let changes = request.changes.map(|changes| {
        let changes = changes.into_iter().enumerate().map(|(index, change)| {
            let limit_name = name("limit_name", &change.limit_name)
                .map_err(|invalid| invalid.within_item("changes", index))?;
            Ok(ledger::FinalizationChange { limit_name, value: change.value })
        });
        changes.collect::<Result<_, Invalid>>()
    });
    let operation_id = name("operation_id", &request.operation_id)?;
    Ok(Transfer::Finish(ledger::Finalization::new(finish, operation_id, changes.transpose()?)?))
}

pub(crate) fn values_query(query: wire::ValuesQuery) -> Result<Command, Failure> {
    let limit_names = query
        .limit_names
        .iter()
        .enumerate()
        .map(|(index, text)| name("", text).map_err(|invalid| invalid.within_item("limit_names", index)));
    let limit_names = limit_names.collect::<Result<_, _>>()?;
    let as_of = match (query.operation_id, query.position) {
        (None, None) => AsOf::Now,
        (Some(id), None) => AsOf::Operation(name("operation_id", &id)?),
        (None, Some(position)) => AsOf::Position(Position(position)),
        (Some(_), Some(_)) => {
            return Err(Failure::invalid("position", "must be absent if `operation_id` is given"));
        }
    };
    Ok(Command::Ledger(ledger::Command::Values(ledger::Values::new(limit_names, as_of)?)))
}

fn context(context: Option<Context>) -> Result<Context, Invalid> {
    checked(context.unwrap_or_default())
}

fn checked(context: Context) -> Result<Context, Invalid> {
    context.validate().map(|()| context)
}
