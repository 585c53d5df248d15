//! The records of the audit.

use super::{events::stream, text};
use limina_api::audit as wire;
use limina_engine::{
    Name,
    audit::{AuditRecord, State, Target},
};
use serde::Serialize;
use serde_json::{Value, json};

/// The largest state that is shown, in bytes of JSON.
const MAX_STATE: usize = 16 << 10;

pub(crate) fn record(record: AuditRecord) -> wire::AuditRecord {
    let AuditRecord { time, namespace, position, actor, address, request_id, action, target, before, after } =
        record;
    wire::AuditRecord {
        time: time.0,
        target: target_text(&target, namespace.as_str()),
        namespace: text(&namespace),
        position: position.0,
        actor: actor.as_ref().map(text),
        address: address.map(|address| address.to_string()),
        request_id,
        action: action.word().to_owned(),
        before: before.map(state),
        after: after.map(state),
    }
}

fn target_text(target: &Target, namespace: &str) -> String {
    match target {
        Target::Rule(name)
        | Target::RuleSet(name)
        | Target::Lease(name)
        | Target::Limit(name)
        | Target::Stream(name)
        | Target::Lock(name) => text(name),
        Target::Override { rule, name } => format!("{rule}/{name}"),
        Target::Counter(of) => json_of(of).to_string(),
        Target::Namespace => namespace.to_owned(),
    }
}

fn state(state: State) -> Value {
    let value = match state {
        State::Rule(rule) => json_of(&rule),
        State::Override(item) => json_of(&item),
        State::Counter(counter) => json_of(&counter),
        State::Lease(lease) => json_of(&lease),
        State::Limit(info) => json_of(&info),
        State::Stream(info) => json_of(&stream(&info)),
        State::Lock(grant) => json_of(&grant.into_info()),
        State::RuleSet(set) => json_of(&set),
        State::RuleSetChanges(changes) => {
            let changed = changes.changed.iter().map(|changed| &changed.rule);
            let value = json!({
                "created": names(&changes.created),
                "changed": names(changed),
                "deleted": names(&changes.deleted),
            });
            if value.to_string().len() > MAX_STATE {
                let (created, changed) = (changes.created.len(), changes.changed.len());
                return counts(created as u64, changed as u64, changes.deleted.len() as u64);
            }
            value
        }
        State::RuleSetCounts { created, changed, deleted } => return counts(created, changed, deleted),
        State::TooLarge { bytes } => return summary(bytes),
    };
    match value.to_string().len() {
        bytes if bytes > MAX_STATE => summary(bytes as u64),
        _ => value,
    }
}

fn names<'a>(names: impl IntoIterator<Item = &'a Name>) -> Vec<String> {
    names.into_iter().map(text).collect()
}

/// The summary of a change of a rule set with very many rules.
fn counts(created: u64, changed: u64, deleted: u64) -> Value {
    json!({ "summary": format!("{created} rules created, {changed} changed, {deleted} deleted") })
}

fn summary(bytes: u64) -> Value {
    json!({ "summary": format!("too large for the audit: {bytes} bytes") })
}

fn json_of<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).expect("wire types have string keys")
}
