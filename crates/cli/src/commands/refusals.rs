//! `limina refusals tail`: what is being refused.

use crate::{Exit, Failed, Session, key_values, output::Output, words};
use limina_client::types::Refusal;

const FAMILIES: [&str; 5] = ["limiter", "locks", "events", "ledger", "decisions"];

/// The commands of `refusals`.
#[derive(clap::Subcommand, Debug)]
pub enum RefusalsCommand {
    /// Follow refusals, from the last ones on that the server remembers
    Tail {
        /// Of all namespaces
        #[arg(short = 'A', long)]
        all_namespaces: bool,
        /// Only those of this rule
        #[arg(long, value_name = "RULE")]
        rule: Option<String>,
        /// Only those of this family: limiter, locks, events, ledger or decisions
        #[arg(long, value_name = "FAMILY", value_parser = FAMILIES, hide_possible_values = true)]
        family: Option<String>,
    },
}

pub(crate) async fn run(command: RefusalsCommand, session: &mut Session) -> Result<Exit, Failed> {
    let RefusalsCommand::Tail { all_namespaces, rule, family } = command;
    let client = session.client.clone();
    let mut refusals = if all_namespaces { client.server().refusals() } else { client.refusals() };
    while let Some(refusal) = session.out.unless_closed(refusals.next()).await {
        let refusal = refusal?;
        let wanted = rule.as_ref().is_none_or(|rule| refusal.rule.as_deref() == Some(rule))
            && family.as_ref().is_none_or(|family| refusal.family == *family);
        if wanted {
            session.out.reply(&refusal, |out, refusal| show(out, refusal, all_namespaces));
            session.out.flush();
        }
    }
    Ok(Exit::Yes)
}

fn show(out: &mut Output, refusal: &Refusal, with_namespace: bool) {
    let mut line =
        format!("{}  {:9}  {}", words::time(refusal.time), refusal.family, words::red(&refusal.code));
    let mut add = |name: &str, value: Option<&str>| {
        if let Some(value) = value {
            line.push_str(&format!("  {name} {}", words::bold(&words::printable(value))));
        }
    };
    add("in", with_namespace.then_some(&refusal.namespace));
    add("rule", refusal.rule.as_deref());
    add("limit", refusal.limit_name.as_deref());
    add("stream", refusal.stream.as_deref());
    add("operation", refusal.operation_id.as_deref());
    if let Some(key_values) = &refusal.key_values {
        line.push_str(&format!("  {}", key_values::shown(key_values)));
    }
    out.line(line);
}
