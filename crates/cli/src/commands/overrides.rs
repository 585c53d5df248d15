//! `limina overrides`: other limits for exact values.

use super::rules;
use crate::{
    Exit, Failed, KeyValueArg, ListLimit, Session, key_values, or_none::OrNone, watch::Watch, words,
};
use limina_client::Error;
use serde_json::{Map, Value, json};

/// The commands of `overrides`.
#[derive(clap::Subcommand, Debug)]
pub enum OverridesCommand {
    /// List the overrides of a rule
    Ls {
        /// The rule
        #[arg(value_name = "RULE")]
        rule: String,
        /// How much of the list
        #[command(flatten)]
        limit: ListLimit,
        /// Whether to repeat
        #[command(flatten)]
        watch: Watch,
    },
    /// Create an override, or change the given settings of one
    Set(OverrideSettings),
    /// Delete an override: the limit of the rule applies again
    Rm {
        /// The rule
        #[arg(value_name = "RULE")]
        rule: String,
        /// The override
        #[arg(value_name = "OVERRIDE")]
        name: String,
        /// Confirm it; without this flag the command only shows what it would delete
        #[arg(long)]
        yes: bool,
    },
}

/// The settings of `overrides set`. Those that are not given stay as they are.
#[derive(clap::Args, Debug)]
pub struct OverrideSettings {
    /// The rule
    #[arg(value_name = "RULE")]
    rule: String,
    /// The override: a name of yours
    #[arg(value_name = "OVERRIDE")]
    name: String,
    /// The values that it is for: KEY=TEXT, or KEY:=JSON for a number or a boolean; all keys of the rule's groups, and more if wished
    #[arg(value_name = "KEY=VALUE")]
    key_values: Vec<KeyValueArg>,
    /// The limit for these values; 0 lets nothing pass, `none` removes the limit
    #[arg(long, value_name = "N")]
    limit: Option<OrNone<u64>>,
    /// The most that a bucket can contain; `none`: as much as the limit
    #[arg(long, value_name = "N")]
    burst: Option<OrNone<u64>>,
}

pub(crate) async fn run(command: OverridesCommand, session: &mut Session) -> Result<Exit, Failed> {
    match command {
        OverridesCommand::Ls { rule, limit, watch } => {
            watch
                .run(session, async |session| {
                    let overrides = session.client.overrides(&rule).list();
                    session
                        .out
                        .list(overrides, limit, |out, overrides| {
                            rules::show_overrides(out, overrides);
                            if overrides.is_empty() {
                                out.say("no overrides");
                            }
                        })
                        .await?;
                    Ok(Exit::Yes)
                })
                .await
        }
        OverridesCommand::Set(settings) => set(settings, session).await,
        OverridesCommand::Rm { rule, name, yes } => remove(&rule, &name, yes, session).await,
    }
}

/// Creates the override, or changes the given fields.
async fn set(settings: OverrideSettings, session: &mut Session) -> Result<Exit, Failed> {
    let client = session.client.clone();
    let overrides = client.overrides(&settings.rule);
    let name = &settings.name;
    let mut changes = settings.changes()?;
    // Asked first, because a change of an override that does not exist would be listed among the refusals.
    let found = match overrides.get(name).await {
        Ok(_) => true,
        Err(error @ Error::NotFound(_)) if error.code() == Some("OverrideNotFound") => false,
        Err(error) => return Err(session.with_next_step(error)),
    };
    let changed = match found {
        true if changes.is_empty() => {
            let next = "`limina overrides set --help` lists the settings";
            return Err(Failed::usage(format!("there is nothing to change: {next}")));
        }
        true => overrides.patch(name, &changes).await,
        false => {
            if !(changes.contains_key("limit") && changes.contains_key("key_values")) {
                let (name, rule) = (words::printable(name), words::printable(&settings.rule));
                let why = format!("the rule {rule} has no override {name}");
                let next = "to create it, give --limit, and KEY=VALUE for all keys of the rule's groups";
                return Err(Failed::new(Exit::NotFound, format!("{why}; {next}")));
            }
            changes.retain(|_, value| !value.is_null());
            changes.insert("name".to_owned(), name.as_str().into());
            overrides.create(&changes).await
        }
    };
    let changed = changed.map_err(|error| session.with_next_step(error))?;
    session.out.reply(&changed, |out, changed| rules::show_overrides(out, std::slice::from_ref(changed)));
    session.done(if found { "changed the override" } else { "created the override" }, name);
    Ok(Exit::Yes)
}

async fn remove(rule: &str, name: &str, yes: bool, session: &mut Session) -> Result<Exit, Failed> {
    let client = session.client.clone();
    let overrides = client.overrides(rule);
    let found = overrides.get(name).await.map_err(|error| session.with_next_step(error))?.into_inner();
    let shown = key_values::shown(&found.key_values);
    if !yes {
        rules::show_overrides(&mut session.out, &[found]);
        session.out.flush();
        return Err(Failed::needs_yes(format!(
            "this deletes the override: the limit of the rule then applies to {shown}"
        )));
    }
    overrides.delete(name).await.map_err(|error| session.with_next_step(error))?;
    let (name, rule) = (words::printable(name), words::printable(rule));
    session.out.say(format!("deleted the override {name} of the rule {rule}, which was for {shown}"));
    Ok(Exit::Yes)
}

impl OverrideSettings {
    /// The fields that the arguments change, as in a PATCH.
    fn changes(&self) -> Result<Map<String, Value>, Failed> {
        let mut changes = Map::new();
        if !self.key_values.is_empty() {
            changes.insert("key_values".to_owned(), json!(key_values::joined(&self.key_values)?));
        }
        if let Some(OrNone(limit)) = self.limit {
            changes.insert("limit".to_owned(), limit.map_or(json!(-1), Value::from));
        }
        if let Some(OrNone(burst)) = self.burst {
            changes.insert("burst".to_owned(), burst.into());
        }
        Ok(changes)
    }
}
