//! The ledger's commands and answers as lines of text.

use super::{lines, name, option_of, page, show_quota};
use limina_engine::{
    Command, Millis, Name, Position,
    ledger::{
        self, AsOf, Batch, Change, Context, Extend, Finalization, FinalizationChange, Finish, Hold,
        HoldState, LimitPatch, LimitValue, NewLimit, OperationFilter, Patch, Refusal, Reply, State, Transfer,
        Values,
    },
};

/// `verb [OPERATION] [limit[=value]…] [option[:value]…]`. In `batch`, the holds, commits and rollbacks are separated by a
/// slash. `context:provider=p` is a limit's context. `extend OPERATION expires:100` or `expires:never`.
pub(crate) fn parse(verb: &str, words: &[&str]) -> Command {
    let option = |key: &str| option_of(words, key);
    let plain = plain_words(words);
    use ledger::Command as L;
    let command = match verb {
        "create" => L::CreateLimit(NewLimit {
            limit_id: option("id").map(name),
            context: option("context").map(context).unwrap_or_default(),
            ceiling: option("ceiling").map(|value| value.parse().unwrap()),
            ..NewLimit::new(name(plain[0]))
        }),
        "patch" => L::PatchLimit {
            name: name(plain[0]),
            patch: LimitPatch {
                ceiling: match option("ceiling") {
                    None => Patch::Keep,
                    Some("none") => Patch::Remove,
                    Some(value) => Patch::Set(value.parse().unwrap()),
                },
                context: match option("context") {
                    None => Patch::Keep,
                    Some("none") => Patch::Remove,
                    Some(pairs) => Patch::Set(context(pairs)),
                },
            },
        },
        "delete" => L::DeleteLimit(name(plain[0])),
        "limit" => L::GetLimit(name(plain[0])),
        "limits" if option("used").is_some() => L::ListLimitsByUse(page(words, name)),
        "limits" => L::ListLimits(page(words, name)),
        "extend" => {
            let expires = option("expires").filter(|text| *text != "never");
            let expires = expires.map(|ms| Millis(ms.parse().unwrap()));
            L::Extend(Extend::new(name(plain[0]), expires).unwrap())
        }
        "hold" | "commit" | "rollback" => L::Transfer(transfer(verb, words)),
        "batch" => {
            let items = words.split(|word| *word == "/");
            L::Batch(Batch::new(items.map(|words| transfer(words[0], &words[1..])).collect()).unwrap())
        }
        "values" => {
            let as_of = match (option("op"), option("at")) {
                (Some(id), _) => AsOf::Operation(name(id)),
                (_, Some(position)) => AsOf::Position(Position(position.parse().unwrap())),
                _ => AsOf::Now,
            };
            L::Values(Values::new(plain.iter().map(|word| name(word)).collect(), as_of).unwrap())
        }
        "operation" => L::GetOperation(name(plain[0])),
        "operations" => {
            let filter = OperationFilter {
                only_held: option("held").is_some(),
                older_than: option("older").map(|ms| Millis(ms.parse().unwrap())),
                limit_name: option("limit").map(name),
            };
            L::ListOperations { filter, page: page(words, name) }
        }
        "entries" => L::ListEntries {
            limit_name: name(plain[0]),
            page: page(words, |position| Position(position.parse().unwrap())),
        },
        other => panic!("unknown command {other}"),
    };
    Command::Ledger(command)
}

fn plain_words<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let is_flag = |word: &&&str| !word.contains(':') && !["skip", "create", "held", "used"].contains(*word);
    words.iter().filter(is_flag).copied().collect()
}

fn transfer(verb: &str, words: &[&str]) -> Transfer {
    let option = |key: &str| option_of(words, key);
    let plain = plain_words(words);
    let change = |word: &&str| {
        let (limit, value) =
            word.split_once('=').map_or((*word, None), |(limit, value)| (limit, Some(value)));
        (name(limit), value.map(|value| value.parse::<i64>().unwrap()))
    };
    match verb {
        "hold" => {
            let changes = plain[1..].iter().map(change).map(|(limit_name, value)| Change {
                limit_id: option("id").map(name),
                context: option("context").map(context).unwrap_or_default(),
                ceiling: option("ceiling").map(|value| value.parse().unwrap()),
                ..Change::new(limit_name, value.unwrap())
            });
            let hold = Hold::new(name(plain[0]), changes.collect())
                .unwrap()
                .with_skip_existing_holds(option("skip").is_some())
                .with_create_missing(option("create").is_some());
            let expiry = option("expires").map(|ms| Millis(ms.parse().unwrap()));
            Transfer::Hold(hold.with_expires_after(expiry).unwrap())
        }
        _ => {
            let finish = if verb == "commit" { Finish::Commit } else { Finish::Rollback };
            let changes = (plain.len() > 1).then(|| {
                let changes = plain[1..].iter().map(change);
                changes.map(|(limit_name, value)| FinalizationChange { limit_name, value }).collect()
            });
            Transfer::Finish(finish, Finalization::new(name(plain[0]), changes).unwrap())
        }
    }
}

fn context(pairs: &str) -> Context {
    Context::new(pairs.split(',').filter_map(|pair| pair.split_once('='))).unwrap()
}

