//! `limina rules set` and `limina rules rm`: one rule, without a file.

use super::rules;
use crate::{
    Exit, Failed, Session, Span,
    key_values::{self, Written},
    or_none::OrNone,
    words,
};
use limina_api::limiter::WindowType;
use limina_client::{Error, types::Rule};
use serde_json::{Map, Value, json};
use std::str::FromStr;

/// The settings of `rules set`. Those that are not given stay as they are.
#[derive(clap::Args, Debug)]
pub struct RuleSettings {
    /// The rule
    #[arg(value_name = "RULE")]
    name: String,
    /// How much may be in use, or happen in the window; 0 lets nothing pass, `none` removes the limit
    #[arg(long, value_name = "N")]
    limit: Option<OrNone<u64>>,
    /// The keys whose values make groups, each with a limit of its own
    #[arg(long, value_name = "KEY,…", value_delimiter = ',')]
    group_by: Vec<String>,
    /// One limit for all together, without groups
    #[arg(long, conflicts_with = "group_by")]
    for_all: bool,
    /// Count in any span of this length
    #[arg(long, value_name = "DURATION", group = "window")]
    sliding: Option<Span>,
    /// Count in consecutive spans of this length
    #[arg(long, value_name = "DURATION", group = "window")]
    fixed: Option<Span>,
    /// A bucket, which is refilled with the whole limit in this time
    #[arg(long, value_name = "DURATION", group = "window")]
    bucket: Option<Span>,
    /// Count what is in use until it is given back, without a window
    #[arg(long, group = "window")]
    in_use: bool,
    /// The most that a bucket can contain; `none`: as much as the limit
    #[arg(long, value_name = "N", conflicts_with_all = ["sliding", "fixed", "in_use"])]
    burst: Option<OrNone<u64>>,
    /// Only key-values that satisfy this: KEY=TEXT, KEY:=3, KEY:='{"in": ["a", "b"]}'; `none`: all
    #[arg(long = "where", value_name = "KEY=VALUE")]
    conditions: Vec<Condition>,
    /// Count and report, and never refuse; `--shadow=false` refuses again
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    shadow: Option<bool>,
    /// Whether answers wait for the disk
    #[arg(long, value_name = "WORD", value_parser = ["durable", "relaxed"])]
    durability: Option<String>,
    /// Notes for people; an empty text removes them
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Confirm that counts start empty; without this flag the command only shows the rule
    #[arg(long)]
    yes: bool,
}

/// A condition on one key, or `none`.
#[derive(Debug, Clone, PartialEq)]
enum Condition {
    None,
    On(String, Value),
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Condition, String> {
        if text == "none" {
            return Ok(Condition::None);
        }
        let (key, value) = match key_values::split(text)? {
            (key, Written::Text(text)) => (key, text.into()),
            (key, Written::Json(json)) => {
                (key, serde_json::from_str(json).map_err(|error| format!("{json:?} is not JSON: {error}"))?)
            }
        };
        Ok(Condition::On(key, value))
    }
}

