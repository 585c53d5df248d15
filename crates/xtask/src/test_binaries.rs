//! Builds the test binaries of the workspace and runs several at a time.
//!
//! `cargo test` runs one binary after the other. The end-to-end tests mostly wait, so the processors are idle for half of
//! that time. Each binary writes to a log file of its own, which is printed if the binary fails.

use cargo_metadata::Message;
use std::{
    cmp::Reverse,
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use crate::program::{self, Environment, Outcome};

/// Programs that run at the same time: more than there are processors, because many tests mostly wait.
const LANES: usize = 3;

/// The binaries that take longest, so that none of them starts last.
const SLOWEST_FIRST: &[&str] = &[
    "limina: e2e",
    "limina: cluster",
    "schemathesis",
    "client packages",
    "console",
    "store: all",
    "sim: all",
];

/// The crates whose tests need no server, no database and nothing installed.
pub(crate) const SELF_CONTAINED: &[&str] =
    &["access", "api", "engine", "envoy", "node", "shard", "sim", "stomp"];

/// The tests of the Rust client, which need the server.
const RUST_CLIENT: &str = "rust: all";

/// The examples that are built. Those of `limina-embed` are part of its test binary, because linking each of them takes seconds.
const EXAMPLES: &[&str] = &["bench", "nightly_report", "resident", "web_api"];

/// One program to run: a test binary, or cargo with the documentation tests.
pub(crate) struct Job {
    /// The crate's folder and the target, such as `limina: e2e`.
    name: String,
    /// What repeats this job alone.
    again: String,
    command: Command,
}

impl Job {
    fn is_self_contained(&self) -> bool {
        self.name.split_once(": ").is_some_and(|(folder, _)| SELF_CONTAINED.contains(&folder))
    }
}

/// How a job ended.
struct Finished {
    name: String,
    again: String,
    is_success: bool,
    took: Duration,
    log: PathBuf,
}

/// What `cargo xtask test` builds: everything but the benchmarks and the hostile clients, whose own commands lint and test them.
pub(crate) const WHAT: &[&str] = &[
    "--workspace",
    "--exclude",
    "limina-bench",
    "--exclude",
    "limina-hostile",
    "--features",
    "limina/cli,limina-server/openapi",
];

/// Builds the test binaries of these packages, and gives each to `ready` as soon as it is there. Returns the server if it is among
/// them.
fn build(
    environment: &Environment,
    packages: &[&str],
    mut ready: impl FnMut(Job),
) -> Result<Option<PathBuf>, String> {
    let mut cargo = cargo_with(environment, &["test", "--no-run", "--tests"]);
    cargo.args(packages).arg("--message-format=json-render-diagnostics");
    let told = program::describe(&cargo);
    println!("xtask: {told}");
    let failed = |error: std::io::Error| format!("{told}: {error}");
    let mut cargo = cargo.current_dir(program::root()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let output = BufReader::new(cargo.stdout.take().expect("it is piped"));
    let mut server = None;
    for message in Message::parse_stream(output) {
        let Message::CompilerArtifact(artifact) = message.map_err(failed)? else { continue };
        let Some(program) = artifact.executable.as_ref().map(|path| path.as_std_path()) else { continue };
        if artifact.profile.test {
            ready(binary(artifact.manifest_path.as_std_path(), &artifact.target, program)?);
        } else if artifact.target.name == "limina" {
            server = Some(program.to_owned());
        }
    }
    match cargo.wait().map_err(failed)?.success() {
        true => Ok(server),
        false => Err(format!("failed: {told}")),
    }
}

/// Everything that CI runs, besides the test binaries.
fn other_jobs(environment: &Environment, server: &Path) -> Result<Vec<Job>, String> {
    // The examples are built last: they need few crates, so a build that begins with them does not keep both processors busy.
    // `cargo test --example` would build the tests of the examples.
    let mut examples = cargo_with(environment, &["build"]);
    examples.args(WHAT).args(EXAMPLES.iter().flat_map(|name| ["--example", name]));
    program::run(examples)?;
    Ok(vec![
        schemathesis(server)?,
        envoy(server)?,
        client_packages(server)?,
        console(server)?,
        documentation_tests(),
    ])
}

fn cargo_with(environment: &Environment, args: &[&str]) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(args).envs(environment.iter().map(|(name, value)| (name, value)));
    cargo
}

/// What `check` leaves to `test`: half a minute of processor time each. The first compares what the engine counts with what it
/// allocates; of the simulator, the short seeds stay.
const MEMORY: &str = "engine: memory";
const SIMULATOR: &str = "sim: all";
const LONG_SEEDS: &str = "seeds::long_runs";

/// Builds the tests of the self-contained crates, and runs them.
pub(crate) fn run_self_contained(build_environment: &Environment) -> Outcome {
    let logs = logs()?;
    let packages: Vec<String> =
        SELF_CONTAINED.iter().map(|name| format!("--package=limina-{name}")).collect();
    let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
    let mut jobs = Vec::new();
    build(build_environment, &packages, |mut job| match job.name.as_str() {
        MEMORY => {}
        SIMULATOR => {
            job.command.args(["--skip", LONG_SEEDS]);
            jobs.push(job);
        }
        _ => jobs.push(job),
    })?;
    summarize(run(jobs, &logs, build_environment))
}

/// Builds everything, and runs it. `installed` waits for what the tests use besides the workspace.
pub(crate) fn run_all(
    build_environment: &Environment,
    test_environment: &Environment,
    installed: impl FnOnce() -> Outcome,
) -> Outcome {
    let logs = logs()?;
    let environment = [&build_environment[..], test_environment].concat();
    let (early, waiting) = mpsc::channel();
    let waiting = Mutex::new(waiting);
    thread::scope(|scope| {
        // The last crates are built one after the other, and leave a processor to tests that need nothing else.
        let begun = scope.spawn(|| {
            let next = || lock(&waiting).recv().ok();
            std::iter::from_fn(next).map(|job| finish(job, &logs, &environment)).collect::<Vec<_>>()
        });
        let mut jobs = Vec::new();
        let server = build(build_environment, WHAT, |job| match job.is_self_contained() {
            true => early.send(job).expect("it is received"),
            false => jobs.push(job),
        });
        // Without a sender, the thread ends after the job that it runs, or at once if it waits for one, with the lock.
        drop(early);
        jobs.extend(lock(&waiting).try_iter());
        let server = server?.ok_or("cargo did not build the server")?;
        jobs.extend(other_jobs(build_environment, &server)?);
        for job in jobs.iter_mut().filter(|job| job.name == RUST_CLIENT) {
            job.command.envs(crate::client_packages::smoke_test(&server));
        }
        installed()?;
        let mut finished = run(jobs, &logs, &environment);
        finished.extend(begun.join().map_err(|_| "a test run panicked; see above")?);
        summarize(finished)
    })
}

fn logs() -> Result<PathBuf, String> {
    let logs = program::target_directory()?.join("test-logs");
    std::fs::create_dir_all(&logs).map_err(|error| format!("{}: {error}", logs.display()))?;
    Ok(logs)
}

/// Runs the jobs, the slowest ones first. `environment` is set for each of them.
fn run(mut jobs: Vec<Job>, logs: &Path, environment: &Environment) -> Vec<Finished> {
    let place =
        |job: &Job| SLOWEST_FIRST.iter().position(|slow| *slow == job.name).unwrap_or(SLOWEST_FIRST.len());
    jobs.sort_by_key(place);
    println!("xtask: running {} test binaries, {LANES} at a time; output in {}", jobs.len(), logs.display());
    // Threads take jobs from the end.
    jobs.reverse();
    let (waiting, finished) = (Mutex::new(jobs), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                loop {
                    // A statement of its own: in the condition of a loop, the lock would be held while the job runs.
                    let next = lock(&waiting).pop();
                    let Some(job) = next else { break };
                    let ended = finish(job, logs, environment);
                    lock(&finished).push(ended);
                }
            });
        }
    });
    finished.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Runs a job to its end, and reports it.
