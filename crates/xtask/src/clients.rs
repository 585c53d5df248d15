//! Installs the real STOMP clients that the end-to-end tests use. They go into the build directory, not into the system.

use std::path::Path;

use crate::{packages, program};

/// The folder with the scripts of the tests and the pinned versions of the clients.
const SOURCES: &str = "crates/limina/tests/clients";

/// Installs the clients from npm and PyPI, unless the same versions are already installed.
pub(crate) fn install() -> Result<(), String> {
    let place = program::target_directory()?.join("clients");
    let wanted = Wanted::read()?;
    let stamp = place.join("installed");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted.all()) {
        return Ok(());
    }
    packages::install(&[packages::NODE, packages::NPM, packages::PYTHON])?;
    // An earlier attempt may have left an incomplete installation.
    let _none_yet = std::fs::remove_dir_all(&place);
    wanted.install(&place)?;
    write(&stamp, &wanted.all())
}

/// The files that pin the versions.
struct Wanted {
    package: String,
    lock: String,
    requirements: String,
}

impl Wanted {
    fn read() -> Result<Wanted, String> {
        let read = |name: &str| {
            let path = program::root().join(SOURCES).join(name);
            std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        Ok(Wanted {
            package: read("package.json")?,
            lock: read("package-lock.json")?,
            requirements: read("requirements.txt")?,
        })
    }

    fn all(&self) -> String {
        [self.package.as_str(), &self.lock, &self.requirements].join("\n")
    }

    /// Installs into the folders `node_modules` and `python` of `place`.
    fn install(&self, place: &Path) -> Result<(), String> {
        std::fs::create_dir_all(place).map_err(|error| format!("{}: {error}", place.display()))?;
        write(&place.join("package.json"), &self.package)?;
        write(&place.join("package-lock.json"), &self.lock)?;
        write(&place.join("requirements.txt"), &self.requirements)?;
        packages::run_in(place, "npm".as_ref(), &["ci", "--no-audit", "--no-fund", "--ignore-scripts"])?;
        packages::install_python(place)
    }
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
