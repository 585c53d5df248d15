//! What the benchmark compares Limina with. The tests never need it.

use cargo_metadata::MetadataCommand;
use std::{
    path::Path,
    process::{Command, Stdio},
};

/// The crate of the rivals that are crates: no part of the workspace.
pub(crate) const MANIFEST: &str = "crates/rivals/Cargo.toml";

/// Builds the rivals that are crates, to where the benchmark is built, since it looks for them beside itself.
pub(crate) fn build() -> Result<(), String> {
    let metadata = MetadataCommand::new().no_deps().exec().map_err(|error| error.to_string())?;
    let target = metadata.target_directory.as_str();
    crate::cargo(&["build", "--release", "--locked", "--manifest-path", MANIFEST, "--target-dir", target])
}

/// Installs PostgreSQL and Redis where they are missing.
pub(crate) fn install() -> Result<(), String> {
    let rivals = [
        ("postgresql", has_postgres as fn() -> bool),
        ("redis-server", || runs("redis-server", "--version")),
    ];
    let missing: Vec<&str> =
        rivals.iter().filter(|(_, is_there)| !is_there()).map(|&(name, _)| name).collect();
    if missing.is_empty() {
        println!("xtask: PostgreSQL and Redis are installed");
        return Ok(());
    }
    let by_hand = format!("install {} by hand", missing.join(" and "));
    if !runs("apt-get", "--version") {
        return Err(format!("there is no apt-get here: {by_hand}"));
    }
    if output("id", "-u").is_none_or(|id| id.trim() != "0") {
        return Err(format!("installing needs root: run this as root, or {by_hand}"));
    }
    // The packages come with services of their own, on the usual ports, which the benchmark does not use.
    apt_get(&["update", "-qq"])?;
    apt_get(&[&["install", "-qq", "--yes", "--no-install-recommends"], &missing[..]].concat())
}

/// The benchmark looks for it where Debian and Ubuntu put it.
fn has_postgres() -> bool {
    let versions = Path::new("/usr/lib/postgresql").read_dir().into_iter().flatten().flatten();
    versions.into_iter().any(|version| version.path().join("bin/initdb").is_file())
}

fn apt_get(args: &[&str]) -> Result<(), String> {
    println!("xtask: apt-get {}", args.join(" "));
    let status = Command::new("apt-get").args(args).env("DEBIAN_FRONTEND", "noninteractive").status();
    match status.map_err(|error| format!("apt-get: {error}"))?.success() {
        true => Ok(()),
        false => Err(format!("failed: apt-get {}", args.join(" "))),
    }
}

fn runs(program: &str, arg: &str) -> bool {
    output(program, arg).is_some()
}

fn output(program: &str, arg: &str) -> Option<String> {
    let output = Command::new(program).arg(arg).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
