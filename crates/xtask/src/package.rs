//! Builds the programs for packages, with profile-guided optimization.
//!
//! The first build counts how often each branch is taken. The benchmarks run with it. Then the compiler reads these counts, and
//! places and inlines code accordingly in the second build.

use crate::{
    packages,
    program::{self, Outcome},
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The cargo profile of both builds. The names of functions depend on it, so the counts of another profile would not be found.
const PROFILE: &str = "dist";

const PROGRAMS: [&str; 2] = ["limina", "limina-bench"];

/// Each family of the benchmarks, and the parts of it that send requests to a server.
const TRAINING: &[(&str, &str)] = &[
    ("limiter", "http,http-batch,http-namespaces,echo"),
    ("ledger", "http,http-batch,http-namespaces,echo"),
    ("locks", "http,http-contended,http-heartbeats"),
    ("events", "http,http-hot,fan-out"),
    ("decisions", "http-1,http-3,http-8,http-batch-3"),
    ("envoy", "grpc-1,grpc-4"),
    // The last part also loads many records.
    ("cluster", "ledger,ledger-batch,checks,counters,moves"),
];

pub(crate) fn build() -> Outcome {
    packages::install(&[packages::POSTGRES])?;
    let toolchain = Toolchain::find()?;
    let folder = program::target_directory()?.join("guided");
    let (counts, merged) = (folder.join("counts"), folder.join("counts.profdata"));
    // Counts of another version of the code would be misread.
    if counts.exists() {
        fs::remove_dir_all(&counts).map_err(|error| format!("{}: {error}", counts.display()))?;
    }
    let output = folder.join(&toolchain.host).join(PROFILE);
    toolchain.build(&folder, &format!("-Cprofile-generate={}", counts.display()))?;
    train(&output, &folder)?;
    toolchain.merge(&counts, &merged)?;
    toolchain.build(&folder, &format!("-Cprofile-use={}", merged.display()))?;
    let place = program::target_directory()?.join("package");
    fs::create_dir_all(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    for program in PROGRAMS {
        let copied = fs::copy(output.join(program), place.join(program));
        copied.map_err(|error| format!("copying {program}: {error}"))?;
        println!("xtask: {} is built", place.join(program).display());
    }
    Ok(())
}

/// Runs the benchmark program of the folder `programs`. Its data is in the folder `data`.
fn train(programs: &Path, data: &Path) -> Outcome {
    for (family, parts) in TRAINING {
        let mut command = Command::new(programs.join("limina-bench"));
        command.args([family, "--seconds", "2", "--only", parts, "--data"]).arg(data);
        program::run(command)?;
    }
    Ok(())
}

/// The compiler that is in use.
struct Toolchain {
    host: String,
    /// Adds up what several processes have counted. It must be of the compiler's own version.
    profdata: PathBuf,
}

impl Toolchain {
    fn find() -> Result<Toolchain, String> {
        let about = packages::output("rustc", &["-vV"]).ok_or("rustc cannot be run")?;
        let host = about.lines().find_map(|line| line.strip_prefix("host: "));
        let host = host.ok_or("rustc does not say for which host it builds")?.to_owned();
        let sysroot = packages::output("rustc", &["--print", "sysroot"]).ok_or("rustc cannot be run")?;
        let tools = Path::new(sysroot.trim()).join("lib/rustlib").join(&host).join("bin");
        let profdata = tools.join("llvm-profdata");
        if !profdata.is_file() && !packages::runs("rustup", &["component", "add", "llvm-tools"]) {
            return Err(format!("{} is missing: install the component llvm-tools", profdata.display()));
        }
        Ok(Toolchain { host, profdata })
    }

    /// The host is named because cargo would otherwise pass the flags to build scripts and macros too.
    fn build(&self, folder: &Path, flags: &str) -> Outcome {
        let mut command = Command::new(env!("CARGO"));
        command.args(["build", "--profile", PROFILE, "--target", &self.host, "--target-dir"]).arg(folder);
        for program in PROGRAMS {
            command.args(["--package", program]);
        }
        command.args(["--features", "limina/cli"]).env("RUSTFLAGS", flags);
        program::run(command)
    }

    fn merge(&self, counts: &Path, merged: &Path) -> Outcome {
        let mut command = Command::new(&self.profdata);
        command.args(["merge", "--output"]).arg(merged).arg(counts);
        program::run(command)
    }
}
