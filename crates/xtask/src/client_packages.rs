//! Tests the client packages under `clients` against the real server. Each package has a script `test.sh` that installs what it
//! needs under `target`, and takes the server's program from the variable `LIMINA_BIN`.

use crate::{Outcome, packages};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

const PACKAGES: &[&str] = &["python", "typescript", "rust"];

/// Options: `--smoke` for the few tests that `cargo xtask test` runs; `--server PATH` for a binary that is built already; names
/// of packages (all if none).
pub(crate) fn run(args: &[String]) -> Outcome {
    let (mut set, mut server, mut chosen) = ("full", None, Vec::new());
    let mut args = args.iter().map(String::as_str);
    while let Some(word) = args.next() {
        match word {
            "--smoke" => set = "smoke",
            "--server" => server = Some(PathBuf::from(args.next().ok_or("--server needs a value")?)),
            name if PACKAGES.contains(&name) => chosen.push(name),
            _ => return Err(format!("there is no option or package {word}")),
        }
    }
    packages::install(&[packages::NODE, packages::NPM, packages::PYTHON])?;
    let server = match server {
        Some(path) => path,
        None => {
            crate::cargo(&["build", "--quiet", "--package", "limina"])?;
            crate::target_directory()?.join("debug/limina")
        }
    };
    for package in if chosen.is_empty() { PACKAGES } else { &chosen } {
        test(package, set, &server)?;
    }
    Ok(())
}

fn test(package: &str, set: &str, server: &Path) -> Outcome {
    let script = crate::root().join("clients").join(package).join("test.sh");
    println!("xtask: the {package} client: {set}");
    let status = Command::new(&script).arg(set).env("LIMINA_BIN", server).current_dir(crate::root()).status();
    match status.map_err(|error| format!("{}: {error}", script.display()))?.success() {
        true => Ok(()),
        false => Err(format!("the {package} client failed; see above")),
    }
}

/// The variables with which the test binary of the Rust client runs its smoke tests against a server.
pub(crate) fn smoke_test(server: &Path) -> [(&'static str, PathBuf); 2] {
    [("LIMINA_BIN", server.to_owned()), ("LIMINA_TEST", "smoke".into())]
}

/// The job of `cargo xtask test`: this program with a server that is built already. The tests of the Rust client are a binary of
/// the workspace, and so a job of their own.
pub(crate) fn job(server: &Path) -> Result<Command, String> {
    let mut command = Command::new(std::env::current_exe().map_err(|error| error.to_string())?);
    command
        .args(["clients-e2e", "--smoke", "python", "typescript", "--server"])
        .arg(server)
        .current_dir(crate::root());
    Ok(command)
}
