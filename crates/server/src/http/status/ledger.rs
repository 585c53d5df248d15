//! The ledger's refusals.

use super::{
    super::{
        problem::{Code, Failure},
        to_wire::ledger::state_word,
    },
    unreadable,
};
use limina_engine::{Name, ledger};
use serde_json::json;

/// The ledger did not do it.
pub(crate) fn refusal(refusal: ledger::Refusal) -> Failure {
    use ledger::Refusal::*;
    match refusal {
        DuplicateLimitName { limit_name } => {
            let detail = format!("there is a limit {:?} already", limit_name.as_str());
            Failure::new(Code::DuplicateLimitName, detail).with("limit_name", limit_name.as_str())
        }
        LimitNotFound { limit_names } => about_limits(
            Code::LimitNotFound,
            format!("there is no limit {}", listed(&limit_names)),
            &limit_names,
        ),
        OperationNotFound { operation_id, limit_name, state } => {
            let id = operation_id.as_str();
            let place =
                limit_name.as_ref().map_or(String::new(), |name| format!(" in limit {:?}", name.as_str()));
            let detail = match state {
                Some(state) => format!("the hold of operation {id:?}{place} is {}", in_words(state)),
                None if limit_name.is_some() => format!("operation {id:?} has no hold{place}"),
                None => format!("there is no operation {id:?} with such a hold"),
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
        OperationAlreadyInFinalState { operation_id, limits } => {
            let names: Vec<Name> = limits.iter().map(|(name, _)| name.clone()).collect();
            let id = operation_id.as_str();
            let detail = format!("operation {id:?} is committed or rolled back in limit {}", listed(&names));
            let failure =
                about_limits(Code::OperationAlreadyInFinalState, detail, &names).with("operation_id", id);
            match limits.first() {
                Some((_, state)) => failure.with("state", state_word(*state)),
                None => failure,
            }
        }
        DuplicateOperation { operation_id, limit_names } => {
            let id = operation_id.as_str();
            let detail = format!("operation {id:?} has an open hold in limit {}", listed(&limit_names));
            about_limits(Code::DuplicateOperation, detail, &limit_names).with("operation_id", id)
        }
        LimitExceeded { limits } => {
            let names: Vec<Name> = limits.iter().map(|(name, _)| name.clone()).collect();
            let ceilings: Vec<_> = limits
                .iter()
                .map(|(name, ceiling)| json!({"limit_name": name.as_str(), "ceiling": ceiling}))
                .collect();
            let detail = format!("the ceiling would be exceeded in limit {}", listed(&names));
            about_limits(Code::LimitExceeded, detail, &names).with("limits", ceilings)
        }
        ValueOverflow { limit_names } => about_limits(
            Code::ValueOverflow,
            format!("the value could leave the range of a 64-bit integer in limit {}", listed(&limit_names)),
            &limit_names,
        ),
        CommitExceedsHold { operation_id, limit_name, held, value } => {
            let (id, name) = (operation_id.as_str(), limit_name.as_str());
            let detail =
                format!("operation {id:?} holds {held} in limit {name:?}, of which {value} is not a part");
            Failure::new(Code::CommitExceedsHold, detail)
                .with("operation_id", id)
                .with("limit_name", name)
                .with("held_value", held)
                .with("value", value)
        }
        OperationTooLarge { operation_id } => {
            let most = ledger::MAX_LIMITS_PER_OPERATION;
            Failure::invalid("changes", format!("over all its requests an operation may touch {most} limits"))
                .with("operation_id", operation_id.as_str())
        }
        PositionNotReached { current } => {
            Failure::invalid("position", format!("the last position so far is {}", current.0))
                .with("current_position", current.0)
        }
        LimitsValuesReadingException => {
            Failure::new(Code::LimitsValuesReadingException, "stored history could not be read")
        }
        Unreadable => unreadable(),
    }
}

fn about_limits(code: Code, detail: String, names: &[Name]) -> Failure {
    let failure = Failure::new(code, detail);
    let failure = match names.first() {
        Some(first) => failure.with("limit_name", first.as_str()),
        None => failure,
    };
    failure.with("limit_names", names.iter().map(Name::as_str).collect::<Vec<_>>())
}

fn listed(names: &[Name]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("{:?}", name.as_str())).collect();
    quoted.join(", ")
}

fn in_words(state: ledger::HoldState) -> &'static str {
    match state {
        ledger::HoldState::Held => "open",
        ledger::HoldState::Committed { .. } => "committed",
        ledger::HoldState::RolledBack { expired: false, .. } => "rolled back",
        ledger::HoldState::RolledBack { expired: true, .. } => "rolled back, as its time had run out",
    }
}
