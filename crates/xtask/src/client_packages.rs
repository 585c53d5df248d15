//! Tests the client packages under `clients` against the real server. Each package has a script `test.sh` that installs what it
//! needs under `target`, and takes the server's program from the variable `LIMINA_BIN`.

use crate::{
    packages,
    program::{self, Outcome},
};
use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::Command,
    thread,
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
            program::cargo(&["build", "--quiet", "--package", "limina"])?;
            program::target_directory()?.join("debug/limina")
        }
    };
    let packages = if chosen.is_empty() { PACKAGES } else { &chosen };
    if set == "full" {
        return packages.iter().try_for_each(|package| test(package, set, &server));
    }
    // Smoke tests mostly wait, for a download or for a timeout. So the packages run at the same time.
    thread::scope(|scope| {
        let tests: Vec<_> =
            packages.iter().map(|package| scope.spawn(|| test(package, set, &server))).collect();
        let outcomes: Vec<Outcome> = tests
            .into_iter()
            .map(|test| test.join().unwrap_or_else(|_| Err("a test panicked".to_owned())))
            .collect();
        outcomes.into_iter().collect()
    })
}

/// Runs the script of a package, and prints what it wrote in one piece.
fn test(package: &str, set: &str, server: &Path) -> Outcome {
    let script = program::root().join("clients").join(package).join("test.sh");
    println!("xtask: the {package} client: {set}");
    let output =
        Command::new(&script).arg(set).env("LIMINA_BIN", server).current_dir(program::root()).output();
    let output = output.map_err(|error| format!("{}: {error}", script.display()))?;
    let mut stdout = io::stdout().lock();
    for part in [&output.stdout, &output.stderr] {
        stdout.write_all(part).map_err(|error| error.to_string())?;
    }
    match output.status.success() {
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
        .current_dir(program::root());
    Ok(command)
}