pub(crate) fn show_reply(reply: &Reply) -> String {
    match reply {
        Reply::Limit(limit) => show_limit(limit),
        Reply::Hold(hold) => {
            let skipped =
                if hold.skipped.is_empty() { String::new() } else { format!(" skipped {:?}", hold.skipped) };
            format!("@{} {}{skipped}", hold.position.0, show_values(&hold.values))
        }
        Reply::Finalization(done) => format!("@{} {}", done.position.0, show_values(&done.values)),
        Reply::Values(values) => format!("@{} {}", values.position.0, show_values(&values.values)),
        Reply::Operation(operation) => show_operation(operation),
        Reply::Operations(list) => lines(list.items.iter().map(show_operation)),
        Reply::Limits(list) | Reply::LimitsByUse(list) => lines(list.items.iter().map(show_limit)),
        Reply::LimitDeleted => "deleted".into(),
        Reply::Entries(list) => {
            let entry = |e: &ledger::Entry| {
                let sums = format!("{}{:+}", e.commit_value, e.hold_value);
                format!(
                    "@{} t{} {} {:?} {} -> {sums}",
                    e.position.0,
                    e.time.0 - 1_000_000,
                    e.operation_id,
                    e.kind,
                    e.value
                )
            };
            lines(list.items.iter().map(entry))
        }
        Reply::Batch(results) => lines(results.iter().map(|result| match result {
            Ok(reply) => show_reply(reply),
            Err(refusal) => show_refusal(refusal),
        })),
    }
}

fn show_limit(limit: &ledger::Limit) -> String {
    let id = limit.limit_id.as_ref().map_or(String::new(), |id| format!(" id {id}"));
    let ceiling = limit.ceiling.map_or(String::new(), |ceiling| format!(" ceiling {ceiling}"));
    assert_eq!(limit.available.is_some(), limit.ceiling.is_some());
    let context =
        if limit.context.is_empty() { String::new() } else { format!(" context {:?}", *limit.context) };
    let (commit, hold) = (limit.commit_value, limit.hold_value);
    format!("{}:{commit}{hold:+}{id}{ceiling}{context} made @{}", limit.name, limit.created_position.0)
}

/// `name:committed+held`
fn show_values(values: &[LimitValue]) -> String {
    let value = |v: &LimitValue| format!("{}:{}{:+}", v.limit_name, v.commit_value, v.hold_value);
    values.iter().map(value).collect::<Vec<_>>().join(" ")
}

fn show_operation(operation: &ledger::Operation) -> String {
    let hold = |h: &ledger::OperationHold| {
        let until = match (h.state, h.expires_at) {
            (State::Held, Some(time)) => format!(" until t{}", time.0 - 1_000_000),
            _ => String::new(),
        };
        let deleted = if h.deleted { " in a deleted limit" } else { "" };
        let end = h.final_position.map_or(0, |position| position.0);
        let state = match h.state {
            State::Held => "held".into(),
            State::Committed => format!("committed {} @{end}", h.committed_value.unwrap()),
            State::RolledBack if h.expired => format!("expired @{end}"),
            State::RolledBack => format!("rolled back @{end}"),
        };
        format!("{}={} @{} {state}{until}{deleted}", h.limit_name, h.held_value, h.hold_position.0)
    };
    let holds: Vec<String> = operation.holds.iter().map(hold).collect();
    format!("{} view @{}: {}", operation.operation_id, operation.position.0, holds.join(", "))
}

fn show_state(state: &HoldState) -> String {
    match state {
        HoldState::Held => "held".into(),
        HoldState::Committed { value, at } => format!("committed {value} @{}", at.0),
        HoldState::RolledBack { at, expired: false } => format!("rolled back @{}", at.0),
        HoldState::RolledBack { at, expired: true } => format!("expired @{}", at.0),
    }
}

pub(crate) fn show_refusal(refusal: &Refusal) -> String {
    let detail = match refusal {
        Refusal::QuotaExceeded(exceeded) => return show_quota(exceeded),
        Refusal::DuplicateLimitName { limit_name } => limit_name.to_string(),
        Refusal::LimitNotFound { limit_names } | Refusal::ValueOverflow { limit_names } => {
            format!("{limit_names:?}")
        }
        Refusal::OperationNotFound { limit_name, state, .. } => {
            let state = state.as_ref().map(show_state).unwrap_or_default();
            format!("{} {state}", limit_name.as_ref().map(Name::as_str).unwrap_or_default())
        }
        Refusal::OperationAlreadyInFinalState { limits, .. } => {
            lines(limits.iter().map(|(name, state)| format!("{name} {}", show_state(state))))
                .replace('\n', ", ")
        }
        Refusal::DuplicateOperation { limits, .. } => {
            let limits: Vec<String> =
                limits.iter().map(|(name, held)| format!("{name} held {held}")).collect();
            limits.join(", ")
        }
        Refusal::LimitExceeded { limits } => {
            let limit = |limit: &ledger::ExceededLimit| {
                let ledger::ExceededLimit { limit_name, ceiling, commit_value, hold_value, available } =
                    limit;
                format!("{limit_name}:{commit_value}{hold_value:+} ceiling {ceiling} available {available}")
            };
            limits.iter().map(limit).collect::<Vec<_>>().join(", ")
        }
        Refusal::LimitInUse { limit_name, open_holds } => format!("{limit_name} open {open_holds}"),
        Refusal::CommitExceedsHold { limit_name, held, value, .. } => {
            format!("{limit_name} held {held} value {value}")
        }
        Refusal::PartOfOperation { operation_id } => operation_id.to_string(),
        Refusal::PositionNotReached { current } => format!("now @{}", current.0),
        Refusal::OperationTooLarge { .. } | Refusal::LimitsValuesReadingException | Refusal::Unreadable => {
            String::new()
        }
    };
    format!("{} {detail}", refusal.code()).trim_end().into()
}
