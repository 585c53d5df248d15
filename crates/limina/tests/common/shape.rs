//! Parts of answers whose form the contract does not specify, read as tolerantly as the tests can afford.

use std::collections::BTreeMap;

use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    Held,
    Committed,
    RolledBack,
}

/// The name of a state. An expired hold counts as rolled back.
#[track_caller]
pub(crate) fn state(word: &Value) -> State {
    match word.as_str().and_then(known_state) {
        Some(state) => state,
        None => panic!("not a state: {word}"),
    }
}

fn known_state(word: &str) -> Option<State> {
    let word = word.to_ascii_lowercase();
    let is = |stem: &str| word.contains(stem);
    match () {
        () if is("commit") => Some(State::Committed),
        () if is("roll") || is("expir") => Some(State::RolledBack),
        () if is("held") || is("hold") => Some(State::Held),
        () => None,
    }
}

/// An operation's state in every limit: the member that is a list of objects with `limit_name` and `state`.
#[track_caller]
pub(crate) fn states(operation: &Value) -> Vec<(String, State)> {
    let fields = operation.as_object().unwrap_or_else(|| panic!("not an object: {operation}"));
    let list = fields.values().filter_map(Value::as_array).find(|list| {
        list.iter().all(|item| item["limit_name"].is_string() && item["state"].is_string())
            && !list.is_empty()
    });
    let Some(list) = list else { panic!("no states with `limit_name` and `state` in {operation}") };
    let mut states: Vec<(String, State)> = list
        .iter()
        .map(|item| (item["limit_name"].as_str().expect("checked above").to_owned(), state(&item["state"])))
        .collect();
    states.sort();
    states
}

/// Adds up a limit's history, and compares each entry's sums. Returns (commit, hold) after the last entry.
#[track_caller]
pub(crate) fn sum(entries: &[Value]) -> (i64, i64) {
    let mut open: BTreeMap<String, i64> = BTreeMap::new();
    let mut commit = 0;
    for entry in in_order(entries) {
        let operation = entry["operation_id"].as_str().expect("`operation_id` of an entry").to_owned();
        let value = || entry["value"].as_i64().unwrap_or_else(|| panic!("no `value` in {entry}"));
        let sums = |commit: i64, open: &BTreeMap<String, i64>| {
            let told = (entry["commit_value"].as_i64(), entry["hold_value"].as_i64());
            assert_eq!(told, (Some(commit), Some(open.values().sum())), "the sums after it: {entry}");
        };
        match entry_state(entry) {
            State::Held => assert_eq!(open.insert(operation, value()), None, "held twice: {entry}"),
            State::Committed => {
                assert!(open.remove(&operation).is_some(), "committed without a hold: {entry}");
                commit += value();
            }
            State::RolledBack => {
                assert!(open.remove(&operation).is_some(), "rolled back without a hold: {entry}");
            }
        }
        sums(commit, &open);
    }
    (commit, open.values().sum())
}

/// The change that an entry made.
#[track_caller]
pub(crate) fn entry_state(entry: &Value) -> State {
    match entry["type"].as_str().and_then(known_state) {
        Some(found) => found,
        None => panic!("an entry that does not say what it is: {entry}"),
    }
}

/// The entries, oldest first, in whichever direction the list is sorted. Fails if it is not sorted.
#[track_caller]
pub(crate) fn in_order(entries: &[Value]) -> Vec<&Value> {
    let position =
        |entry: &Value| entry["position"].as_u64().unwrap_or_else(|| panic!("no position: {entry}"));
    let mut sorted: Vec<&Value> = entries.iter().collect();
    if entries.len() > 1 && position(&entries[0]) > position(&entries[entries.len() - 1]) {
        sorted.reverse();
    }
    assert!(sorted.is_sorted_by(|a, b| position(a) <= position(b)), "entries are not in order of position");
    sorted
}

/// The names in the list of namespaces, whose items may be strings or objects.
#[track_caller]
pub(crate) fn namespaces(page: &Value) -> Vec<String> {
    let Some(items) = page["items"].as_array() else { panic!("not a page: {page}") };
    let name = |item: &Value| {
        let name = [item, &item["name"], &item["namespace"]].into_iter().find_map(Value::as_str);
        name.unwrap_or_else(|| panic!("a namespace without a name: {item}")).to_owned()
    };
    items.iter().map(name).collect()
}
