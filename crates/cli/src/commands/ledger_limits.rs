//! `limina ledger limits`: the accounts of the ledger, with their ceilings.

use super::ledger::word;
use crate::{
    Exit, Failed, ListLimit, Session, or_none::OrNone, output::Output, table::Table, watch::Watch, words,
};
use limina_client::{
    Error,
    types::{Entry, Limit},
};
use serde_json::json;

/// The arguments of `ledger limits`.
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct LimitsArgs {
    #[command(subcommand)]
    command: Option<LimitsCommand>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(clap::Subcommand, Debug)]
enum LimitsCommand {
    /// List the limits with their values (also the default without a subcommand)
    Ls(ListArgs),
    /// Show one limit with its latest history
    Show {
        /// The limit
        #[arg(value_name = "LIMIT")]
        name: String,
        /// How much of the history
        #[command(flatten)]
        limit: ListLimit,
    },
    /// Create a limit, or change its ceiling
    Set {
        /// The limit
        #[arg(value_name = "LIMIT")]
        name: String,
        /// The most that may be committed and held together; `none` removes the ceiling
        #[arg(long, value_name = "N", allow_hyphen_values = true)]
        ceiling: OrNone<i64>,
    },
    /// Delete a limit with its history
    Rm {
        /// The limit
        #[arg(value_name = "LIMIT")]
        name: String,
        /// Confirm it; without this flag the command only shows what it would delete
        #[arg(long)]
        yes: bool,
    },
}

#[derive(clap::Args, Debug)]
struct ListArgs {
    /// Those nearest to their ceilings first
    #[arg(long)]
    fullest: bool,
    #[command(flatten)]
    limit: ListLimit,
    #[command(flatten)]
    watch: Watch,
}

pub(crate) async fn run(args: LimitsArgs, session: &mut Session) -> Result<Exit, Failed> {
    let list = match args.command {
        Some(LimitsCommand::Show { name, limit }) => return show_one(&name, limit, session).await,
        Some(LimitsCommand::Set { name, ceiling }) => return set(&name, ceiling, session).await,
        Some(LimitsCommand::Rm { name, yes }) => return remove(&name, yes, session).await,
        Some(LimitsCommand::Ls(list)) => list,
        None => args.list,
    };
    list.watch
        .run(session, async |session| {
            let mut limits = session.client.ledger().limits().list();
            if list.fullest {
                limits = limits.filter("order", "used");
            }
            session.out.list(limits, list.limit, show).await?;
            Ok(Exit::Yes)
        })
        .await
}

async fn show_one(name: &str, limit: ListLimit, session: &mut Session) -> Result<Exit, Failed> {
    let found = session.client.ledger().limits().get(name).await;
    let found = found.map_err(|error| session.with_next_step(error))?;
    session.out.reply(&found, |out, found| show(out, std::slice::from_ref(found)));
    if session.out.is_table() {
        session.out.line("");
        let entries = session.client.ledger().limits().entries(name);
        session.out.list(entries, limit, show_entries).await?;
    }
    Ok(Exit::Yes)
}

/// Creates the limit, or changes its ceiling.
async fn set(name: &str, OrNone(ceiling): OrNone<i64>, session: &mut Session) -> Result<Exit, Failed> {
    let client = session.client.clone();
    let limits = client.ledger().limits();
    // Asked first, because a change of a limit that does not exist would be listed among the refusals.
    let (changed, what) = match limits.get(name).await {
        Ok(_) => (limits.patch(name, &json!({"ceiling": ceiling})).await?, "changed the limit"),
        Err(Error::NotFound(_)) => {
            let mut limit = json!({"name": name});
            if let Some(ceiling) = ceiling {
                limit["ceiling"] = ceiling.into();
            }
            (limits.create(&limit).await?, "created the limit")
        }
        Err(error) => return Err(error.into()),
    };
    session.out.reply(&changed, |out, changed| show(out, std::slice::from_ref(changed)));
    session.done(what, name);
    Ok(Exit::Yes)
}

async fn remove(name: &str, yes: bool, session: &mut Session) -> Result<Exit, Failed> {
    let client = session.client.clone();
    let limits = client.ledger().limits();
    let found = limits.get(name).await.map_err(|error| session.with_next_step(error))?.into_inner();
    let committed = words::number(found.commit_value);
    if !yes {
        show(&mut session.out, &[found]);
        session.out.flush();
        return Err(Failed::needs_yes("this deletes the limit with its history"));
    }
    limits.delete(name).await.map_err(|error| session.with_next_step(error))?;
    let name = words::printable(name);
    session.out.say(format!("deleted the limit {name} with its history; {committed} were committed"));
    Ok(Exit::Yes)
}

fn show(out: &mut Output, limits: &[Limit]) {
    let mut table = Table::new(&["LIMIT", ">COMMITTED", ">HELD", ">CEILING", ">AVAILABLE", "USE"]);
    for limit in limits {
        table.row([
            words::printable(&limit.name),
            words::number(limit.commit_value),
            words::number(limit.hold_value),
            limit.ceiling.map_or("none".to_owned(), words::number),
            limit.available.map_or("-".to_owned(), words::number),
            // The worst case decides: what is not available counts as used.
            match (limit.ceiling, limit.available) {
                (Some(ceiling), Some(available)) => {
                    words::bar(i128::from(ceiling) - i128::from(available), i128::from(ceiling))
                }
                _ => String::new(),
            },
        ]);
    }
    out.table(&table);
    if limits.is_empty() {
        out.say("no limits");
    }
}

fn show_entries(out: &mut Output, entries: &[Entry]) {
    let mut table =
        Table::new(&["TIME", ">POSITION", "WHAT", "OPERATION", ">AMOUNT", ">COMMITTED", ">HELD", ">TOTAL"]);
    for entry in entries {
        table.row([
            words::time(entry.time.0),
            entry.position.to_string(),
            word(&entry.kind),
            words::printable(&entry.operation_id),
            words::number(entry.value),
            words::number(entry.commit_value),
            words::number(entry.hold_value),
            words::number(entry.total_value),
        ]);
    }
    out.table(&table);
}
