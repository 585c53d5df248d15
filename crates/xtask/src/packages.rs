//! Programs that come from the system's packages, installed where they are missing.

use std::{
    path::Path,
    process::{Command, Stdio},
};

/// A package, and a way to see whether it is installed.
pub(crate) struct Package {
    /// As apt-get knows it; several names where it takes several.
    pub(crate) name: &'static str,
    pub(crate) is_there: fn() -> bool,
}

/// For the tests of the store and for the benchmark, which start servers of their own.
pub(crate) const POSTGRES: Package = Package { name: "postgresql", is_there: has_postgres };

/// For the tests of a failing disk, which compile a small library that is preloaded.
pub(crate) const C_COMPILER: Package = Package { name: "gcc libc6-dev", is_there: has_c_compiler };

fn has_c_compiler() -> bool {
    runs("cc", &["--version"])
}

/// Where Debian and Ubuntu put it.
fn has_postgres() -> bool {
    let versions = Path::new("/usr/lib/postgresql").read_dir().into_iter().flatten().flatten();
    versions.into_iter().any(|version| version.path().join("bin/initdb").is_file())
}

/// Installs those of the packages that are not there.
pub(crate) fn install(packages: &[Package]) -> Result<(), String> {
    let missing: Vec<&str> =
        packages.iter().filter(|package| !(package.is_there)()).map(|package| package.name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let by_hand = format!("install {} by hand", missing.join(" and "));
    if !runs("apt-get", &["--version"]) {
        return Err(format!("there is no apt-get here: {by_hand}"));
    }
    if output("id", &["-u"]).is_none_or(|id| id.trim() != "0") {
        return Err(format!("installing needs root: run this as root, or {by_hand}"));
    }
    apt_get(&["update", "-qq"])?;
    let names: Vec<&str> = missing.iter().flat_map(|names| names.split(' ')).collect();
    apt_get(&[&["install", "-qq", "--yes", "--no-install-recommends"], &names[..]].concat())
}

fn apt_get(args: &[&str]) -> Result<(), String> {
    println!("xtask: apt-get {}", args.join(" "));
    let status = Command::new("apt-get").args(args).env("DEBIAN_FRONTEND", "noninteractive").status();
    match status.map_err(|error| format!("apt-get: {error}"))?.success() {
        true => Ok(()),
        false => Err(format!("failed: apt-get {}", args.join(" "))),
    }
}

pub(crate) fn runs(program: &str, args: &[&str]) -> bool {
    output(program, args).is_some()
}

fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
