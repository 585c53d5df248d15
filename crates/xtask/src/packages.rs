//! Installs programs from the system's packages if they are missing.

use std::{
    path::Path,
    process::{Command, Stdio},
};

/// A package, and how to find out whether it is installed.
pub(crate) struct Package {
    /// The name for apt-get, or several names separated by spaces.
    pub(crate) name: &'static str,
    pub(crate) is_installed: fn() -> bool,
}

/// The tests of the store and the benchmarks start their own servers.
pub(crate) const POSTGRES: Package = Package { name: "postgresql", is_installed: has_postgres };

/// The tests of a failing disk compile a small library, which they preload.
pub(crate) const C_COMPILER: Package = Package { name: "gcc libc6-dev", is_installed: has_c_compiler };

/// The end-to-end tests of TLS use a client with another TLS library than the server's.
pub(crate) const CURL: Package = Package { name: "curl", is_installed: || runs("curl", &["--version"]) };

pub(crate) const NODE: Package = Package { name: "nodejs", is_installed: || runs("node", &["--version"]) };

pub(crate) const NPM: Package = Package { name: "npm", is_installed: || runs("npm", &["--version"]) };

/// The STOMP clients of the tests and schemathesis are installed from PyPI. Without this package Debian has the module `venv`,
/// but not `ensurepip`, which a new environment needs.
pub(crate) const PYTHON: Package =
    Package { name: "python3-venv", is_installed: || runs("python3", &["-c", "import ensurepip, venv"]) };

fn has_c_compiler() -> bool {
    runs("cc", &["--version"])
}

/// Looks in the folder in which Debian and Ubuntu install PostgreSQL.
fn has_postgres() -> bool {
    let versions = Path::new("/usr/lib/postgresql").read_dir().into_iter().flatten().flatten();
    versions.into_iter().any(|version| version.path().join("bin/initdb").is_file())
}

/// Installs the packages that are missing.
pub(crate) fn install(packages: &[Package]) -> Result<(), String> {
    let missing: Vec<&str> =
        packages.iter().filter(|package| !(package.is_installed)()).map(|package| package.name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let by_hand = format!("install {} by hand", missing.join(" and "));
    if !runs("apt-get", &["--version"]) {
        return Err(format!("apt-get was not found: {by_hand}"));
    }
    if output("id", &["-u"]).is_none_or(|id| id.trim() != "0") {
        return Err(format!("installing packages needs root: run this as root, or {by_hand}"));
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

/// Installs what `requirements.txt` in this folder names, into the folder `python` in it.
pub(crate) fn install_python(place: &Path) -> Result<(), String> {
    run_in(place, "python3".as_ref(), &["-m", "venv", "python"])?;
    let pip = ["-m", "pip", "install", "--quiet", "--requirement", "requirements.txt"];
    run_in(place, &place.join("python/bin/python"), &pip)
}

/// Runs a program in this folder.
pub(crate) fn run_in(place: &Path, program: &Path, args: &[&str]) -> Result<(), String> {
    let command = format!("{} {}", program.display(), args.join(" "));
    println!("xtask: {command}");
    let status = Command::new(program).args(args).current_dir(place).status();
    match status.map_err(|error| format!("{command}: {error}"))?.success() {
        true => Ok(()),
        false => Err(format!("failed: {command}")),
    }
}

/// Whether a program can be run with these arguments.
pub(crate) fn runs(program: &str, args: &[&str]) -> bool {
    output(program, args).is_some()
}

/// What a program prints; none if it fails.
pub(crate) fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
