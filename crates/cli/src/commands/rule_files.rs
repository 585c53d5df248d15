//! `limina rules diff` and `limina rules apply`: a file against the rule sets of a server.

use crate::{Exit, Failed, Format, Session, output::Output, words};
use limina_client::{
    Reply,
    types::{RuleField, RuleSetChanges},
};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// The file, and the set that it describes.
#[derive(clap::Args, Debug)]
pub struct FileArgs {
    /// Rules: TOML as the server's rules file, with namespaces; or JSON, `{"rules": […]}`, for the namespace of -n
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The rule set [default: the file's name without its extension]
    #[arg(long, value_name = "NAME")]
    set: Option<String>,
}

/// The whole of a rule set in one namespace.
struct Target {
    namespace: String,
    body: Value,
}

impl FileArgs {
    fn set(&self) -> Result<String, Failed> {
        let stem = || self.file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        self.set.clone().or_else(stem).ok_or_else(|| Failed::usage("name the rule set with --set"))
    }
}

pub(crate) async fn diff(args: &FileArgs, session: &mut Session) -> Result<Exit, Failed> {
    let (changes, _) = dry_run(args, session).await?;
    let same = changes.iter().all(|(_, changes)| is_empty(changes));
    show(&mut session.out, &args.set()?, &changes);
    if session.out.is_table() && same {
        session.out.say("no difference");
    }
    Ok(Exit::answer(same))
}

pub(crate) async fn apply(args: &FileArgs, yes: bool, session: &mut Session) -> Result<Exit, Failed> {
    let (planned, targets) = dry_run(args, session).await?;
    let set = args.set()?;
    let destroys = planned.iter().any(|(_, changes)| {
        !changes.deleted.is_empty() || changes.changed.iter().any(|change| change.starts_empty)
    });
    if planned.iter().any(|(_, changes)| !changes.conflicts.is_empty()) {
        show(&mut session.out, &set, &planned);
        return Ok(Exit::No);
    }
    if destroys && !yes {
        show(&mut session.out, &set, &planned);
        session.out.flush();
        return Err(Failed::needs_yes("this deletes rules, or lets counts start empty"));
    }
    let mut done = Vec::new();
    for target in targets {
        let client = session.client.with_namespace(&target.namespace);
        done.push((target.namespace, client.rule_sets().put(&set, &target.body).await?));
    }
    show(&mut session.out, &set, &done);
    if session.out.is_table() {
        session.out.say(if done.iter().all(|(_, changes)| is_empty(changes)) {
            "nothing changed"
        } else {
            "applied"
        });
    }
    Ok(Exit::Yes)
}

type Changes = Vec<(String, Reply<RuleSetChanges>)>;

async fn dry_run(args: &FileArgs, session: &mut Session) -> Result<(Changes, Vec<Target>), Failed> {
    let set = args.set()?;
    let targets = read(&args.file, &session.connection.namespace)?;
    let mut changes = Vec::new();
    for target in &targets {
        let client = session.client.with_namespace(&target.namespace);
        changes.push((target.namespace.clone(), client.rule_sets().diff(&set, &target.body).await?));
    }
    Ok((changes, targets))
}

fn is_empty(changes: &RuleSetChanges) -> bool {
    changes.created.is_empty()
        && changes.changed.is_empty()
        && changes.deleted.is_empty()
        && changes.conflicts.is_empty()
}

/// For programs, one body of the API for each namespace.
fn show(out: &mut Output, set: &str, changes: &Changes) {
    if out.format != Format::Table {
        changes.iter().for_each(|(_, changes)| out.line(changes.json()));
        return;
    }
    for (namespace, changes) in changes.iter().filter(|(_, changes)| !is_empty(changes)) {
        let title =
            format!("rule set {} in namespace {}", words::printable(set), words::printable(namespace));
        out.line(words::bold(&title));
        for rule in &changes.created {
            out.line(words::green(&format!("  + {}", words::printable(rule))));
        }
        for change in &changes.changed {
            let empty =
                if change.starts_empty { words::red(" (its counts start empty)") } else { String::new() };
            out.line(format!("  ~ {}: {}{empty}", words::printable(&change.rule), fields(&change.fields)));
        }
        for rule in &changes.deleted {
            out.line(words::red(&format!("  - {}", words::printable(rule))));
        }
        for conflict in &changes.conflicts {
            let why = match (&conflict.managed_by, &conflict.override_name) {
                (Some(set), _) => format!("the rule set {} manages it", words::printable(set)),
                (None, Some(name)) => format!("the override {} is in the way", words::printable(name)),
                (None, None) => format!("{:?}", conflict.code),
            };
            out.line(words::red(&format!("  ! {}: {why}", words::printable(&conflict.rule))));
        }
    }
}

/// The fields that change, as the API names them.
fn fields(fields: &[RuleField]) -> String {
    let word = |field| serde_json::to_value(field).ok().and_then(|word| word.as_str().map(str::to_owned));
    fields.iter().filter_map(word).collect::<Vec<_>>().join(", ")
}

/// Reads the file. Everything inside a rule is the server's to judge: it means the same over HTTP.
fn read(path: &Path, namespace: &str) -> Result<Vec<Target>, Failed> {
    let failed = |why: String| Failed::error(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    if path.extension().is_some_and(|extension| extension == "json") {
        let body = serde_json::from_str(&text).map_err(|error| failed(format!("not JSON: {error}")))?;
        return Ok(vec![Target { namespace: namespace.to_owned(), body }]);
    }
    let document: Map<String, Value> =
        toml::from_str(&text).map_err(|error| failed(format!("not TOML with JSON's types: {error}")))?;
    let namespaces = match document.get("namespaces") {
        Some(Value::Object(namespaces)) if document.len() == 1 => namespaces,
        _ => {
            return Err(failed(
                "a rules file has one table, [namespaces]; see `limina rules check`".to_owned(),
            ));
        }
    };
    let target = |(namespace, content): (&String, &Value)| {
        // A misspelt `rules` must not count as no rules: that would delete them all.
        match (content.get("rules"), content.as_object().map(Map::len)) {
            (Some(rules @ Value::Array(_)), Some(1)) => {
                Ok(Target { namespace: namespace.clone(), body: json!({"rules": rules}) })
            }
            _ => Err(failed(format!("the namespace {namespace:?} must have `rules`, and nothing else"))),
        }
    };
    namespaces.iter().map(target).collect()
}
