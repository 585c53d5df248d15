//! The commands of developers and of CI: `cargo xtask test` and others. [`USAGE`] describes them.

mod architecture;
mod bench;
mod chaos;
mod check;
mod circles;
mod client_packages;
mod clients;
mod console;
mod edge;
mod envoy;
mod fuzz;
mod hostile;
mod layers;
mod modules;
mod package;
mod packages;
mod paths;
mod program;
mod rivals;
mod schemathesis;
mod sources;
mod standby;
mod test;
mod test_binaries;
mod tokens;
mod types;

use program::{Outcome, cargo, root, run, words};
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rest = args.get(1..).unwrap_or_default();
    let result = match args.first().map(String::as_str) {
        Some("test") if rest.is_empty() => test::run(),
        Some("check") if rest.is_empty() => check::run(),
        Some("bench") if rest.is_empty() => bench::test(),
        Some("layers") if rest.is_empty() => layers::check(),
        Some("sim") => cargo(
            &[&["run", "--release", "--quiet", "--package", "limina-sim", "--"], &words(rest)[..]].concat(),
        ),
        Some("chaos") => chaos::run(rest),
        Some("clients") if rest.is_empty() => clients::install(),
        Some("clients-e2e") => client_packages::run(rest),
        Some("envoy") => envoy::run(rest),
        Some("console") if rest.is_empty() => console::build(),
        Some("console-e2e") => console::test(rest),
        Some("fuzz") => fuzz::run(rest),
        Some("hostile") => hostile::run(&words(rest)),
        Some("docs") if rest.is_empty() => docs(),
        Some("openapi") if rest.is_empty() => openapi().and_then(|()| types::write()),
        Some("package") if rest.is_empty() => package::build(),
        Some("rivals") if rest.is_empty() => rivals::install().and_then(|()| rivals::build()),
        Some("schemathesis") => schemathesis::run(rest),
        Some("standby") => standby::run(rest),
        Some("types") if rest.is_empty() => types::write(),
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
  test      run everything that CI runs: check format, layers and lints, and run all tests. Installs missing
            programs that the tests use (needs apt-get and root)
  check     for daily work, with nothing to install: check format, layers and lints, and run the tests of the crates that
            need no server, with the engine's scripts and some seeds of the simulator
  bench     lint the benchmarks, and run each for a moment; no other command builds them
  docs      build the documentation of the code; warnings are errors
  layers    check the dependencies between crates and between the modules of the engine, that only a few files of a crate
            use each other in a circle, and that the paths and links in the documents exist
  sim ARGS  run the simulator, e.g. --seeds 10000, or --seed 42 --verbose
  chaos     kill, pause and stop nodes of a cluster under load, for longer than the tests do: --minutes 10. --seed 42
            repeats a run
  standby   under load, lose the servers of a PostgreSQL with a synchronous standby, and promote the standby: --rounds 6
  clients   install the STOMP clients that the end-to-end tests use, under `target`; `test` includes this
  clients-e2e
            test the client packages under `clients` against the server: names of packages (all if none). --smoke runs
            the few tests that `test` includes; --packages builds what would be published, and checks it with twine, publint,
            attw and `cargo package`
  envoy     test the server with the real Envoy in front of it; `test` includes a part, --smoke. Installs Envoy under
            `target`
  console   bundle the sources in `console` into the files that the server embeds
  console-e2e
            test the console against the server in a real browser; screenshots are kept under `target`. --smoke runs the
            tests that `test` includes; --pictures makes the pictures of the README
  fuzz      feed random bytes to the code that reads the bytes of clients, nodes and disks: --seconds N for each target
            (60), or for one: --seconds N TARGET. Installs cargo-fuzz under `target` if it is missing
  hostile   play hostile clients to the release binary, and watch its memory and an honest client's latency: names of
            scenarios (all if none), --list, --minutes N
  openapi   regenerate docs/openapi.json from the code, and from it what `types` does
  package   build `limina` and `limina-bench` for packages into `target/package`: as the profile `dist` does, and with what
            the compiler learns from a run of the benchmarks. Takes about half an hour. Installs PostgreSQL for that run
            (needs apt-get and root), and the component llvm-tools of the toolchain
  rivals    install PostgreSQL and Redis for the benchmarks (needs apt-get and root), and build the rivals that are
            crates
  schemathesis
            test the server against docs/openapi.json with generated requests; `test` includes this. --minutes N: longer, and
            with new cases
  types     regenerate the types of the TypeScript client, the Python client and the console from docs/openapi.json";

/// The documentation of the code must be complete, and its links must exist.
fn docs() -> Outcome {
    let mut command = Command::new(env!("CARGO"));
    command.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
    run(command)
}

fn openapi() -> Outcome {
    let output = Command::new(env!("CARGO"))
        .args([
            "run",
            "--quiet",
            "--package",
            "limina-server",
            "--features",
            "openapi",
            "--example",
            "openapi",
        ])
        .current_dir(root())
        .output()
        .map_err(|error| format!("running the example: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let path = root().join("docs/openapi.json");
    std::fs::write(&path, output.stdout).map_err(|error| format!("writing {}: {error}", path.display()))
}
