//! `limina rules check`: checks a rules file without a server.

use super::{RulesError, parse};
use crate::watch;
use limina_engine::limiter::SetRule;
use std::{error::Error, io::Write, path::PathBuf};

/// The arguments of `rules check`.
#[derive(clap::Args, Debug)]
pub(crate) struct CheckArgs {
    /// The file of rules (TOML)
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Checks the file. Returns an error if it is not valid.
pub(crate) fn check(args: CheckArgs) -> Result<(), Box<dyn Error>> {
    let rules = match watch::read(&args.file, parse) {
        Ok(rules) => rules,
        Err(RulesError::Invalid { path, problems }) => {
            problems.iter().for_each(|problem| say(&format!("problem: {problem}")));
            let count = counted(problems.len(), "problem");
            return Err(format!("the rules file {} is not valid: {count}", path.display()).into());
        }
        Err(other) => return Err(other.into()),
    };
    if rules.is_empty() {
        say("no namespace is named: the file removes every rule that it had made before");
    }
    for (name, rules) in &rules {
        let overrides = rules.iter().map(|SetRule { overrides, .. }| overrides.len()).sum();
        say(&format!("{name}: {}, {}", counted(rules.len(), "rule"), counted(overrides, "override")));
    }
    Ok(())
}

fn counted(count: usize, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

/// Prints a line. If standard output is closed, the exit status still shows the result.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
