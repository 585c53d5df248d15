//! Everything that CI checks.

use std::{process::Command, thread};

use crate::{Outcome, cargo, clients, fuzz, packages, rivals, schemathesis, test_binaries};

pub(crate) fn run() -> Outcome {
    cargo(&["fmt", "--all", "--check"])?;
    for outside in [rivals::MANIFEST, fuzz::MANIFEST] {
        cargo(&["fmt", "--manifest-path", outside, "--check"])?;
    }
    crate::check_layers()?;
    // Downloading and compiling do not get in each other's way.
    let installed = thread::spawn(install);
    lint()?;
    let jobs = test_binaries::build()?;
    installed.join().map_err(|_| "installing panicked; see above")??;
    test_binaries::run(jobs, &crate::target_directory()?, &environment())
}

fn lint() -> Outcome {
    cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"])?;
    let mut doc = Command::new(env!("CARGO"));
    doc.args(["doc", "--workspace", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "-D warnings");
    crate::run(doc)
}

/// Installs what the tests use besides the workspace, if it is missing.
fn install() -> Outcome {
    clients::install()?;
    schemathesis::install()?;
    packages::install(&[packages::POSTGRES, packages::C_COMPILER])
}

/// What is set for the tests.
fn environment() -> Vec<(&'static str, String)> {
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
