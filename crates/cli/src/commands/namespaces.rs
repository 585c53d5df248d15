//! `limina ns`: the namespaces of the server.

use crate::{Exit, Failed, ListLimit, Session, table::Table, watch::Watch, words};

/// The arguments of `ns`.
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct NsArgs {
    #[command(subcommand)]
    command: Option<NsCommand>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(clap::Subcommand, Debug)]
enum NsCommand {
    /// List the namespaces (also the default without a subcommand)
    Ls(ListArgs),
    /// Delete a namespace with all that it holds
    Rm {
        /// The namespace
        #[arg(value_name = "NAME")]
        name: String,
        /// Confirm it; without this flag the command only shows what it would delete
        #[arg(long)]
        yes: bool,
    },
}

#[derive(clap::Args, Debug)]
struct ListArgs {
    #[command(flatten)]
    limit: ListLimit,
    #[command(flatten)]
    watch: Watch,
}

pub(crate) async fn run(args: NsArgs, session: &mut Session) -> Result<Exit, Failed> {
    let list = match args.command {
        Some(NsCommand::Rm { name, yes }) => {
            if !yes {
                return Err(Failed::needs_yes(format!(
                    "this deletes the namespace {name:?} with its rules, locks, streams and ledger"
                )));
            }
            session.client.with_namespace(&name).delete_namespace().await?;
            session.out.say(format!("deleted {}", words::printable(&name)));
            return Ok(Exit::Yes);
        }
        Some(NsCommand::Ls(list)) => list,
        None => args.list,
    };
    list.watch
        .run(session, async |session| {
            let namespaces = session.client.namespaces();
            session
                .out
                .list(namespaces, list.limit, |out, namespaces| {
                    let mut table = Table::new(&["NAMESPACE", ">POSITION"]);
                    for namespace in namespaces {
                        table.row([words::printable(&namespace.namespace), namespace.position.to_string()]);
                    }
                    out.table(&table);
                    if namespaces.is_empty() {
                        out.say("no namespaces");
                    }
                })
                .await?;
            Ok(Exit::Yes)
        })
        .await
}