/// Creates the rule, or changes the given fields.
pub(crate) async fn set(settings: RuleSettings, session: &mut Session) -> Result<Exit, Failed> {
    let client = session.client.clone();
    let rules = client.rules();
    let name = &settings.name;
    // Asked first, because a change of a rule that does not exist would be listed among the refusals.
    let found = match rules.get(name).await {
        Ok(found) => Some(found.into_inner()),
        Err(Error::NotFound(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let changes = settings.changes(found.as_ref())?;
    let changed = match &found {
        None => {
            if !(changes.contains_key("limit") && changes.contains_key("group_by")) {
                let name = words::printable(name);
                let next = session.command("rules ls");
                return Err(Failed::new(
                    Exit::NotFound,
                    format!(
                        "there is no rule {name}. To create it, give --limit, and --group-by or --for-all; `{next}` lists the rules"
                    ),
                ));
            }
            let mut rule: Map<String, Value> =
                changes.into_iter().filter(|(_, value)| !value.is_null()).collect();
            rule.insert("name".to_owned(), name.as_str().into());
            rules.create(&rule).await
        }
        Some(_) if changes.is_empty() => {
            return Err(Failed::usage(
                "there is nothing to change: `limina rules set --help` lists the settings",
            ));
        }
        Some(found) => {
            if starts_empty(found, &changes) && !settings.yes {
                rules::show(&mut session.out, std::slice::from_ref(found));
                session.out.flush();
                return Err(Failed::needs_yes("the counts of the rule would start empty"));
            }
            match changes.contains_key("group_by") {
                // PATCH cannot change the keys. PUT replaces the whole rule, so it gets the rule as it was read.
                true => rules.put(name, &replaced(found, changes)).await,
                false => rules.patch(name, &changes).await,
            }
        }
    };
    let changed = changed.map_err(|error| session.with_next_step(error))?;
    session.out.reply(&changed, |out, changed| rules::show(out, std::slice::from_ref(changed)));
    session.done(if found.is_none() { "created the rule" } else { "changed the rule" }, name);
    Ok(Exit::Yes)
}

pub(crate) async fn remove(name: &str, yes: bool, session: &mut Session) -> Result<Exit, Failed> {
    let client = session.client.clone();
    let found = client.rules().get(name).await.map_err(|error| session.with_next_step(error))?.into_inner();
    let overrides = words::counted(found.overrides, "override");
    if !yes {
        rules::show(&mut session.out, &[found]);
        session.out.flush();
        return Err(Failed::needs_yes(format!("this deletes the rule with {overrides}")));
    }
    client.rules().delete(name).await.map_err(|error| session.with_next_step(error))?;
    session.out.say(format!("deleted the rule {} with {overrides}", words::printable(name)));
    Ok(Exit::Yes)
}

impl RuleSettings {
    /// The fields that the flags change, as in a PATCH, with the keys of the groups if those change.
    fn changes(&self, found: Option<&Rule>) -> Result<Map<String, Value>, Failed> {
        let mut changes = Map::new();
        let mut set = |field: &str, value: Option<Value>| {
            if let Some(value) = value {
                changes.insert(field.to_owned(), value);
            }
        };
        set("limit", self.limit.map(|OrNone(limit)| limit.map_or(json!(-1), Value::from)));
        set("group_by", self.keys(found));
        set("window", self.window(found)?);
        set("selection", self.selection()?);
        set("shadow", self.shadow.map(Value::from));
        set("durability", self.durability.as_deref().map(Value::from));
        let description = |text: &String| if text.is_empty() { Value::Null } else { text.as_str().into() };
        set("description", self.description.as_ref().map(description));
        Ok(changes)
    }

    /// The keys of the groups, unless the rule has these keys already.
    fn keys(&self, found: Option<&Rule>) -> Option<Value> {
        if self.group_by.is_empty() && !self.for_all {
            return None;
        }
        let same = |rule: &Rule| {
            let mut old: Vec<&str> = rule.group_by.iter().map(AsRef::as_ref).collect();
            let mut new: Vec<&str> = self.group_by.iter().map(AsRef::as_ref).collect();
            old.sort();
            new.sort();
            old == new
        };
        if found.is_some_and(same) { None } else { Some(json!(self.group_by)) }
    }

    fn window(&self, found: Option<&Rule>) -> Result<Option<Value>, Failed> {
        let given = [
            (self.sliding, WindowType::Sliding),
            (self.fixed, WindowType::Fixed),
            (self.bucket, WindowType::Bucket),
        ];
        let given = given.into_iter().find_map(|(span, kind)| Some((kind, span?.0.as_millis() as u64)));
        let old = found.and_then(|rule| rule.window).filter(|window| window.kind == WindowType::Bucket);
        let (kind, per_ms) = match (given, self.burst, old) {
            _ if self.in_use => return Ok(Some(Value::Null)),
            (Some(given), _, _) => given,
            (None, None, _) => return Ok(None),
            (None, Some(_), Some(old)) => (old.kind, old.per_ms.0),
            (None, Some(_), None) => {
                return Err(Failed::usage("only a bucket has a burst: add --bucket DURATION"));
            }
        };
        let mut window = json!({"type": kind, "per_ms": per_ms});
        let burst = match self.burst {
            Some(OrNone(burst)) => burst,
            None if kind == WindowType::Bucket => old.and_then(|old| old.burst),
            None => None,
        };
        if let Some(burst) = burst {
            window["burst"] = burst.into();
        }
        Ok(Some(window))
    }

    fn selection(&self) -> Result<Option<Value>, Failed> {
        let mut selection = Map::new();
        for condition in &self.conditions {
            match condition {
                Condition::None if self.conditions.len() == 1 => return Ok(Some(Value::Null)),
                Condition::None => return Err(Failed::usage("--where none stands alone")),
                Condition::On(key, value) => {
                    if selection.insert(key.clone(), value.clone()).is_some() {
                        return Err(Failed::usage(format!("the key {key:?} is given twice")));
                    }
                }
            }
        }
        Ok((!selection.is_empty()).then(|| selection.into()))
    }
}

/// Whether the rule forgets what it has counted: with another window, and with other groups.
fn starts_empty(found: &Rule, changes: &Map<String, Value>) -> bool {
    let Some(old) = found.window else {
        return changes.get("window").is_some_and(|window| !window.is_null());
    };
    let other_window = |window: &Value| {
        !window.is_null() && (window["type"] != json!(old.kind) || window["per_ms"] != old.per_ms.0)
    };
    let other_groups = changes.contains_key("group_by") && changes.get("window") != Some(&Value::Null);
    other_groups || changes.get("window").is_some_and(other_window)
}

/// The rule with these changes.
fn replaced(found: &Rule, changes: Map<String, Value>) -> Value {
    let mut rule = json!(found);
    for (field, value) in changes {
        rule[field] = value;
    }
    if let Some(fields) = rule.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    rule
}
