//! Dependencies point downwards only.

use cargo_metadata::{DependencyKind, MetadataCommand};
use std::collections::BTreeSet;

/// Who may depend on whom, among our own crates.
const ALLOWED: &[(&str, &[&str])] = &[
    ("limina-engine", &[]),
    ("limina-pg-server", &[]),
    ("limina-stomp", &[]),
    ("limina-store", &[]),
    ("limina-wire", &[]),
    ("limina-shard", &["limina-engine"]),
    ("limina-sim", &["limina-engine", "limina-node", "limina-shard", "limina-store"]),
    ("limina-node", &["limina-engine", "limina-shard", "limina-store"]),
    ("limina-embed", &["limina-engine", "limina-node", "limina-store"]),
    ("limina-server", &["limina-engine", "limina-node", "limina-stomp", "limina-wire"]),
    (
        "limina",
        &["limina-embed", "limina-engine", "limina-node", "limina-server", "limina-store", "limina-wire"],
    ),
    (
        "limina-bench",
        &[
            "limina-engine",
            "limina-node",
            "limina-pg-server",
            "limina-server",
            "limina-shard",
            "limina-store",
            "limina-wire",
        ],
    ),
    ("xtask", &[]),
];

/// What the engine may use from outside: nothing that has a clock, files or threads.
const ENGINE_USES: &[&str] = &["bytes", "hashbrown", "postcard", "serde"];

pub(crate) fn check() -> Result<(), String> {
    let metadata = MetadataCommand::new().no_deps().exec().map_err(|error| error.to_string())?;
    let ours: BTreeSet<&str> = metadata.packages.iter().map(|package| package.name.as_str()).collect();
    let mut problems = Vec::new();
    for package in &metadata.packages {
        let name = package.name.as_str();
        let Some((_, allowed)) = ALLOWED.iter().find(|(crate_name, _)| *crate_name == name) else {
            problems.push(format!("{name} has no place in the layers (crates/xtask/src/layers.rs)"));
            continue;
        };
        for dependency in
            package.dependencies.iter().filter(|dependency| dependency.kind != DependencyKind::Development)
        {
            let used = dependency.name.as_str();
            if ours.contains(used) && !allowed.contains(&used) {
                problems.push(format!("{name} must not depend on {used}"));
            }
            if name == "limina-engine" && !ENGINE_USES.contains(&used) {
                problems.push(format!("the engine must not depend on {used}"));
            }
        }
    }
    for (name, _) in ALLOWED.iter().filter(|(name, _)| !ours.contains(name)) {
        problems.push(format!("{name} stands in the layers but is gone"));
    }
    for pure in ["engine", "stomp"] {
        let lib = crate::root().join(format!("crates/{pure}/src/lib.rs"));
        let lib = std::fs::read_to_string(lib).map_err(|error| error.to_string())?;
        if !lib.contains("#![no_std]") {
            problems.push(format!("crates/{pure} must be #![no_std]"));
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}
