//! `limina leases`: who holds slots.

use crate::{
    Exit, Failed, ListLimit, Session, key_values, output::Output, table::Table, watch::Watch, words,
};
use limina_client::types::Lease;

/// The arguments of `leases`.
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct LeasesArgs {
    #[command(subcommand)]
    command: Option<LeasesCommand>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(clap::Subcommand, Debug)]
enum LeasesCommand {
    /// List who holds slots (also the default without a subcommand)
    Ls(ListArgs),
    /// End somebody else's lease by force
    Release {
        /// The lease
        #[arg(value_name = "LEASE_ID")]
        lease_id: String,
        /// Confirm it; without this flag the command only shows what it would end
        #[arg(long)]
        yes: bool,
    },
}

#[derive(clap::Args, Debug)]
struct ListArgs {
    /// Only those of this owner
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    #[command(flatten)]
    limit: ListLimit,
    #[command(flatten)]
    watch: Watch,
}

pub(crate) async fn run(args: LeasesArgs, session: &mut Session) -> Result<Exit, Failed> {
    let list = match args.command {
        Some(LeasesCommand::Release { lease_id, yes }) => {
            let lease = session.client.leases().get(&lease_id).await?;
            if !yes {
                show(&mut session.out, &[lease.into_inner()]);
                session.out.flush();
                return Err(Failed::needs_yes("this ends the lease while its holder may rely on it"));
            }
            session.client.leases().force_release(&lease_id).await?;
            session.out.say(format!("released {}", words::printable(&lease_id)));
            return Ok(Exit::Yes);
        }
        Some(LeasesCommand::Ls(list)) => list,
        None => args.list,
    };
    list.watch
        .run(session, async |session| {
            let mut leases = session.client.leases().list();
            if let Some(owner) = &list.owner {
                leases = leases.filter("owner", owner);
            }
            session.out.list(leases, list.limit, show).await?;
            Ok(Exit::Yes)
        })
        .await
}

fn show(out: &mut Output, leases: &[Lease]) {
    let mut table =
        Table::new(&["LEASE", "OWNER", "KEY-VALUES", ">HITS", ">HELD FOR", ">EXPIRES IN", ">FENCING TOKEN"]);
    for lease in leases {
        table.row([
            match &lease.operation_id {
                Some(operation) => format!("{} of {}", lease.lease_id, words::printable(operation)),
                None => lease.lease_id.to_string(),
            },
            words::or_dash(lease.owner.as_deref()),
            key_values::shown(&lease.key_values),
            words::number(lease.hits),
            words::duration(lease.held_ms.0),
            words::duration(lease.expires_in_ms.0),
            lease.fencing_token.to_string(),
        ]);
    }
    out.table(&table);
    if leases.is_empty() {
        out.say("no leases");
    }
}
