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

/// Options: `--smoke` for the few tests that `cargo xtask test` runs; `--packages` to build what would be published and check it,
/// which needs no server; `--server PATH` for a binary that is built already; names
/// of packages (all if none).
pub(crate) fn run(args: &[String]) -> Outcome {
    let (mut set, mut server, mut chosen) = ("full", None, Vec::new());
    let mut args = args.iter().map(String::as_str);
    while let Some(word) = args.next() {
        match word {
            "--smoke" => set = "smoke",
            "--packages" => set = "package",
            "--server" => server = Some(PathBuf::from(args.next().ok_or("--server needs a value")?)),
            name if PACKAGES.contains(&name) => chosen.push(name),
            _ => return Err(format!("there is no option or package {word}")),
        }
    }
    packages::install(&[packages::NODE, packages::NPM, packages::PYTHON])?;
    let packages = if chosen.is_empty() { PACKAGES } else { &chosen };
    if set == "package" {
        check_texts(packages)?;
        return packages.iter().try_for_each(|package| test(package, set, Path::new("")));
    }
    let server = match server {
        Some(path) => path,
        None => {
            program::cargo(&["build", "--quiet", "--package", "limina"])?;
            program::target_directory()?.join("debug/limina")
        }
    };
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

/// A published package is read without the repository: its README must not link into it, and it has the licence of its own.
fn check_texts(packages: &[&str]) -> Outcome {
    let read = |path: PathBuf| {
        std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let licence = read(program::root().join("LICENSE"))?;
    for package in packages {
        let folder = program::root().join("clients").join(package);
        if read(folder.join("LICENSE"))? != licence {
            return Err(format!("clients/{package}/LICENSE differs from LICENSE"));
        }
        let readme = read(folder.join("README.md"))?;
        if let Some(link) = links_into_the_repository(&readme).next() {
            return Err(format!("clients/{package}/README.md links into the repository: {link}"));
        }
    }
    Ok(())
}

fn links_into_the_repository(markdown: &str) -> impl Iterator<Item = &str> {
    let targets = markdown.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target).filter(|target| !target.starts_with('#') && !target.contains("://"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_into_the_repository_are_found() {
        let readme = "[a](https://a.example/b) [b](#errors) [c](../../docs/clients.md) [d](examples/d.rs)";
        let found: Vec<_> = links_into_the_repository(readme).collect();
        assert_eq!(found, ["../../docs/clients.md", "examples/d.rs"]);
    }
}
