//! `limina ledger`: amounts that are held, then committed or given back.

use super::ledger_limits::{self, LimitsArgs};
use crate::{Exit, Failed, ListLimit, Session, Span, output::Output, table::Table, watch::Watch, words};
use limina_api::ledger::State;
use limina_client::types::{LimitValue, Operation};
use std::str::FromStr;

/// The commands of `ledger`.
#[derive(clap::Subcommand, Debug)]
pub enum LedgerCommand {
    /// List the limits with their values; show, set or delete one
    Limits(LimitsArgs),
    /// Hold amounts: all of them, or none
    Hold {
        /// The operation: an id of yours
        #[arg(value_name = "OPERATION")]
        operation: String,
        /// What to hold in which limit
        #[arg(value_name = "LIMIT=AMOUNT", required = true)]
        changes: Vec<Change>,
        /// Create limits that do not exist
        #[arg(long)]
        create_missing: bool,
        /// Pass over limits in which the operation holds the same amount already
        #[arg(long)]
        skip_existing: bool,
        /// Roll the hold back by itself after this time
        #[arg(long, value_name = "DURATION")]
        expires_after: Option<Span>,
    },
    /// Commit what an operation holds, or less
    Commit {
        /// The operation
        #[arg(value_name = "OPERATION")]
        operation: String,
        /// What to commit in which limit [default: all that it holds]
        #[arg(value_name = "LIMIT=AMOUNT")]
        changes: Vec<Change>,
    },
    /// Give back what an operation holds
    Rollback {
        /// The operation
        #[arg(value_name = "OPERATION")]
        operation: String,
    },
    /// Show an operation
    Show {
        /// The operation
        #[arg(value_name = "OPERATION")]
        operation: String,
        /// Whether to repeat
        #[command(flatten)]
        watch: Watch,
    },
    /// List operations with open holds
    Open {
        /// Only those held for longer than this
        #[arg(long, value_name = "DURATION")]
        older_than: Option<String>,
        /// Only those in this limit
        #[arg(long = "in", value_name = "LIMIT")]
        limit_name: Option<String>,
        /// How much of the list
        #[command(flatten)]
        limit: ListLimit,
        /// Whether to repeat
        #[command(flatten)]
        watch: Watch,
    },
    /// Show values of limits: the latest, or as of an operation or a position
    Values {
        /// The limits
        #[arg(value_name = "LIMIT", required = true)]
        names: Vec<String>,
        /// As the operation saw them when it held
        #[arg(long, value_name = "OPERATION", conflicts_with = "at")]
        of: Option<String>,
        /// As they were at this position
        #[arg(long, value_name = "POSITION")]
        at: Option<u64>,
    },
}

/// `LIMIT=AMOUNT`. The name may contain `=`, so the last one counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The limit.
    pub limit_name: String,
    /// The amount.
    pub value: i64,
}

impl FromStr for Change {
    type Err = String;

    fn from_str(text: &str) -> Result<Change, String> {
        let (name, value) = text.rsplit_once('=').ok_or("write LIMIT=AMOUNT")?;
        let value = value.parse().map_err(|_| format!("{value:?} is not a whole number"))?;
        if name.is_empty() {
            Err("there is no limit before the =".to_owned())
        } else {
            Ok(Change { limit_name: name.to_owned(), value })
        }
    }
}

