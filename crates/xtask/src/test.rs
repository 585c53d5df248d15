//! `cargo xtask test`: everything that CI checks.

use std::{path::Path, process::Command, thread, time::Instant};

use crate::{
    clients, console, envoy, fuzz, layers, packages,
    program::{self, Environment, Outcome, cargo},
    rivals, schemathesis, test_binaries, types,
};

pub(crate) fn run() -> Outcome {
    let begin = Instant::now();
    check_text()?;
    // Downloading and compiling do not get in each other's way.
    let installed = thread::spawn(install);
    let target_directory = program::target_directory()?;
    let environment = [build_environment()?, for_first_build(&target_directory)].concat();
    let outcome = test_binaries::run_all(&environment, &test_environment(), || {
        println!("xtask: built after {}", took(begin));
        installed.join().map_err(|_| "installing panicked; see above")?
    });
    println!("xtask: ended after {}", took(begin));
    outcome
}

/// What needs no build: the format, the layers, the documents, the generated types.
pub(crate) fn check_text() -> Outcome {
    cargo(&["fmt", "--all", "--check"])?;
    for outside in [rivals::MANIFEST, fuzz::MANIFEST] {
        cargo(&["fmt", "--manifest-path", outside, "--check"])?;
    }
    layers::check()?;
    types::check()
}

/// Minutes and seconds, as `time` prints them.
pub(crate) fn took(begin: Instant) -> String {
    let seconds = begin.elapsed().as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

/// What is set for cargo. The test build is the lint at the same time: clippy's driver compiles the workspace, and every
/// warning is an error. A separate `cargo clippy` would read and check all the code once more.
pub(crate) fn build_environment() -> Result<Environment, String> {
    Ok(vec![
        ("RUSTC_WORKSPACE_WRAPPER", clippy_driver()?),
        ("CLIPPY_ARGS", "-Dwarnings__CLIPPY_HACKERY__".to_owned()),
    ])
}

/// Additional settings for a build from nothing, such as that of CI.
fn for_first_build(target_directory: &Path) -> Environment {
    // Incremental builds are prepared in `target/debug/incremental`. This program itself was built already.
    let prepared = std::fs::read_dir(target_directory.join("debug/incremental"));
    let mut names = prepared.into_iter().flatten().flatten().map(|entry| entry.file_name());
    if names.any(|name| name.to_string_lossy().starts_with("limina")) {
        return Vec::new();
    }
    println!(
        "xtask: without `cargo xtask check` before, nothing is prepared for incremental builds, which is quicker"
    );
    vec![("CARGO_INCREMENTAL", "0".to_owned())]
}

/// The program that `cargo clippy` runs in place of the compiler.
fn clippy_driver() -> Result<String, String> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).current_dir(program::root()).output();
    let output = output.map_err(|error| format!("running rustc: {error}"))?;
    let driver = Path::new(String::from_utf8_lossy(&output.stdout).trim()).join("bin/clippy-driver");
    match driver.is_file() {
        true => Ok(driver.display().to_string()),
        false => Err(format!("{} is missing: `rustup component add clippy` installs it", driver.display())),
    }
}

/// Installs what the tests use besides the workspace, if it is missing.
fn install() -> Outcome {
    clients::install()?;
    schemathesis::install()?;
    envoy::install()?;
    console::install()?;
    packages::install(&[packages::POSTGRES, packages::C_COMPILER, packages::CURL])
}

/// The environment of the tests.
pub(crate) fn test_environment() -> Environment {
    // Most tests wait for most of their time.
    let threads = 2 * thread::available_parallelism().map_or(1, usize::from);
    let mut environment = vec![("RUST_TEST_THREADS", threads.to_string())];
    if !may_mount() {
        println!(
            "xtask: mounting a tmpfs is not permitted here, so the full-disk test is skipped (root runs it)"
        );
        environment.push(("LIMINA_SKIP_TMPFS", "1".to_owned()));
    }
    environment
}

/// Whether a tmpfs can be mounted, which the full-disk test does.
fn may_mount() -> bool {
    let Ok(dir) = std::env::temp_dir().canonicalize() else { return false };
    let dir = dir.join(format!("limina-mount-{}", std::process::id()));
    let quietly = |program: &str, args: &[&str]| {
        Command::new(program).args(args).output().is_ok_and(|output| output.status.success())
    };
    let path = dir.display().to_string();
    let mounted = std::fs::create_dir(&dir).is_ok()
        && quietly("mount", &["-t", "tmpfs", "-o", "size=1m", "tmpfs", &path]);
    let unmounted = mounted && quietly("umount", &[&path]);
    let _best_effort = std::fs::remove_dir(&dir);
    unmounted
}
