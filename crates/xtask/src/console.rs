//! Bundles the console into the files that the server embeds, and tests it in a real browser. Both are done by `console/test.sh`,
//! which installs what it needs from npm.

use crate::{
    packages::{self, Package},
    program::{self, Outcome},
};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

const BUILD_PACKAGES: &[Package] = &[packages::NODE, packages::NPM];
const BROWSER: &[Package] =
    &[Package { name: "chromium", is_installed: || Path::new("/usr/bin/chromium").exists() }];

/// Bundles the sources into the files that the server embeds. They are checked in, so that the server builds without Node.
pub(crate) fn build() -> Outcome {
    packages::install(BUILD_PACKAGES)?;
    run_script("build", None)
}

/// Installs what the tests use: the programs, and the packages of npm.
pub(crate) fn install() -> Outcome {
    packages::install(BUILD_PACKAGES)?;
    packages::install(BROWSER)?;
    run_script("install", None)
}

/// Tests the console against a server. Options: `--smoke` for the tests that `cargo xtask test` runs; `--pictures` makes the
/// pictures of the README instead; `--server PATH` for a binary that is built already.
pub(crate) fn test(args: &[String]) -> Outcome {
    let (mut set, mut server) = ("full", None);
    let mut args = args.iter().map(String::as_str);
    while let Some(word) = args.next() {
        match word {
            "--smoke" => set = "smoke",
            "--pictures" => set = "pictures",
            "--server" => server = Some(PathBuf::from(args.next().ok_or("--server needs a value")?)),
            _ => return Err(format!("console-e2e has no option {word}")),
        }
    }
    install()?;
    let server = match server {
        Some(path) => path,
        None => {
            program::cargo(&["build", "--quiet", "--package", "limina"])?;
            program::target_directory()?.join("debug/limina")
        }
    };
    run_script(set, Some(&server))
}

fn run_script(set: &str, server: Option<&Path>) -> Outcome {
    let script = program::root().join("console/test.sh");
    let mut command = Command::new(&script);
    let screenshots = program::target_directory()?.join("console-screenshots");
    command.arg(set).env("LIMINA_SCREENSHOTS", screenshots).current_dir(program::root());
    if let Some(server) = server {
        command.env("LIMINA_BIN", server);
    }
    match command.status().map_err(|error| format!("{}: {error}", script.display()))?.success() {
        true => Ok(()),
        false => Err("the console failed; see above".into()),
    }
}

/// The job of `cargo xtask test`: this program with a server that is built already.
pub(crate) fn job(server: &Path) -> Result<Command, String> {
    let mut command = Command::new(std::env::current_exe().map_err(|error| error.to_string())?);
    command.args(["console-e2e", "--smoke", "--server"]).arg(server).current_dir(program::root());
    Ok(command)
}
