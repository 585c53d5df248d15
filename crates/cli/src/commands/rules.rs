//! `limina rules`: what limits what, and changes of it.

use super::{
    rule_changes::{self, RuleSettings},
    rule_files::{self, FileArgs},
};
use crate::{
    Exit, Failed, ListLimit, Session, key_values, output::Output, table::Table, watch::Watch, words,
};
use limina_api::limiter::{Durability, Limit, Window, WindowType};
use limina_client::types::{Groups, Override, Rule};

/// The commands of `rules` that ask a server.
#[derive(clap::Subcommand, Debug)]
pub enum RulesCommand {
    /// List the rules
    Ls {
        /// How much of the list
        #[command(flatten)]
        limit: ListLimit,
        /// Whether to repeat
        #[command(flatten)]
        watch: Watch,
    },
    /// Show a rule with its overrides
    Show {
        /// The rule
        #[arg(value_name = "RULE")]
        name: String,
        /// Whether to repeat
        #[command(flatten)]
        watch: Watch,
    },
    /// Show the groups of a rule that use the most
    Groups {
        /// The rule
        #[arg(value_name = "RULE")]
        name: String,
        /// The number of groups to show, at most 1,000
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: u32,
        /// Whether to repeat
        #[command(flatten)]
        watch: Watch,
    },
    /// Create a rule, or change the given settings of one
    Set(Box<RuleSettings>),
    /// Delete a rule with its overrides
    Rm {
        /// The rule
        #[arg(value_name = "RULE")]
        name: String,
        /// Confirm it; without this flag the command only shows what it would delete
        #[arg(long)]
        yes: bool,
    },
    /// Show what `apply` would change, and which counts would start empty; exits with 3 if something differs
    Diff(FileArgs),
    /// Make a rule set exactly what a file says, in one step
    Apply {
        /// The file
        #[command(flatten)]
        file: FileArgs,
        /// Also delete rules, and start counts empty
        #[arg(long)]
        yes: bool,
    },
}

pub(crate) async fn run(command: RulesCommand, session: &mut Session) -> Result<Exit, Failed> {
    match command {
        RulesCommand::Ls { limit, watch } => {
            watch
                .run(session, async |session| {
                    let rules = session.client.rules().list();
                    session.out.list(rules, limit, show).await?;
                    Ok(Exit::Yes)
                })
                .await
        }
        RulesCommand::Show { name, watch } => {
            watch.run(session, async |session| show_one(session, &name).await).await
        }
        RulesCommand::Groups { name, limit, watch } => {
            watch
                .run(session, async |session| {
                    let groups = session.client.rules().groups(&name, limit).await?;
                    session.out.reply(&groups, show_groups);
                    Ok(Exit::Yes)
                })
                .await
        }
        RulesCommand::Set(settings) => rule_changes::set(*settings, session).await,
        RulesCommand::Rm { name, yes } => rule_changes::remove(&name, yes, session).await,
        RulesCommand::Diff(file) => rule_files::diff(&file, session).await,
        RulesCommand::Apply { file, yes } => rule_files::apply(&file, yes, session).await,
    }
}

pub(crate) fn show(out: &mut Output, rules: &[Rule]) {
    let columns = ["RULE", ">LIMIT", "WINDOW", "FOR EACH", "WHERE", ">OVERRIDES", "SET", "NOTES"];
    let mut table = Table::new(&columns);
    for rule in rules {
        let mut notes = Vec::new();
        if rule.shadow {
            notes.push("shadow");
        }
        if rule.window.is_some() && matches!(rule.durability, Durability::Durable) {
            notes.push("durable");
        }
        table.row([
            words::printable(&rule.name),
            words::limit(rule.limit),
            rule.window.as_ref().map_or("in use".to_owned(), window),
            keys(rule),
            selection(rule),
            words::number(rule.overrides),
            words::or_dash(rule.managed_by.as_deref()),
            notes.join(", "),
        ]);
    }
    out.table(&table);
    if rules.is_empty() {
        out.say("no rules");
    }
}

