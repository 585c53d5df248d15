//! `limina rules check`: checks a rules file, or a configuration of Envoy, without a server.

use super::{RulesError, parse};
use crate::{
    envoy::{self, EnvoyError},
    watch,
};
use limina_cli::words::counted;
use limina_engine::limiter::SetRule;
use std::{
    error::Error,
    io::Write,
    path::{Path, PathBuf},
};

/// The arguments of `rules check`.
#[derive(clap::Args, Debug)]
pub(crate) struct CheckArgs {
    /// The file of rules (TOML)
    #[arg(value_name = "FILE", required_unless_present = "envoy", conflicts_with = "envoy")]
    file: Option<PathBuf>,
    /// Instead of a file of rules: a YAML file of envoyproxy/ratelimit, or a directory of them
    #[arg(long, value_name = "FILE|DIR")]
    envoy: Option<PathBuf>,
}

/// Checks the files. Returns an error if one of them is not valid.
pub(crate) fn check(args: CheckArgs) -> Result<(), Box<dyn Error>> {
    match (args.file, args.envoy) {
        (Some(file), _) => check_file(&file),
        (None, Some(path)) => check_envoy(&path),
        (None, None) => Err("name a file, or --envoy".into()),
    }
}

fn check_envoy(path: &Path) -> Result<(), Box<dyn Error>> {
    let config = match envoy::read(path) {
        Ok(config) => config,
        Err(EnvoyError::Invalid { path, problems }) => {
            problems.iter().for_each(|problem| say(&format!("problem: {problem}")));
            let count = counted(problems.len(), "problem");
            return Err(format!("Envoy's configuration {} is not valid: {count}", path.display()).into());
        }
        Err(other) => return Err(other.into()),
    };
    for domain in config.domains() {
        say(&format!("{}: {}", domain.name(), counted(domain.rules().len(), "rule")));
    }
    for ignored in config.ignored() {
        say(&format!("note: {} has no effect", ignored.key()));
    }
    Ok(())
}

fn check_file(file: &Path) -> Result<(), Box<dyn Error>> {
    let rules = match watch::read(file, parse) {
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
        let overrides: usize = rules.iter().map(|SetRule { overrides, .. }| overrides.len()).sum();
        say(&format!("{name}: {}, {}", counted(rules.len(), "rule"), counted(overrides, "override")));
    }
    Ok(())
}

/// Prints a line. If standard output is closed, the exit status still shows the result.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