fn finish(mut job: Job, logs: &Path, environment: &Environment) -> Finished {
    job.command.envs(environment.iter().map(|(name, value)| (name, value)));
    let ended = execute(job, logs);
    report(&ended);
    ended
}

/// A test binary, run as `cargo test` would run it: in its crate's folder.
fn binary(manifest: &Path, target: &cargo_metadata::Target, program: &Path) -> Result<Job, String> {
    let folder = manifest.parent().ok_or("a manifest without a folder")?;
    // The folder of each crate has the crate's name, without the prefix.
    let folder_name = folder.file_name().unwrap_or_default().to_string_lossy();
    let (name, which) = if target.is_test() {
        (target.name.clone(), format!("--test {}", target.name))
    } else if target.is_bin() {
        (format!("{} (bin)", target.name), format!("--bin {}", target.name))
    } else {
        (format!("{} (lib)", target.name), "--lib".to_owned())
    };
    let mut command = Command::new(program);
    command.current_dir(folder).env("CARGO_MANIFEST_DIR", folder);
    let name = format!("{folder_name}: {name}");
    Ok(Job {
        again: match name.as_str() {
            RUST_CLIENT => "cargo xtask clients-e2e --smoke rust".to_owned(),
            _ => format!("cargo test --manifest-path crates/{folder_name}/Cargo.toml {which}"),
        },
        name,
        command,
    })
}

