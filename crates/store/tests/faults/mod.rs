//! Faults below a process, by a small preloaded C library. See `faults.c` for the rules.
// Each test binary uses a part of this module.
#![allow(dead_code)]

use std::{
    path::{Path, PathBuf},
    process::Command,
};

const SOURCE: &str = include_str!("faults.c");

/// A compiled library, and the file with the rules that it follows.
pub(crate) struct Faults {
    library: PathBuf,
    rules: PathBuf,
    log: PathBuf,
}

impl Faults {
    /// Compiles the library into a directory, which must exist as long as the process that uses it.
    #[track_caller]
    pub(crate) fn compile(directory: &Path) -> Faults {
        let (source, library) = (directory.join("faults.c"), directory.join("faults.so"));
        std::fs::write(&source, SOURCE).expect("the library's source");
        let compiled = Command::new("cc")
            .args(["-O1", "-shared", "-fPIC", "-o"])
            .args([&library, &source])
            .args(["-ldl"])
            .output()
            .expect("the tests of a failing disk need a C compiler: cc");
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        let faults = Faults { library, rules: directory.join("rules"), log: directory.join("log") };
        faults.set("");
        faults
    }

    /// Makes a process start with these rules.
    pub(crate) fn preload(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("FAULTS", &self.rules).env("FAULTS_LOG", &self.log);
    }

    /// Sets the rules. The file is replaced atomically, so no call sees a part of it.
    pub(crate) fn set(&self, rules: &str) {
        let draft = self.rules.with_extension("new");
        std::fs::write(&draft, rules).expect("the rules");
        std::fs::rename(&draft, &self.rules).expect("the rules");
    }

    /// What was created and synced so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}
