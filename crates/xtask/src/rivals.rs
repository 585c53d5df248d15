//! What the benchmark compares Limina with. The tests never need it.

use cargo_metadata::MetadataCommand;

use crate::packages::{self, Package};

/// The crate of the rivals that are crates: no part of the workspace.
pub(crate) const MANIFEST: &str = "crates/rivals/Cargo.toml";

/// Builds the rivals that are crates, to where the benchmark is built, since it looks for them beside itself.
pub(crate) fn build() -> Result<(), String> {
    let metadata = MetadataCommand::new().no_deps().exec().map_err(|error| error.to_string())?;
    let target = metadata.target_directory.as_str();
    crate::cargo(&["build", "--release", "--locked", "--manifest-path", MANIFEST, "--target-dir", target])
}

/// Installs PostgreSQL and Redis where they are missing.
pub(crate) fn install() -> Result<(), String> {
    // The packages come with services of their own, on the usual ports, which the benchmark does not use.
    packages::install(&[
        packages::POSTGRES,
        Package { name: "redis-server", is_there: || packages::runs("redis-server", &["--version"]) },
    ])?;
    println!("xtask: PostgreSQL and Redis are installed");
    Ok(())
}
