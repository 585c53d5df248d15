//! Checks that each module of the engine uses only modules of lower layers, so that a family can be read without the
//! others.

use crate::{paths::edges, sources::rust_files};
use std::{collections::BTreeSet, path::Path};

const ENGINE: &str = "crates/engine/src";

/// The layers, from the lowest to the highest. A module may use the modules of lower layers, but none of its own layer.
const LAYERS: &[&[&str]] = &[
    &["answer_size", "ids", "leftovers", "resident"],
    &["quotas"],
    &["lists", "options", "slab"],
    &["effect", "record"],
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
    let mut problems = BTreeSet::new();
    for edge in edges(&source.join("lib.rs"))? {
        if let Some(problem) = judge(module(&edge.from), module(&edge.to)) {
            problems.insert(format!("{ENGINE}/{}: {problem}: {}", edge.from, edge.path));
        }
    }
    let mut found = BTreeSet::new();
    for file in rust_files(&source)? {
        let inside = file.strip_prefix(&source).map_err(|error| error.to_string())?;
        found.insert(module(&inside.to_string_lossy()).to_owned());
    }
    found.remove("lib");
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

/// The module at the top of the crate that a file belongs to.
fn module(file: &str) -> &str {
    file.split(['/', '.']).next().unwrap_or_default()
}

fn judge(module: &str, used: &str) -> Option<String> {
    let layer = |name: &str| LAYERS.iter().position(|layer| layer.contains(&name));
    match (layer(module), layer(used)) {
        (Some(mine), Some(other)) if module != used && other >= mine => {
            Some(format!("{module} must not use {used}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_uses_neither_another_family_nor_a_higher_layer() {
        assert_eq!(judge("ledger", "turn"), None);
        assert_eq!(judge("ledger", "ledger"), None);
        assert!(judge("ledger", "locks").is_some());
        assert!(judge("ledger", "outcome").is_some());
        assert!(judge("turn", "engine").is_some());
    }
}