/// Envoy in front of the server that the end-to-end tests use.
fn envoy(server: &Path) -> Result<Job, String> {
    let command = crate::envoy::job(server)?;
    Ok(Job { name: "envoy".into(), again: "cargo xtask envoy --smoke".into(), command })
}

/// schemathesis against the server that the end-to-end tests use.
fn schemathesis(server: &Path) -> Result<Job, String> {
    let command = crate::schemathesis::job(server)?;
    Ok(Job { name: "schemathesis".into(), again: "cargo xtask schemathesis".into(), command })
}

/// The packages under `clients` against the same server.
fn client_packages(server: &Path) -> Result<Job, String> {
    let command = crate::client_packages::job(server)?;
    Ok(Job { name: "client packages".into(), again: "cargo xtask clients-e2e --smoke".into(), command })
}

/// The console against the same server, in a browser.
fn console(server: &Path) -> Result<Job, String> {
    let command = crate::console::job(server)?;
    Ok(Job { name: "console".into(), again: "cargo xtask console-e2e --smoke".into(), command })
}

fn documentation_tests() -> Job {
    let args = [&["test", "--doc"], WHAT].concat();
    let mut command = Command::new(env!("CARGO"));
    command.args(&args).current_dir(program::root());
    Job { name: "documentation tests".into(), again: format!("cargo {}", args.join(" ")), command }
}

/// Runs a job to its end, with its output in a file.
fn execute(mut job: Job, logs: &Path) -> Finished {
    let file = job.name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
    let log = logs.join(format!("{file}.log"));
    let begin = Instant::now();
    let status = File::create(&log).and_then(|output| {
        let errors = output.try_clone()?;
        job.command.stdin(Stdio::null()).stdout(output).stderr(errors).status()
    });
    if let Err(error) = &status {
        eprintln!("xtask: {}: {error}", job.name);
    }
    Finished {
        name: job.name,
        again: job.again,
        is_success: status.is_ok_and(|status| status.success()),
        took: begin.elapsed(),
        log,
    }
}

/// Prints one line of a success, and the whole output of a failure.
fn report(ended: &Finished) {
    let output = output(ended);
    let seconds = ended.took.as_secs_f64();
    match ended.is_success {
        true => println!("xtask: ok {seconds:6.1} s  {}, {}", ended.name, passed(&output)),
        false => println!("{output}\nxtask: FAILED after {seconds:.1} s: {} (output above)", ended.name),
    }
}

fn output(ended: &Finished) -> String {
    match std::fs::read(&ended.log) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => format!("{}: {error}", ended.log.display()),
    }
}

/// What took longest, then the failed binaries and tests, after everything else has been printed.
fn summarize(mut finished: Vec<Finished>) -> Outcome {
    finished.sort_by_key(|ended| Reverse(ended.took));
    println!("xtask: the slowest:");
    for ended in finished.iter().take(10) {
        println!("{:12.1} s  {}", ended.took.as_secs_f64(), ended.name);
    }
    let failures: Vec<String> = (finished.iter().filter(|ended| !ended.is_success))
        .map(|ended| {
            let tests: String =
                failed_tests(&output(ended)).iter().map(|test| format!("\n    {test}")).collect();
            format!("\n  {}{tests}\n    repeat with: {}", ended.name, ended.again)
        })
        .collect();
    match failures.is_empty() {
        true => Ok(()),
        false => Err(format!("{} test binaries failed:{}", failures.len(), failures.concat())),
    }
}

/// How many tests passed, summed over the result lines of an output (the documentation tests print one for each crate).
fn passed(output: &str) -> String {
    let results = output.lines().filter_map(|line| line.strip_prefix("test result: ok. "));
    let counts = results.filter_map(|line| line.split(' ').next()?.parse::<u64>().ok());
    format!("{} passed", counts.sum::<u64>())
}

/// The names of the tests that an output says failed.
fn failed_tests(output: &str) -> Vec<&str> {
    let line = |line: &'_ str| line.starts_with("test ") && line.ends_with(" ... FAILED");
    let names = output.lines().filter(|text| line(text));
    names.map(|text| text["test ".len()..].trim_end_matches(" ... FAILED")).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "running 3 tests\ntest holds::refused ... FAILED\ntest holds::granted ... ok\n\n\
        test result: FAILED. 2 passed; 1 failed; 0 ignored\ntest result: ok. 7 passed; 0 failed; 0 ignored\n\
        test result: ok. 3 passed; 0 failed; 1 ignored\n";

    #[test]
    fn outputs_are_summed_up() {
        assert_eq!(failed_tests(OUTPUT), ["holds::refused"]);
        assert_eq!(passed(OUTPUT), "10 passed");
    }
}
