//! What developers and CI run: `cargo xtask test`, `layers`, `chaos`, `clients`, `sim`, `openapi`, `rivals`, `standby`.

mod architecture;
mod chaos;
mod clients;
mod edge;
mod layers;
mod modules;
mod packages;
mod rivals;
mod standby;

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

type Outcome = Result<(), String>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rest = args.get(1..).unwrap_or_default();
    let result = match args.first().map(String::as_str) {
        Some("test") if rest.is_empty() => test(),
        Some("layers") if rest.is_empty() => check_layers(),
        Some("sim") => cargo(
            &[&["run", "--release", "--quiet", "--package", "limina-sim", "--"], &words(rest)[..]].concat(),
        ),
        Some("chaos") => chaos::run(rest),
        Some("clients") if rest.is_empty() => clients::install(),
        Some("openapi") if rest.is_empty() => openapi(),
        Some("rivals") if rest.is_empty() => rivals::install().and_then(|()| rivals::build()),
        Some("standby") => standby::run(rest),
        _ => Err(USAGE.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

const USAGE: &str = "usage: cargo xtask COMMAND
  test      everything that CI checks: format, layers, lints, docs, all tests; installs PostgreSQL where it is missing
            (needs apt-get and root)
  layers    the dependency directions between crates and inside the engine, and ARCHITECTURE.md against the tree
  chaos     kill, pause and stop nodes of a cluster under load for longer than the tests do: --minutes 10, and --seed 42
            to have the same done again
  clients   install the STOMP clients that the tests run, where they are missing (needs npm and Python, or apt-get and
            root to install these); `test` includes it
  sim ARGS  the simulator, e.g. --seeds 10000, or --seed 42 --verbose
  openapi   write docs/openapi.json anew
  rivals    install PostgreSQL and Redis for the benchmark, where they are missing (needs apt-get and root), and build
            the rivals that are crates
  standby   lose and promote the servers of a PostgreSQL with a synchronous standby under load: --rounds 6";

/// Dependencies between crates, dependencies between the engine's modules, wire types and error statuses in the server, and
/// ARCHITECTURE.md against the tree.
fn check_layers() -> Outcome {
    layers::check()?;
    modules::check(&root())?;
    edge::check(&root())?;
    architecture::check(&root())
}

/// Everything that CI checks.
fn test() -> Outcome {
    cargo(&["fmt", "--all", "--check"])?;
    cargo(&["fmt", "--manifest-path", rivals::MANIFEST, "--check"])?;
    check_layers()?;
    cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"])?;
    let mut doc = Command::new(env!("CARGO"));
    doc.args(["doc", "--workspace", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "-D warnings");
    run(doc)?;
    clients::install()?;
    packages::install(&[packages::POSTGRES, packages::C_COMPILER])?;
    let mut tests = Command::new(env!("CARGO"));
    tests.args(["test", "--workspace"]);
    // Many tests wait for something most of their time.
    let threads = 2 * std::thread::available_parallelism().map_or(1, usize::from);
    tests.env("RUST_TEST_THREADS", threads.to_string());
    if !may_mount() {
        println!("xtask: not allowed to mount a tmpfs here, so the full-disk test is skipped (root runs it)");
        tests.env("LIMINA_SKIP_TMPFS", "1");
    }
    run(tests)
}

/// The full-disk test needs a small file system of its own.
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

fn openapi() -> Outcome {
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--package", "limina", "--", "openapi"])
        .current_dir(root())
        .output()
        .map_err(|error| format!("running limina: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let path = root().join("docs/openapi.json");
    std::fs::write(&path, output.stdout).map_err(|error| format!("writing {}: {error}", path.display()))
}

fn cargo(args: &[&str]) -> Outcome {
    let mut command = Command::new(env!("CARGO"));
    command.args(args);
    run(command)
}

fn run(mut command: Command) -> Outcome {
    println!("xtask: {}", describe(&command));
    let status =
        command.current_dir(root()).status().map_err(|error| format!("{}: {error}", describe(&command)))?;
    if status.success() { Ok(()) } else { Err(format!("failed: {}", describe(&command))) }
}

fn describe(command: &Command) -> String {
    let args = command.get_args().map(|arg| arg.to_string_lossy());
    std::iter::once("cargo".into()).chain(args).collect::<Vec<_>>().join(" ")
}

fn words(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

/// The workspace's folder.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("xtask is two folders below the root").to_path_buf()
}
