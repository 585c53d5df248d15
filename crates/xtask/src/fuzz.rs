//! Runs the fuzz targets of `crates/fuzz`, which is not part of the workspace.

use crate::{
    packages,
    program::{self, Outcome},
};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

pub(crate) const MANIFEST: &str = "crates/fuzz/Cargo.toml";
const FOLDER: &str = "crates/fuzz";
/// The version that is installed if there is none.
const CARGO_FUZZ: &str = "0.13.2";

/// The targets, and where the first inputs of each come from.
const TARGETS: &[(&str, Seeds)] = &[
    ("stomp", Seeds::Literals("crates/stomp/tests")),
    ("bodies", Seeds::Json),
    ("thrift", Seeds::None),
    ("keys", Seeds::None),
    ("frames", Seeds::None),
    ("records", Seeds::None),
    ("peers", Seeds::None),
    ("commands", Seeds::None),
];

/// Existing test data from which the fuzzer starts.
enum Seeds {
    /// The string literals of the tests in this folder.
    Literals(&'static str),
    /// The JSON examples of the documentation, each as the body of every call.
    Json,
    None,
}

/// Options: `--seconds N` for each target, and the name of one target.
pub(crate) fn run(args: &[String]) -> Outcome {
    let (mut seconds, mut only) = (60, None);
    let mut args = args.iter();
    while let Some(word) = args.next() {
        match word.as_str() {
            "--seconds" => {
                let value = args.next().and_then(|value| value.parse::<u64>().ok());
                seconds = value.ok_or("--seconds takes a number")?;
            }
            name if TARGETS.iter().any(|(target, _)| *target == name) => only = Some(name.to_owned()),
            other => {
                let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
                return Err(format!("there is no target {other}; the targets are {}", names.join(", ")));
            }
        }
    }
    let fuzzer = Fuzzer::prepare()?;
    let chosen = TARGETS.iter().filter(|(name, _)| only.as_ref().is_none_or(|only| only == name));
    let mut failures = Vec::new();
    for (name, seeds) in chosen {
        match fuzzer.run(name, seeds, seconds) {
            Ok(summary) => println!("xtask: ok {name}: {summary}"),
            Err(problem) => failures.push(format!("{name}: {problem}")),
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// How targets are built and run here.
struct Fuzzer {
    has_nightly: bool,
    /// The folder of build output, corpora and artifacts.
    place: PathBuf,
    /// The folder with cargo-fuzz, to be searched before the others.
    tools: PathBuf,
}

impl Fuzzer {
    fn prepare() -> Result<Fuzzer, String> {
        let target = program::target_directory()?;
        let (place, tools) = (target.join("fuzz"), target.join("tools"));
        let has_nightly = packages::runs("cargo", &["+nightly", "--version"]);
        match has_nightly {
            true => println!("xtask: fuzzing with the nightly toolchain"),
            false => println!(
                "xtask: no nightly toolchain is installed: fuzzing with the stable one and RUSTC_BOOTSTRAP=1"
            ),
        }
        if !tools.join("bin/cargo-fuzz").is_file() && !packages::runs("cargo-fuzz", &["--version"]) {
            let root = tools.display().to_string();
            program::cargo(&["install", "cargo-fuzz", "--locked", "--version", CARGO_FUZZ, "--root", &root])?;
        }
        Ok(Fuzzer { has_nightly, place, tools: tools.join("bin") })
    }

    /// Fuzzes one target. Returns what the fuzzer says at the end: executions and coverage.
    fn run(&self, target: &str, seeds: &Seeds, seconds: u64) -> Result<String, String> {
        let (corpus, first, artifacts) = (
            self.place.join("corpus").join(target),
            self.place.join("seeds").join(target),
            self.place.join("artifacts").join(target),
        );
        for folder in [&corpus, &first, &artifacts] {
            std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        seeds.write(&first)?;
        let before = files(&artifacts);
        let mut command = Command::new("cargo");
        if self.has_nightly {
            command.arg("+nightly");
        } else {
            command.env("RUSTC_BOOTSTRAP", "1");
        }
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.tools.display()));
        // The toolchain that runs xtask must not be the one of the targets.
        command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").env_remove("RUSTC");
        command.args(["fuzz", "run", "--fuzz-dir", FOLDER, "--target-dir"]).arg(self.place.join("build"));
        command.arg(target).arg(&corpus).arg(&first).arg("--");
        command.args([
            format!("-max_total_time={seconds}"),
            "-print_final_stats=1".into(),
            "-rss_limit_mb=4096".into(),
        ]);
        command.arg(format!("-artifact_prefix={}/", artifacts.display()));
        println!("xtask: fuzzing {target} for {seconds} s");
        let output =
            command.current_dir(program::root()).stdout(Stdio::inherit()).stderr(Stdio::piped()).output();
        let output = output.map_err(|error| format!("cargo fuzz: {error}"))?;
        let text = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            let found: Vec<String> =
                files(&artifacts).difference(&before).map(|path| path.display().to_string()).collect();
            let last: Vec<&str> = text.lines().rev().take(60).collect();
            eprintln!("{}", last.into_iter().rev().collect::<Vec<_>>().join("\n"));
            return Err(match found.is_empty() {
                true => "it could not be run; see above".into(),
                false => format!("it fails; the input is {}", found.join(" and ")),
            });
        }
        Ok(summary(&text))
    }
}

/// The executions and the coverage in the fuzzer's output.
fn summary(text: &str) -> String {
    let executed = text.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    let done = text.lines().rev().find(|line| line.starts_with('#') && line.contains("cov:"));
    let coverage = done.and_then(|line| line.split("cov: ").nth(1)?.split(' ').next());
    format!("{} executions, coverage {}", executed.unwrap_or("?").trim(), coverage.unwrap_or("?"))
}

fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

impl Seeds {
    /// Writes the first inputs into this folder.
    fn write(&self, folder: &Path) -> Outcome {
        let inputs: BTreeSet<Vec<u8>> = match self {
            Seeds::None => BTreeSet::new(),
            Seeds::Literals(tests) => {
                let mut inputs = BTreeSet::new();
                for file in crate::sources::rust_files(&program::root().join(tests))? {
                    let literals = literals(&crate::sources::read(&file)?);
                    // Each in every version, in pieces of varying lengths.
                    inputs.extend(literals.into_iter().flat_map(|text| {
                        (0..3).map(move |version| [&[version, 5], text.as_bytes()].concat())
                    }));
                }
                inputs
            }
            Seeds::Json => {
                let mut inputs = BTreeSet::new();
                for name in
                    ["README.md", "docs/ledger.md", "docs/limiter.md", "docs/locks.md", "docs/events.md"]
                {
                    let text = crate::sources::read(&program::root().join(name))?;
                    for example in json_examples(&text) {
                        inputs.extend((0..21).map(|kind: u8| [&[kind], example.as_bytes()].concat()));
                    }
                }
                inputs
            }
        };
        for (number, input) in inputs.iter().enumerate() {
            let path = folder.join(format!("{number:05}"));
            std::fs::write(&path, input).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(())
    }
}

/// The string literals in Rust code, without their escapes. Raw strings are left out.
fn literals(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut letters = code.chars();
    while letters.by_ref().any(|letter| letter == '"') {
        let mut text = String::new();
        while let Some(letter) = letters.next() {
            match letter {
                '"' => break,
                '\\' => match letters.next() {
                    Some('n') => text.push('\n'),
                    Some('r') => text.push('\r'),
                    Some('0') => text.push('\0'),
                    Some('t') => text.push('\t'),
                    Some(other) => text.push(other),
                    None => break,
                },
                other => text.push(other),
            }
        }
        if text.contains('\n') {
            found.push(text);
        }
    }
    found
}

/// The outermost objects of JSON in a document.
fn json_examples(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (mut depth, mut start) = (0_usize, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '{' => {
                if depth == 0 {
                    start = at;
                }
                depth += 1;
            }
            '}' if depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    found.push(text[start..=at].to_owned());
                }
            }
            _ => {}
        }
    }
    found.retain(|example| example.contains('"'));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_found_in_test_data() {
        assert_eq!(literals(r#"check("SEND\n\n\0", "x"); "#), ["SEND\n\n\0"]);
        assert_eq!(json_examples(r#"See `{"a": {"b": 1}}` and {x}."#), [r#"{"a": {"b": 1}}"#]);
    }

    #[test]
    fn the_end_of_a_run_is_summed_up() {
        let text = "#10 NEW cov: 5 ft: 6\n#99 DONE   cov: 17 ft: 20\nstat::number_of_executed_units: 99\n";
        assert_eq!(summary(text), "99 executions, coverage 17");
    }
}
