//! The ledger's requests.

use super::{super::problem::Failure, Field, check_count, check_distinct, name, optional_name};
use limina_engine::{
    Command, Millis, Name, Position,
    ledger::{self, AsOf, Change, Context, Finish, Patch, Transfer},
};
use limina_wire::ledger as wire;
use std::collections::BTreeMap;

const MAX_CHANGES: usize = 64;
const MAX_LIMIT_NAMES: usize = 1000;
const MAX_CONTEXT: usize = 64;
const MAX_CONTEXT_KEY: usize = 256;
const MAX_CONTEXT_VALUE: usize = 1024;
const MAX_EXPIRY: Millis = Millis(366 * Millis::DAY.0);

pub(crate) fn new_limit(limit: wire::NewLimit) -> Result<Command, Failure> {
    Ok(Command::Ledger(ledger::Command::CreateLimit(ledger::NewLimit {
        name: name("name", &limit.name)?,
        limit_id: optional_name("limit_id", limit.limit_id.as_deref())?,
        context: context("context", limit.context.unwrap_or_default())?,
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
        Some(Some(texts)) => Patch::Set(context("context", texts)?),
    };
    Ok(Command::Ledger(ledger::Command::PatchLimit { name, ceiling, context }))
}

pub(crate) fn hold(hold: wire::Hold) -> Result<Transfer, Failure> {
    let operation_id = name("operation_id", &hold.operation_id)?;
    check_count("changes", hold.changes.len(), MAX_CHANGES)?;
    let mut changes = Vec::with_capacity(hold.changes.len());
    for (place, change) in hold.changes.into_iter().enumerate() {
        changes.push(Change {
            limit_name: name(|| format!("changes[{place}].limit_name"), &change.limit_name)?,
            value: change.value,
            limit_id: optional_name(|| format!("changes[{place}].limit_id"), change.limit_id.as_deref())?,
            context: match change.context {
                Some(texts) => context(|| format!("changes[{place}].context"), texts)?,
                None => Context::new(),
            },
        });
    }
    check_distinct(changes.iter().map(|change| change.limit_name.as_str()), |place| {
        format!("changes[{place}].limit_name")
    })?;
    let expires_after = match hold.expires_after.map(|span| Millis(span.millis)) {
        Some(span) if span < Millis(1) || span > MAX_EXPIRY => {
            return Err(Failure::invalid("expires_after", "must be from 1 ms to 366 days"));
        }
        span => span,
    };
    Ok(Transfer::Hold(ledger::Hold {
        operation_id,
        changes,
        skip_existing_holds: hold.skip_existing_holds,
        create_missing: hold.create_missing,
        expires_after,
    }))
}

pub(crate) fn finalization(finish: Finish, request: wire::Finalization) -> Result<Transfer, Failure> {
    let operation_id = name("operation_id", &request.operation_id)?;
    let changes = match request.changes {
        None => None,
        Some(changes) => {
            check_count("changes", changes.len(), MAX_CHANGES)?;
            let mut checked = Vec::with_capacity(changes.len());
            for (place, change) in changes.into_iter().enumerate() {
                let limit_name = name(|| format!("changes[{place}].limit_name"), &change.limit_name)?;
                checked.push(ledger::FinalizationChange { limit_name, value: change.value });
            }
            check_distinct(checked.iter().map(|change| change.limit_name.as_str()), |place| {
                format!("changes[{place}].limit_name")
            })?;
            Some(checked)
        }
    };
    Ok(Transfer::Finish(ledger::Finalization { finish, operation_id, changes }))
}

pub(crate) fn values_query(query: wire::ValuesQuery) -> Result<Command, Failure> {
    check_count("limit_names", query.limit_names.len(), MAX_LIMIT_NAMES)?;
    let mut limit_names = Vec::with_capacity(query.limit_names.len());
    for (place, text) in query.limit_names.iter().enumerate() {
        limit_names.push(name(|| format!("limit_names[{place}]"), text)?);
    }
    check_distinct(limit_names.iter().map(Name::as_str), |place| format!("limit_names[{place}]"))?;
    let as_of = match (query.operation_id, query.position) {
        (None, None) => AsOf::Now,
        (Some(id), None) => AsOf::Operation(name("operation_id", &id)?),
        (None, Some(position)) => AsOf::Position(Position(position)),
        (Some(_), Some(_)) => {
            return Err(Failure::invalid("position", "must be absent if `operation_id` is given"));
        }
    };
    Ok(Command::Ledger(ledger::Command::Values { limit_names, as_of }))
}

fn context(field: impl Field, texts: BTreeMap<String, String>) -> Result<Context, Failure> {
    if texts.len() > MAX_CONTEXT {
        return Err(Failure::invalid(field.path(), format!("must not have more than {MAX_CONTEXT} entries")));
    }
    let wrong = texts.iter().find_map(|(key, value)| {
        if key.is_empty() || key.len() > MAX_CONTEXT_KEY {
            Some((key, format!("a key must have 1–{MAX_CONTEXT_KEY} bytes")))
        } else if value.len() > MAX_CONTEXT_VALUE {
            Some((key, format!("a value must not have more than {MAX_CONTEXT_VALUE} bytes")))
        } else {
            None
        }
    });
    match wrong {
        Some((key, detail)) => Err(Failure::invalid(format!("{}.{key}", field.path()), detail)),
        None => Ok(texts.into_iter().map(|(key, value)| (key.into(), value.into())).collect()),
    }
}
