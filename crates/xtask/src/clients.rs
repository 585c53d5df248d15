//! The real clients that the end-to-end tests run: installed beside the build, never for the whole machine.

use cargo_metadata::MetadataCommand;
use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::packages::{self, Package};

/// The scripts, and which versions of which clients they need.
const SOURCES: &str = "crates/limina/tests/clients";

const PACKAGES: &[Package] = &[
    Package { name: "nodejs", is_there: || packages::runs("node", &["--version"]) },
    Package { name: "npm", is_there: || packages::runs("npm", &["--version"]) },
    // Debian has the module `venv` without this package, but not what fills a new environment.
    Package {
        name: "python3-venv",
        is_there: || packages::runs("python3", &["-c", "import ensurepip, venv"]),
    },
];

/// Installs the clients from npm and PyPI, unless the very same ones were installed before.
pub(crate) fn install() -> Result<(), String> {
    let metadata = MetadataCommand::new().no_deps().exec().map_err(|error| error.to_string())?;
    let place = metadata.target_directory.as_std_path().join("clients");
    let wanted = Wanted::read()?;
    let stamp = place.join("installed");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted.all()) {
        return Ok(());
    }
    packages::install(PACKAGES)?;
    // What an earlier attempt left behind could be half of it.
    let _none_yet = std::fs::remove_dir_all(&place);
    wanted.install(&place)?;
    write(&stamp, &wanted.all())
}

/// The files that say what to install.
struct Wanted {
    package: String,
    lock: String,
    requirements: String,
}

impl Wanted {
    fn read() -> Result<Wanted, String> {
        let read = |name: &str| {
            let path = crate::root().join(SOURCES).join(name);
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

    /// To `node_modules` and `python`, both in `place`.
    fn install(&self, place: &Path) -> Result<(), String> {
        std::fs::create_dir_all(place).map_err(|error| format!("{}: {error}", place.display()))?;
        write(&place.join("package.json"), &self.package)?;
        write(&place.join("package-lock.json"), &self.lock)?;
        write(&place.join("requirements.txt"), &self.requirements)?;
        run(place, "npm".into(), &["ci", "--no-audit", "--no-fund", "--ignore-scripts"])?;
        run(place, "python3".into(), &["-m", "venv", "python"])?;
        let pip = ["-m", "pip", "install", "--quiet", "--requirement", "requirements.txt"];
        run(place, place.join("python/bin/python"), &pip)
    }
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn run(place: &Path, program: PathBuf, args: &[&str]) -> Result<(), String> {
    let told = format!("{} {}", program.display(), args.join(" "));
    println!("xtask: {told}");
    let status = Command::new(&program).args(args).current_dir(place).status();
    match status.map_err(|error| format!("{told}: {error}"))?.success() {
        true => Ok(()),
        false => Err(format!("failed: {told}")),
    }
}
