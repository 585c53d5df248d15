//! Checks that crates depend only on crates of lower layers, and everything else about the order of the code.

use crate::{architecture, circles, edge, modules, program::root, sources::rust_files};
use cargo_metadata::{DependencyKind, MetadataCommand};
use std::{collections::BTreeSet, path::Path};

/// The crates of the workspace that each crate may depend on. Tests may use more.
const ALLOWED: &[(&str, &[&str])] = &[
    ("limina-engine", &["limina-api"]),
    ("limina-hostile", &[]),
    ("limina-openapi-off", &[]),
    ("limina-pg-server", &[]),
    ("limina-stomp", &[]),
    ("limina-store", &[]),
    ("limina-api", &["limina-openapi-off"]),
    ("limina-access", &["limina-engine"]),
    ("limina-client", &["limina-api"]),
    ("limina-cli", &["limina-client", "limina-api"]),
    ("limina-envoy", &["limina-engine"]),
    ("limina-shard", &["limina-engine"]),
    ("limina-sim", &["limina-engine", "limina-node", "limina-shard", "limina-store"]),
    ("limina-node", &["limina-engine", "limina-shard", "limina-store"]),
    ("limina-embed", &["limina-engine", "limina-node", "limina-store"]),
    (
        "limina-server",
        &[
            "limina-access",
            "limina-engine",
            "limina-envoy",
            "limina-node",
            "limina-openapi-off",
            "limina-stomp",
            "limina-api",
        ],
    ),
    (
        "limina",
        &[
            "limina-access",
            "limina-cli",
            "limina-embed",
            "limina-engine",
            "limina-envoy",
            "limina-node",
            "limina-server",
            "limina-store",
            "limina-api",
        ],
    ),
    (
        "limina-bench",
        &[
            "limina-engine",
            "limina-envoy",
            "limina-node",
            "limina-pg-server",
            "limina-server",
            "limina-store",
            "limina-api",
        ],
    ),
    ("xtask", &[]),
];

/// What the engine may use besides its words, which are those of the API. None of it uses a clock, files or threads.
const ENGINE_USES: &[&str] = &["bytes", "hashbrown", "limina-api", "postcard", "serde"];

/// Checks the dependencies between crates, between the files of each crate and between the engine's modules, where the server
/// names error statuses, and the paths and links in the documents.
pub(crate) fn check() -> Result<(), String> {
    check_crates()?;
    circles::check(&root())?;
    modules::check(&root())?;
    edge::check(&root())?;
    architecture::check(&root())
}

fn check_crates() -> Result<(), String> {
    let metadata = MetadataCommand::new().no_deps().exec().map_err(|error| error.to_string())?;
    let ours: BTreeSet<&str> = metadata.packages.iter().map(|package| package.name.as_str()).collect();
    let mut problems = Vec::new();
    for package in &metadata.packages {
        let name = package.name.as_str();
        let Some((_, allowed)) = ALLOWED.iter().find(|(crate_name, _)| *crate_name == name) else {
            problems.push(format!("{name} is not listed in crates/xtask/src/layers.rs"));
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
    for target in metadata.packages.iter().flat_map(|package| &package.targets) {
        let source = target.src_path.as_std_path();
        if (target.is_lib() || target.is_bin()) && !target.test && has_unit_tests(source)? {
            problems.push(format!("{} has unit tests, but its Cargo.toml says `test = false`", target.name));
        }
    }
    for (name, _) in ALLOWED.iter().filter(|(name, _)| !ours.contains(name)) {
        problems.push(format!("crates/xtask/src/layers.rs lists {name}, which does not exist"));
    }
    for pure in ["engine", "stomp"] {
        let lib = root().join(format!("crates/{pure}/src/lib.rs"));
        let lib = std::fs::read_to_string(lib).map_err(|error| error.to_string())?;
        if !lib.contains("#![no_std]") {
            problems.push(format!("crates/{pure} must be #![no_std]"));
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}

/// Whether a file in the folder of this file, or below it, contains unit tests.
fn has_unit_tests(main_file: &Path) -> Result<bool, String> {
    for file in rust_files(main_file.parent().unwrap_or(main_file))? {
        let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        if text.contains("#[cfg(test)]") || text.contains("#[test]") {
            return Ok(true);
        }
    }
    Ok(false)
}