pub(crate) async fn run(command: LedgerCommand, session: &mut Session) -> Result<Exit, Failed> {
    match command {
        LedgerCommand::Limits(args) => return ledger_limits::run(args, session).await,
        LedgerCommand::Hold { operation, changes, create_missing, skip_existing, expires_after } => {
            let mut hold = session.client.ledger().hold(operation);
            for change in &changes {
                hold = hold.change(&change.limit_name, change.value);
            }
            if create_missing {
                hold = hold.create_missing();
            }
            if skip_existing {
                hold = hold.skip_existing_holds();
            }
            if let Some(Span(after)) = expires_after {
                hold = hold.expires_after(after);
            }
            let held = hold.await?;
            session.out.reply(&held, |out, held| show_result(out, "held at", held.position.0, &held.values));
        }
        LedgerCommand::Commit { operation, changes } => {
            let mut commit = session.client.ledger().commit(operation);
            for change in &changes {
                commit = commit.change(&change.limit_name, change.value);
            }
            let done = commit.await?;
            session
                .out
                .reply(&done, |out, done| show_result(out, "committed at", done.position.0, &done.values));
        }
        LedgerCommand::Rollback { operation } => {
            let done = session.client.ledger().rollback(operation).await?;
            session
                .out
                .reply(&done, |out, done| show_result(out, "rolled back at", done.position.0, &done.values));
        }
        LedgerCommand::Show { operation, watch } => {
            return watch.run(session, async |session| show_operation(&operation, session).await).await;
        }
        LedgerCommand::Open { older_than, limit_name, limit, watch } => {
            let (older_than, name) = (older_than.as_deref(), limit_name.as_deref());
            return watch
                .run(session, async |session| list_open(older_than, name, limit, session).await)
                .await;
        }
        LedgerCommand::Values { names, of, at } => {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let ledger = session.client.ledger();
            let values = match (of, at) {
                (Some(operation), _) => ledger.values_of(&operation, &names).await?,
                (None, Some(position)) => ledger.values_at(position, &names).await?,
                (None, None) => ledger.values(&names).await?,
            };
            session.out.reply(&values, |out, found| show_result(out, "at", found.position.0, &found.values));
        }
    }
    Ok(Exit::Yes)
}

async fn show_operation(operation: &str, session: &mut Session) -> Result<Exit, Failed> {
    let found = session.client.ledger().operation(operation).await?;
    session.out.reply(&found, |out, found| show_operations(out, std::slice::from_ref(found)));
    Ok(Exit::Yes)
}

async fn list_open(
    older_than: Option<&str>,
    limit_name: Option<&str>,
    limit: ListLimit,
    session: &mut Session,
) -> Result<Exit, Failed> {
    let mut operations = session.client.ledger().operations();
    if let Some(older_than) = older_than {
        operations = operations.filter("older_than", older_than);
    }
    if let Some(name) = limit_name {
        operations = operations.filter("limit_name", name);
    }
    session.out.list(operations, limit, show_operations).await?;
    Ok(Exit::Yes)
}

/// A word of the API, for people.
pub(crate) fn word(value: &impl serde::Serialize) -> String {
    let json = serde_json::to_value(value).ok();
    json.and_then(|json| json.as_str().map(str::to_owned)).unwrap_or_default().replace('_', " ")
}

pub(crate) fn show_values(out: &mut Output, values: &[LimitValue]) {
    let mut table = Table::new(&["LIMIT", ">COMMITTED", ">HELD", ">TOTAL"]);
    for value in values {
        table.row([
            words::printable(&value.limit_name),
            words::number(value.commit_value),
            words::number(value.hold_value),
            words::number(value.total_value),
        ]);
    }
    out.table(&table);
}

/// The values, and the position at which the limits had them.
fn show_result(out: &mut Output, what: &str, position: u64, values: &[LimitValue]) {
    show_values(out, values);
    out.say(format!("{what} position {position}"));
}

fn show_operations(out: &mut Output, operations: &[Operation]) {
    let mut table =
        Table::new(&["OPERATION", "LIMIT", "STATE", ">HELD", ">COMMITTED", "HELD AT", ">EXPIRES IN"]);
    for operation in operations {
        for hold in &operation.holds {
            let state = match (hold.state, hold.expired) {
                (State::RolledBack, true) => "expired".to_owned(),
                (state, _) => word(&state),
            };
            let deleted = if hold.deleted { " (deleted)" } else { "" };
            table.row([
                words::printable(&operation.operation_id),
                format!("{}{deleted}", words::printable(&hold.limit_name)),
                state,
                words::number(hold.held_value),
                hold.committed_value.map_or("-".to_owned(), words::number),
                words::time(hold.held_at.0),
                hold.expires_in_ms.map_or("-".to_owned(), |span| words::duration(span.0)),
            ]);
        }
    }
    out.table(&table);
    if operations.is_empty() {
        out.say("no open operations");
    }
}

#[cfg(test)]
mod tests {
    use super::Change;

    #[test]
    fn changes() {
        let change = |text: &str| text.parse::<Change>().map(|change| (change.limit_name, change.value));
        assert_eq!(change("budget/acme=250"), Ok(("budget/acme".to_owned(), 250)));
        assert_eq!(change("a=b=-3"), Ok(("a=b".to_owned(), -3)));
        assert!(change("budget").is_err() && change("=1").is_err() && change("a=1.5").is_err());
    }
}
