//! Checks that each module of the engine uses only modules of lower layers, so that a family can be read without the
//! others.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

const ENGINE: &str = "crates/engine/src";

/// The layers, from the lowest to the highest. A module may use the modules of lower layers, but none of its own layer.
const LAYERS: &[&[&str]] = &[
    &["answer_size", "ids", "leftovers", "resident", "time"],
    &["name", "small_bytes"],
    &["invalid", "quotas"],
    &["key_values", "lists", "options", "slab"],
    &["effect", "record", "selection"],
    &["recent", "timers"],
    &["reads", "sweep"],
    &["turn"],
    &["events", "ledger", "limiter", "locks"],
    &["audit", "decisions"],
    &["outcome", "request"],
    &["idempotency"],
    &["job"],
    &["engine"],
];

pub(crate) fn check(root: &Path) -> Result<(), String> {
    let source = root.join(ENGINE);
    let exported = exports(&read(&source.join("lib.rs"))?);
    let mut problems = BTreeSet::new();
    let mut found = BTreeSet::new();
    for file in rust_files(&source)? {
        let inside = file.strip_prefix(&source).map_err(|error| error.to_string())?;
        let first = inside.iter().next().unwrap_or_default().to_string_lossy();
        let module = first.trim_end_matches(".rs").to_owned();
        if module == "lib" {
            continue;
        }
        let used = uses(&read(&file)?);
        let used = used.iter().map(|name| exported.get(name).unwrap_or(name)).filter(|name| **name != module);
        for name in used {
            if let Some(problem) = judge(&module, name) {
                problems.insert(format!("{ENGINE}/{}: {problem}", inside.display()));
            }
        }
        found.insert(module);
    }
    let named: BTreeSet<String> =
        LAYERS.iter().flat_map(|layer| layer.iter()).map(|name| (*name).into()).collect();
    problems.extend(named.symmetric_difference(&found).map(|name| {
        format!("{name} must be both a module of the engine and listed in crates/xtask/src/modules.rs, but is only one of these")
    }));
    match problems.is_empty() {
        true => Ok(()),
        false => Err(problems.into_iter().collect::<Vec<_>>().join("\n")),
    }
}

fn judge(module: &str, used: &str) -> Option<String> {
    let layer = |name: &str| LAYERS.iter().position(|layer| layer.contains(&name));
    match (layer(module), layer(used)) {
        (Some(mine), Some(other)) if other >= mine => Some(format!("{module} must not use {used}")),
        _ => None,
    }
}

/// The module of each name that `lib.rs` re-exports with `pub use module::{…}`.
fn exports(lib: &str) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    for statement in without_comments(lib).split(';').map(str::trim) {
        let Some((module, names)) = statement.strip_prefix("pub use ").and_then(|path| path.split_once("::"))
        else {
            continue;
        };
        for name in names.trim_matches(['{', '}']).split(',').map(str::trim).filter(|name| !name.is_empty()) {
            exports.insert(name.into(), module.into());
        }
    }
    exports
}

/// The first name after each `crate::`, in `use` trees and in other paths.
fn uses(file: &str) -> BTreeSet<String> {
    let text = without_comments(file);
    let mut names = BTreeSet::new();
    for (at, _) in text.match_indices("crate::") {
        // Skip matches that are the end of a longer name.
        if text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &text[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            Some(tree) => names.extend(first_names(tree)),
            None => names.extend(identifier(rest)),
        }
    }
    names
}

/// The first name of each branch of a `use` tree. `tree` begins after the opening brace.
fn first_names(tree: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut depth = 0;
    let mut is_first = true;
    for (at, c) in tree.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => is_first = true,
            _ if depth == 0 && is_first && !c.is_whitespace() => {
                names.extend(identifier(&tree[at..]));
                is_first = false;
            }
            _ => {}
        }
    }
    names
}

fn identifier(text: &str) -> Option<String> {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    (end > 0).then(|| text[..end].to_owned())
}

pub(crate) fn without_comments(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// All Rust files in a folder and below it.
pub(crate) fn rust_files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.is_dir() {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

pub(crate) fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_are_found_in_trees_and_in_paths() {
        let text = "use crate::{\n    Name, Time,\n    record::{self, key::Key}, // crate::not_this\n    turn::Turn,\n};\n\
                    pub(crate) fn f() -> crate::Outcome { crate::ledger::x() }";
        let expect = ["Name", "Outcome", "Time", "ledger", "record", "turn"];
        assert_eq!(uses(text).iter().map(String::as_str).collect::<Vec<_>>(), expect);
    }

    #[test]
    fn names_are_mapped_to_their_modules() {
        let exports = exports("pub mod time;\npub use time::{Millis, Time};\npub use effect::Effect;");
        assert_eq!(exports["Millis"], "time");
        assert_eq!(exports["Effect"], "effect");
    }

    #[test]
    fn a_family_uses_neither_another_family_nor_a_higher_layer() {
        assert_eq!(judge("ledger", "turn"), None);
        assert!(judge("ledger", "locks").is_some());
        assert!(judge("ledger", "outcome").is_some());
        assert!(judge("turn", "engine").is_some());
    }
}
