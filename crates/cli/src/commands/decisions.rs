//! `limina decisions`: operations over limits, holds, locks and an event at once.

use super::{check, ledger, locks};
use crate::{Exit, Failed, ListLimit, Session, output::Output, table::Table, watch::Watch, words};
use limina_client::{
    Error, Method, Reply,
    types::{Decision, DecisionEventStatus, DecisionState, LimitStatus},
};
use serde_json::Value;
use std::{io::Read, path::PathBuf};

/// The commands of `decisions`.
#[derive(clap::Subcommand, Debug)]
pub enum DecisionsCommand {
    /// List decisions
    Ls {
        /// Only those in this state
        #[arg(long, value_name = "STATE", default_value = "open")]
        state: String,
        /// Only those of this owner
        #[arg(long, value_name = "NAME")]
        owner: Option<String>,
        /// Only those made longer ago than this
        #[arg(long, value_name = "DURATION")]
        older_than: Option<String>,
        /// How much of the list
        #[command(flatten)]
        limit: ListLimit,
        /// Whether to repeat
        #[command(flatten)]
        watch: Watch,
    },
    /// Show what became of each part of a decision
    Show {
        /// The operation
        #[arg(value_name = "OPERATION")]
        operation: String,
        /// Whether to repeat
        #[command(flatten)]
        watch: Watch,
    },
    /// Make a decision from a JSON document, as the API has it
    Make {
        /// The document; `-` is standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Decide, and leave nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// It has happened
    Commit {
        /// The operation
        #[arg(value_name = "OPERATION")]
        operation: String,
        /// The real hits of a check that was an estimate
        #[arg(long, value_name = "CHECK=N")]
        hits: Vec<ledger::Change>,
        /// The amount to commit in a limit of the ledger
        #[arg(long, value_name = "LIMIT=AMOUNT")]
        value: Vec<ledger::Change>,
        /// It has happened anyway: book also what is beyond the hold, or after expiry
        #[arg(long)]
        record: bool,
    },
    /// It has not happened
    Rollback {
        /// The operation
        #[arg(value_name = "OPERATION")]
        operation: String,
    },
}

pub(crate) async fn run(command: DecisionsCommand, session: &mut Session) -> Result<Exit, Failed> {
    let client = session.client.clone();
    let decisions = client.decisions();
    match command {
        DecisionsCommand::Ls { state, owner, older_than, limit, watch } => {
            watch
                .run(session, async |session| {
                    let mut list = session.client.decisions().list().filter("state", &state);
                    if let Some(owner) = &owner {
                        list = list.filter("owner", owner);
                    }
                    if let Some(older_than) = &older_than {
                        list = list.filter("older_than", older_than);
                    }
                    session.out.list(list, limit, show).await?;
                    Ok(Exit::Yes)
                })
                .await
        }
        DecisionsCommand::Show { operation, watch } => {
            watch
                .run(session, async |session| {
                    let found = session.client.decisions().get(&operation).await?;
                    session.out.reply(&found, show_one);
                    Ok(Exit::Yes)
                })
                .await
        }
        DecisionsCommand::Make { file, dry_run } => make(&file, dry_run, session).await,
        DecisionsCommand::Commit { operation, hits, value, record } => {
            let mut commit = decisions.commit(&operation);
            for hits in hits {
                let count =
                    hits.value.try_into().map_err(|_| Failed::usage("--hits must not be negative"))?;
                commit = commit.hits(&hits.limit_name, count);
            }
            for value in value {
                commit = commit.value(&value.limit_name, value.value);
            }
            let done = if record { commit.record().await? } else { commit.await? };
            session.out.reply(&done, show_one);
            Ok(Exit::Yes)
        }
        DecisionsCommand::Rollback { operation } => {
            let done = decisions.rollback(&operation).await?;
            session.out.reply(&done, show_one);
            Ok(Exit::Yes)
        }
    }
}

async fn make(file: &PathBuf, dry_run: bool, session: &mut Session) -> Result<Exit, Failed> {
    let failed = |why: String| Failed::error(format!("{}: {why}", file.display()));
    let text = if file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(file)
    };
    let text = text.map_err(|error| failed(error.to_string()))?;
    let mut body: Value =
        serde_json::from_str(&text).map_err(|error| failed(format!("not JSON: {error}")))?;
    if dry_run {
        body["dry_run"] = true.into();
    }
    let call = session.client.call(Method::POST, "/decisions").body(&body);
    let reply: Result<Reply<Decision>, Error> =
        if dry_run { call.read_only().send().await } else { call.send().await };
    match reply {
        Ok(made) => {
            session.out.reply(&made, show_one);
            Ok(Exit::Yes)
        }
        Err(error) => Err(error.into()),
    }
}

fn show(out: &mut Output, decisions: &[Decision]) {
    let mut table = Table::new(&[
        "OPERATION",
        "OWNER",
        "STATE",
        ">FOR",
        "LIMITS",
        "HOLDS",
        "LOCKS",
        ">EXPIRES IN",
        ">POSITION",
    ]);
    for decision in decisions {
        let limits = decision.limits.iter().map(|limit| check::rule_name(&limit.status));
        let holds = decision.values.iter().map(|value| words::printable(&value.limit_name));
        table.row([
            words::printable(&decision.operation_id),
            words::or_dash(decision.owner.as_ref()),
            state(decision.state).to_owned(),
            words::duration(decision.held_ms),
            limits.collect::<Vec<_>>().join(", "),
            holds.collect::<Vec<_>>().join(", "),
            decision.locks.iter().map(locks::one).collect::<Vec<_>>().join("; "),
            decision.expires_in_ms.map_or("-".to_owned(), words::duration),
            decision.position.map_or("-".to_owned(), |position| position.to_string()),
        ]);
    }
    out.table(&table);
    if decisions.is_empty() {
        out.say("no decisions");
    }
}

fn show_one(out: &mut Output, decision: &Decision) {
    let mut title =
        format!("{} is {}", words::bold(&words::printable(&decision.operation_id)), state(decision.state));
    if let Some(position) = decision.position {
        title.push_str(&format!(" at position {position}"));
    }
    if decision.repeated {
        title.push_str(", as decided before");
    }
    if decision.late {
        title.push_str(", recorded late");
    }
    if let Some(expires) = decision.expires_in_ms {
        title.push_str(&format!("; it expires in {}", words::duration(expires)));
    }
    out.line(title);
    if !decision.limits.is_empty() {
        out.line("");
        let limits: Vec<LimitStatus> = decision.limits.iter().map(|limit| limit.status.clone()).collect();
        check::show_limits(out, &limits);
    }
    if !decision.values.is_empty() {
        out.line("");
        ledger::show_values(out, &decision.values);
    }
    for lock in &decision.locks {
        out.line(format!("lock   {}", locks::one(lock)));
    }
    if let Some(event) = &decision.event {
        out.line(format!(
            "event  {:?} in {}: {}",
            event.event,
            words::printable(&event.stream),
            match event.status {
                DecisionEventStatus::Submitted => "submitted",
                DecisionEventStatus::Published => "published",
                DecisionEventStatus::Invalidated => "invalidated",
            }
        ));
    }
}

fn state(state: DecisionState) -> &'static str {
    match state {
        DecisionState::Waiting => "waiting",
        DecisionState::Open => "open",
        DecisionState::Committed => "committed",
        DecisionState::RolledBack => "rolled back",
        DecisionState::Expired => "expired",
    }
}
