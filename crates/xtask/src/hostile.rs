//! Builds the release binary and plays hostile clients to it.

use crate::program::{self, Outcome};

/// Arguments go to the program: names of scenarios, `--minutes N`, `--list`.
pub(crate) fn run(args: &[&str]) -> Outcome {
    // The program starts the server that is in its own folder.
    program::cargo(&["build", "--release", "--quiet", "--package", "limina"])?;
    program::cargo(&[&["run", "--release", "--quiet", "--package", "limina-hostile", "--"], args].concat())
}
