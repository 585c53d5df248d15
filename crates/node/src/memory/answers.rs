//! The memory of large answers, before they exist.

use limina_engine::{Command, decisions, events, ledger, limiter, locks};

/// The memory of one item of a page, as a rule.
const ITEM: usize = 4 << 10;
/// The memory of a page, which ends at a size, and of another answer whose size is not known before.
const PAGE: usize = 512 << 10;

/// What to reserve for an answer before the command is executed. A shard executes thousands of requests in one round, and their
/// answers wait until each client's task encodes its own. 0 means that the answer is small.
pub(super) fn answer_bytes(command: &Command) -> usize {
    let items = match command {
        Command::ListNamespaces(page) => page.limit(),
        Command::ListAudit(_) | Command::ListShardAudit(_) => return PAGE,
        Command::Ledger(command) => match command {
            ledger::Command::ListLimits(page)
            | ledger::Command::ListLimitsByUse(page)
            | ledger::Command::ListOperations { page, .. } => page.limit(),
            ledger::Command::ListEntries { page, .. } => page.limit(),
            _ => 0,
        },
        Command::Limiter(command) => match command {
            limiter::Command::ListRules { page, .. } | limiter::Command::ListOverrides { page, .. } => {
                page.limit()
            }
            limiter::Command::ListLeases { page, .. } => page.limit(),
            limiter::Command::ListGroups { page, .. } => page.limit(),
            limiter::Command::ListCounters { page, .. } => page.limit(),
            limiter::Command::ListRuleSets(page) => page.limit(),
            limiter::Command::Match(_)
            | limiter::Command::GetRuleSet(_)
            | limiter::Command::PlanRuleSet(_) => return PAGE,
            _ => 0,
        },
        Command::Locks(locks::Command::List { page, .. }) => page.limit(),
        Command::Events(command) => match command {
            events::Command::List(page) => page.limit(),
            events::Command::Incubating(_) | events::Command::Snapshot(_) => return PAGE,
            _ => 0,
        },
        Command::Decisions(decisions::Command::List { page, .. }) => page.limit(),
        Command::Decisions(decisions::Command::Batch(items)) => return items.len().saturating_mul(ITEM),
        Command::Locks(_) | Command::Decisions(_) | Command::DeleteNamespace => 0,
    };
    items.saturating_mul(ITEM).min(PAGE)
}
