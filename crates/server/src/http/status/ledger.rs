//! The ledger's refusals.

use super::{
    super::problem::{Code, Failure},
    common::{part_of_operation, quota_exceeded, unreadable},
};
use limina_engine::{Name, ledger};
use serde_json::json;

pub(crate) fn refusal(refusal: ledger::Refusal) -> Failure {
    use ledger::Refusal::*;
    match refusal {
        DuplicateLimitName { limit_name } => {
            let detail = format!("The limit {:?} already exists.", limit_name.as_str());
            Failure::new(Code::DuplicateLimitName, detail).with("limit_name", limit_name.as_str())
        }
        LimitNotFound { limit_names } => {
            about_limits(Code::LimitNotFound, no_such_limits(&limit_names), &limit_names)
        }
        OperationNotFound { operation_id, limit_name, state } => {
            operation_not_found(&operation_id, limit_name.as_ref(), state)
        }
        OperationAlreadyInFinalState { operation_id, limits } => already_final(&operation_id, &limits),
        DuplicateOperation { operation_id, limits } => duplicate_operation(&operation_id, &limits),
        LimitExceeded { limits } => limit_exceeded(&limits),
        LimitInUse { limit_name, open_holds } => {
            let noun = if open_holds == 1 { "hold" } else { "holds" };
            let name = limit_name.as_str();
            let detail = format!("The limit {name:?} has {open_holds} open {noun}. Nothing was done.");
            Failure::new(Code::LimitInUse, detail).with("limit_name", name).with("open_holds", open_holds)
        }
        ValueOverflow { limit_names } => about_limits(
            Code::ValueOverflow,
            format!("The value could exceed a 64-bit integer in {}.", listed(&limit_names)),
            &limit_names,
        ),
        CommitExceedsHold { operation_id, limit_name, held, value } => {
            commit_exceeds_hold(&operation_id, &limit_name, held, value)
        }
        OperationTooLarge { operation_id } => {
            let most = ledger::MAX_LIMITS_PER_OPERATION;
            let reason =
                format!("must not name more limits: one operation can hold in at most {most} limits");
            Failure::invalid("changes", reason).with("operation_id", operation_id.as_str())
        }
        PositionNotReached { current } => {
            Failure::invalid("position", format!("must be at most {}, the last position so far", current.0))
                .with("current_position", current.0)
        }
        LimitsValuesReadingException => Failure::new(
            Code::LimitsValuesReadingException,
            "The stored history could not be read. Nothing was done.",
        ),
        PartOfOperation { operation_id } => part_of_operation(&operation_id),
        Unreadable => unreadable(),
        QuotaExceeded(exceeded) => quota_exceeded(exceeded),
    }
}

fn operation_not_found(
    operation_id: &Name,
    limit_name: Option<&Name>,
    state: Option<ledger::HoldState>,
) -> Failure {
    let id = operation_id.as_str();
    let in_limit = limit_name.map_or(String::new(), |name| format!(" in the limit {:?}", name.as_str()));
    let detail = match state {
        Some(state) => format!("The hold of the operation {id:?}{in_limit} {}.", state_predicate(state)),
        None if limit_name.is_some() => format!("The operation {id:?} has no hold{in_limit}."),
        None => format!("The operation {id:?} does not exist, or has no such hold."),
    };
    let mut failure = Failure::new(Code::OperationNotFound, detail).with("operation_id", id);
    if let Some(name) = limit_name {
        failure = failure.with("limit_name", name.as_str());
    }
    if let Some(state) = state {
        failure = failure.with("state", state_word(state));
    }
    failure
}

fn already_final(operation_id: &Name, limits: &[(Name, ledger::HoldState)]) -> Failure {
    let names: Vec<Name> = limits.iter().map(|(name, _)| name.clone()).collect();
    let id = operation_id.as_str();
    let detail = format!("The operation {id:?} is already finished in {}.", listed(&names));
    let failure = about_limits(Code::OperationAlreadyInFinalState, detail, &names).with("operation_id", id);
    match limits.first() {
        Some((_, state)) => failure.with("state", state_word(*state)),
        None => failure,
    }
}

fn duplicate_operation(operation_id: &Name, limits: &[(Name, i64)]) -> Failure {
    let names: Vec<Name> = limits.iter().map(|(name, _)| name.clone()).collect();
    let held: Vec<_> =
        limits.iter().map(|(name, held)| json!({"limit_name": name.as_str(), "held_value": held})).collect();
    let id = operation_id.as_str();
    let detail = format!("The operation {id:?} already has an open hold in {}.", listed(&names));
    let failure = about_limits(Code::DuplicateOperation, detail, &names).with("operation_id", id);
    let failure = match limits.first() {
        Some((_, held)) => failure.with("held_value", *held),
        None => failure,
    };
    failure.with("limits", held)
}

fn limit_exceeded(limits: &[ledger::ExceededLimit]) -> Failure {
    let names: Vec<Name> = limits.iter().map(|limit| limit.limit_name.clone()).collect();
    let exceeded: Vec<_> = limits
        .iter()
        .map(|limit| {
            json!({
                "limit_name": limit.limit_name.as_str(),
                "ceiling": limit.ceiling,
                "commit_value": limit.commit_value,
                "hold_value": limit.hold_value,
                "available": limit.available,
            })
        })
        .collect();
    let detail = format!("The ceiling would be exceeded in {}.", listed(&names));
    about_limits(Code::LimitExceeded, detail, &names).with("limits", exceeded)
}

pub(super) fn commit_exceeds_hold(operation_id: &Name, limit_name: &Name, held: i64, value: i64) -> Failure {
    let (id, name) = (operation_id.as_str(), limit_name.as_str());
    let detail = format!(
        "The operation {id:?} holds {held} in the limit {name:?}. A commit of {value} is not a part of it."
    );
    Failure::new(Code::CommitExceedsHold, detail)
        .with("operation_id", id)
        .with("limit_name", name)
        .with("held_value", held)
        .with("value", value)
}

pub(super) fn about_limits(code: Code, detail: String, names: &[Name]) -> Failure {
    let failure = Failure::new(code, detail);
    let failure = match names.first() {
        Some(first) => failure.with("limit_name", first.as_str()),
        None => failure,
    };
    failure.with("limit_names", names.iter().map(Name::as_str).collect::<Vec<_>>())
}

pub(super) fn no_such_limits(names: &[Name]) -> String {
    let verb = if names.len() == 1 { "does" } else { "do" };
    let text = listed(names);
    format!("T{} {verb} not exist.", &text[1..])
}

/// "the limit "a"", or "the limits "a", "b"".
pub(super) fn listed(names: &[Name]) -> String {
    let noun = if names.len() == 1 { "limit" } else { "limits" };
    let quoted: Vec<String> = names.iter().map(|name| format!("{:?}", name.as_str())).collect();
    format!("the {noun} {}", quoted.join(", "))
}

/// The word for a state in a problem document.
fn state_word(state: ledger::HoldState) -> &'static str {
    match state {
        ledger::HoldState::Held => "held",
        ledger::HoldState::Committed { .. } => "committed",
        ledger::HoldState::RolledBack { .. } => "rolled_back",
    }
}

fn state_predicate(state: ledger::HoldState) -> &'static str {
    match state {
        ledger::HoldState::Held => "is open",
        ledger::HoldState::Committed { .. } => "is committed",
        ledger::HoldState::RolledBack { expired: false, .. } => "is rolled back",
        ledger::HoldState::RolledBack { expired: true, .. } => "has expired and is rolled back",
    }
}
