//! `limina check`: may this happen now?

use crate::{Exit, Failed, KeyValueArg, Session, Span, key_values, output::Output, table::Table, words};
use limina_client::types::{LimitStatus, Millis};

/// The arguments of `check`.
#[derive(clap::Args, Debug)]
pub struct CheckArgs {
    /// What happens: KEY=TEXT, or KEY:=JSON for a number or a boolean
    #[arg(value_name = "KEY=VALUE", required = true)]
    key_values: Vec<KeyValueArg>,
    /// How much to take; 0 takes nothing and only looks
    #[arg(long, value_name = "N", default_value_t = 1)]
    hits: u64,
    /// Decide, and take nothing
    #[arg(long)]
    dry_run: bool,
    /// Fail if no rule applies: a misspelt key then switches no limit off
    #[arg(long)]
    require_match: bool,
    /// It has happened already: count it, whatever the limits say
    #[arg(long, conflicts_with = "dry_run")]
    report: bool,
    /// If it is refused, try again for so long, where time alone cures it
    #[arg(long, value_name = "DURATION", conflicts_with_all = ["dry_run", "report"])]
    wait: Option<Span>,
}

pub(crate) async fn run(args: CheckArgs, session: &mut Session) -> Result<Exit, Failed> {
    let key_values = key_values::joined(&args.key_values)?;
    let reply = match args.wait {
        Some(Span(wait)) => {
            let check = session.client.wait(key_values, wait).hits(args.hits);
            if args.require_match { check.require_match().await } else { check.await }
        }
        None => {
            let mut check = session.client.check(key_values).hits(args.hits);
            if args.dry_run {
                check = check.dry_run();
            }
            if args.require_match {
                check = check.require_match();
            }
            if args.report {
                check = check.report();
            }
            check.await
        }
    }?;
    let out = &mut session.out;
    out.reply(&reply, |out, reply| show_limits(out, &reply.limits));
    if out.is_table() {
        out.say(verdict(reply.allowed, args.report, reply.limits.is_empty(), reply.retry_after_ms));
    }
    Ok(Exit::answer(reply.allowed))
}

fn verdict(allowed: bool, report: bool, unlimited: bool, retry_after: Option<Millis>) -> String {
    match (allowed, retry_after) {
        (true, _) if unlimited => format!("{}: no rule applies", words::green("allowed")),
        (true, _) => words::green("allowed"),
        (false, _) if report => format!("{}: it is counted, beyond a limit", words::red("over the limit")),
        (false, Some(after)) => {
            format!("{}: try again in {}", words::red("refused"), words::duration(after.0))
        }
        (false, None) => format!("{}: time alone does not cure it", words::red("refused")),
    }
}

/// The limits that applied.
pub(crate) fn show_limits(out: &mut Output, limits: &[LimitStatus]) {
    let mut table = Table::new(&["RULE", "GROUP", ">LIMIT", ">USED", ">LEFT", ">RESET IN", ">WAITING", ""]);
    for limit in limits {
        let rule = match &limit.override_name {
            Some(name) => format!("{} ({})", rule_name(limit), words::printable(name)),
            None => rule_name(limit),
        };
        let note = match (limit.exceeded, limit.shadow) {
            (true, false) => "refuses",
            (true, true) => "would refuse (shadow)",
            (false, true) => "shadow",
            (false, false) => "",
        };
        let cells = [
            rule,
            key_values::shown(&limit.group),
            words::limit(limit.limit),
            words::number(limit.used),
            limit.remaining.map_or("-".to_owned(), words::number),
            limit.reset_ms.map_or("-".to_owned(), |reset| words::duration(reset.0)),
            words::number(limit.waiting as u64),
            note.to_owned(),
        ];
        if limit.exceeded && !limit.shadow { table.red_row(cells) } else { table.row(cells) }
    }
    out.table(&table);
}

/// The rule. A limit that a request itself brought, as Envoy's can, has none.
pub(crate) fn rule_name(limit: &LimitStatus) -> String {
    limit.rule.as_ref().map_or("(of the request)".to_owned(), |rule| words::printable(rule))
}
