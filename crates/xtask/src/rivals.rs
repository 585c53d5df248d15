//! Installs and builds the systems that the benchmarks compare Limina with. The tests do not need them.

use crate::{
    packages::{self, Package},
    program,
};

/// The crate that runs the rivals that are crates. It is not part of the workspace.
pub(crate) const MANIFEST: &str = "crates/rivals/Cargo.toml";

/// Builds the rivals that are crates, into the folder of the benchmark's program, which looks for them there.
pub(crate) fn build() -> Result<(), String> {
    let target = program::target_directory()?.display().to_string();
    program::cargo(&[
        "build",
        "--profile",
        "dist",
        "--locked",
        "--manifest-path",
        MANIFEST,
        "--target-dir",
        &target,
    ])
}

/// Installs PostgreSQL and Redis if they are missing.
pub(crate) fn install() -> Result<(), String> {
    // The packages also start services on the usual ports, which the benchmarks do not use.
    packages::install(&[
        packages::POSTGRES,
        Package { name: "redis-server", is_installed: || packages::runs("redis-server", &["--version"]) },
    ])?;
    println!("xtask: PostgreSQL and Redis are installed");
    Ok(())
}
