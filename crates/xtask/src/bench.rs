//! The benchmarks' own tests: every benchmark runs for a moment.

use crate::{
    packages,
    program::{self, Outcome},
};

pub(crate) fn test() -> Outcome {
    packages::install(&[packages::POSTGRES])?;
    program::cargo(&["clippy", "--package", "limina-bench", "--all-targets", "--", "--deny", "warnings"])?;
    program::cargo(&["test", "--package", "limina-bench"])
}
