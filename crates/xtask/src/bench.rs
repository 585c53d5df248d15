//! The benchmarks' own tests: every benchmark runs for a moment.

use crate::{Outcome, packages};

pub(crate) fn test() -> Outcome {
    packages::install(&[packages::POSTGRES])?;
    crate::cargo(&["clippy", "--package", "limina-bench", "--all-targets", "--", "--deny", "warnings"])?;
    crate::cargo(&["test", "--package", "limina-bench"])
}
