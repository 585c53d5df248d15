//! `limina locks`: who holds which lock.

use crate::{
    Exit, Failed, KeyValueArg, ListLimit, Session, key_values, output::Output, table::Table, watch::Watch,
    words,
};
use limina_client::types::{HeldLock, Lock};
use serde_json::json;

/// The commands of `locks`.
#[derive(clap::Subcommand, Debug)]
pub enum LocksCommand {
    /// List who holds locks, and how many wait
    Ls {
        /// Only locks with these key-values
        #[arg(value_name = "KEY=VALUE")]
        key_values: Vec<KeyValueArg>,
        /// The paging of the list
        #[command(flatten)]
        limit: ListLimit,
        /// Whether to repeat
        #[command(flatten)]
        watch: Watch,
    },
    /// Release somebody else's lock by force
    Release {
        /// The grant
        #[arg(value_name = "LOCK_ID")]
        lock_id: String,
        /// Confirm it; without this flag the command only shows what it would end
        #[arg(long)]
        yes: bool,
    },
}

pub(crate) async fn run(command: LocksCommand, session: &mut Session) -> Result<Exit, Failed> {
    match command {
        LocksCommand::Ls { key_values, limit, watch } => {
            let wanted = key_values::joined(&key_values)?;
            watch
                .run(session, async |session| {
                    let locks = session.client.locks();
                    let pages =
                        if wanted.is_empty() { locks.list() } else { locks.query(&json!({"where": wanted})) };
                    session.out.list(pages, limit, show).await?;
                    Ok(Exit::Yes)
                })
                .await
        }
        LocksCommand::Release { lock_id, yes } => {
            let lock = session.client.locks().get(&lock_id).await?;
            if !yes {
                show(&mut session.out, &[lock.into_inner()]);
                session.out.flush();
                return Err(Failed::needs_yes("this releases the lock while its holder may rely on it"));
            }
            session.client.locks().force_release(&lock_id).await?;
            session.out.say(format!("released {}", words::printable(&lock_id)));
            Ok(Exit::Yes)
        }
    }
}

fn show(out: &mut Output, locks: &[Lock]) {
    let columns = ["LOCK ID", "OWNER", "LOCKS", ">HELD FOR", ">EXPIRES IN", ">WAITING", ">FENCING TOKEN"];
    let mut table = Table::new(&columns);
    for lock in locks {
        table.row([
            match &lock.operation_id {
                Some(operation) => format!("{} of {}", lock.lock_id, words::printable(operation)),
                None => lock.lock_id.to_string(),
            },
            words::or_dash(lock.owner.as_ref()),
            lock.locks.iter().map(one).collect::<Vec<_>>().join("; "),
            words::duration(lock.held_ms.0),
            words::duration(lock.expires_in_ms.0),
            words::number(lock.waiting as u64),
            lock.fencing_token.to_string(),
        ]);
    }
    out.table(&table);
    if locks.is_empty() {
        out.say("no locks");
    }
}

/// A lock with its mode, unless that is the usual one.
pub(crate) fn one(lock: &HeldLock) -> String {
    let mode = match lock.mode {
        limina_api::locks::Mode::Exclusive => "",
        limina_api::locks::Mode::Shared => " (shared)",
    };
    format!("{}{mode}", key_values::shown(&lock.key_values))
}