async fn show_one(session: &mut Session, name: &str) -> Result<Exit, Failed> {
    let rule = session.client.rules().get(name).await?;
    if !session.out.is_table() {
        session.out.line(rule.json());
        return Ok(Exit::Yes);
    }
    let out = &mut session.out;
    out.line(words::bold(&words::printable(&rule.name)));
    if let Some(description) = &rule.description {
        out.line(words::printable(description));
    }
    out.line(format!("It allows {}.", in_words(&rule)));
    if !selection(&rule).is_empty() {
        out.line(format!("It applies where {}.", selection(&rule)));
    }
    if rule.shadow {
        out.line("It is a shadow: it counts and reports, and never refuses.");
    }
    let durability = match rule.durability {
        Durability::Durable => "Its answers are durable.",
        Durability::Relaxed => "Its answers are relaxed: they do not wait for the disk.",
    };
    out.line(durability);
    if let Some(set) = &rule.managed_by {
        out.line(format!("The rule set {} manages it.", words::printable(set)));
    }
    let overrides = session.client.overrides(name).list();
    session
        .out
        .list(overrides, ListLimit::default(), |out, overrides| {
            if !overrides.is_empty() {
                out.line("");
            }
            show_overrides(out, overrides);
        })
        .await?;
    Ok(Exit::Yes)
}

pub(crate) fn show_overrides(out: &mut Output, overrides: &[Override]) {
    let mut table = Table::new(&["OVERRIDE", "KEY-VALUES", ">LIMIT", ">BURST"]);
    for one in overrides {
        table.row([
            words::printable(&one.name),
            key_values::shown(&one.key_values),
            words::limit(one.limit),
            one.burst.map_or("-".to_owned(), words::number),
        ]);
    }
    out.table(&table);
}

fn show_groups(out: &mut Output, groups: &Groups) {
    let mut table =
        Table::new(&["GROUP", "OVERRIDE", ">LIMIT", ">USED", ">LEFT", ">RESET IN", ">WAITING", "USE"]);
    for group in &groups.items {
        table.row([
            if group.group.is_empty() { "(all)".to_owned() } else { key_values::shown(&group.group) },
            words::or_dash(group.override_name.as_deref()),
            words::limit(group.limit),
            words::number(group.used),
            group.remaining.map_or("-".to_owned(), words::number),
            group.reset_ms.map_or("-".to_owned(), |reset| words::duration(reset.0)),
            words::number(group.waiting as u64),
            match group.limit {
                Limit::Unlimited => String::new(),
                Limit::AtMost(limit) => words::bar(group.used.into(), limit.into()),
            },
        ]);
    }
    out.table(&table);
    if groups.items.is_empty() {
        out.say("no group of this rule counts anything");
    }
    if !groups.complete {
        out.say("The rule has more groups than were looked at: others may use more.");
    }
}

/// `100 in any 1m for each tenant, route`.
pub(crate) fn in_words(rule: &Rule) -> String {
    let limit = words::limit(rule.limit);
    let what = match (&rule.window, rule.limit) {
        (_, Limit::Unlimited) => "everything".to_owned(),
        (_, Limit::AtMost(0)) => "nothing".to_owned(),
        (None, _) => format!("{limit} in use at the same time"),
        (Some(window), _) => {
            let per = words::setting(window.per_ms.0);
            match window.kind {
                WindowType::Fixed => format!("{limit} in each fixed window of {per}"),
                WindowType::Sliding => format!("{limit} in any {per}"),
                WindowType::Bucket => {
                    let burst = window.burst.map_or(limit.clone(), words::number);
                    format!("{limit} per {per}, refilled evenly, and at most {burst} at once")
                }
            }
        }
    };
    if rule.group_by.is_empty() {
        format!("{what}, for all together")
    } else {
        format!("{what}, for each {}", keys(rule).replace(", ", " and "))
    }
}

fn window(window: &Window) -> String {
    let per = words::setting(window.per_ms.0);
    match (&window.kind, window.burst) {
        (WindowType::Fixed, _) => format!("fixed {per}"),
        (WindowType::Sliding, _) => format!("sliding {per}"),
        (WindowType::Bucket, Some(burst)) => format!("bucket {per}, burst {}", words::number(burst)),
        (WindowType::Bucket, None) => format!("bucket {per}"),
    }
}

fn keys(rule: &Rule) -> String {
    rule.group_by.iter().map(|key| words::printable(key)).collect::<Vec<_>>().join(", ")
}

/// The conditions as the API writes them, without the outer braces.
fn selection(rule: &Rule) -> String {
    let json = serde_json::to_string(&rule.selection).unwrap_or_default();
    words::printable(json.strip_prefix('{').and_then(|json| json.strip_suffix('}')).unwrap_or(&json))
}
