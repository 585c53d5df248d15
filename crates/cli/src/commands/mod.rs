//! The commands, one file each.

mod audit;
mod check;
mod decisions;
mod events;
mod explain;
mod hold;
mod leases;
mod ledger;
mod ledger_limits;
mod locks;
mod namespaces;
mod overrides;
mod program;
mod refusals;
mod rule_changes;
mod rule_files;
mod rules;
mod status;
mod top;

pub use audit::AuditCommand;
pub use decisions::DecisionsCommand;
pub use events::EventsCommand;
pub use ledger::LedgerCommand;
pub use locks::LocksCommand;
pub use overrides::OverridesCommand;
pub use rules::RulesCommand;

use crate::{Exit, Failed, Session};

/// A command that asks a server.
#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// Ask whether something may happen now, and count it
    Check(check::CheckArgs),
    /// Say in words why something is refused: which rule, who holds it, when it is free
    Explain(explain::ExplainArgs),
    /// Run a program while holding a lock
    Lock(hold::LockArgs),
    /// Run a program while holding slots of the limits that apply
    Lease(hold::LeaseArgs),
    /// Show whether the server is well, and what it holds
    Status(status::StatusArgs),
    /// Watch decisions, refusals, queues and ceilings live
    Top(top::TopArgs),
    /// Show what is being refused, as it happens
    #[command(subcommand)]
    Refusals(refusals::RefusalsCommand),
    /// List namespaces, or delete one
    Ns(namespaces::NsArgs),
    /// Show who changed what
    #[command(subcommand)]
    Audit(AuditCommand),
    /// List who holds slots, or end a lease by force
    Leases(leases::LeasesArgs),
    /// List who holds locks, or release one by force
    #[command(subcommand)]
    Locks(LocksCommand),
    /// Amounts: limits, holds, commits, history
    #[command(subcommand)]
    Ledger(LedgerCommand),
    /// Operations over limits, holds, locks and an event at once
    #[command(subcommand)]
    Decisions(DecisionsCommand),
    /// Streams of events that happen once
    #[command(subcommand, visible_alias = "streams")]
    Events(EventsCommand),
    /// Other limits than the rule's, for exact values
    #[command(subcommand)]
    Overrides(OverridesCommand),
    /// Rules of the limiter. The binary adds `rules check`, which needs no server.
    #[command(skip)]
    Rules(RulesCommand),
}

impl Command {
    pub(crate) async fn run(self, session: &mut Session) -> Result<Exit, Failed> {
        match self {
            Command::Check(args) => check::run(args, session).await,
            Command::Explain(args) => explain::run(args, session).await,
            Command::Lock(args) => hold::lock(args, session).await,
            Command::Lease(args) => hold::lease(args, session).await,
            Command::Status(args) => status::run(args, session).await,
            Command::Top(args) => top::run(args, session).await,
            Command::Refusals(command) => refusals::run(command, session).await,
            Command::Ns(args) => namespaces::run(args, session).await,
            Command::Audit(command) => audit::run(command, session).await,
            Command::Leases(args) => leases::run(args, session).await,
            Command::Locks(command) => locks::run(command, session).await,
            Command::Ledger(command) => ledger::run(command, session).await,
            Command::Decisions(command) => decisions::run(command, session).await,
            Command::Events(command) => events::run(command, session).await,
            Command::Overrides(command) => overrides::run(command, session).await,
            Command::Rules(command) => rules::run(command, session).await,
        }
    }
}
