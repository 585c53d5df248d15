//! Lints and tests the hostile clients, builds the release binary, and plays them to it.

use crate::program::{self, Outcome};

/// Arguments go to the program: names of scenarios, `--minutes N`, `--list`.
pub(crate) fn run(args: &[&str]) -> Outcome {
    program::cargo(&["clippy", "--package", "limina-hostile", "--all-targets", "--", "--deny", "warnings"])?;
    program::cargo(&["test", "--quiet", "--package", "limina-hostile"])?;
    // The program starts the server that is in its own folder.
    program::cargo(&["build", "--release", "--quiet", "--package", "limina"])?;
    program::cargo(&[&["run", "--release", "--quiet", "--package", "limina-hostile", "--"], args].concat())
}
