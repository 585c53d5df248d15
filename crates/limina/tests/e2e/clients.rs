//! Real client libraries in processes of their own. Each reads commands line by line, and prints its results line by
//! line.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::DEADLINE;

pub(crate) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: mpsc::Receiver<String>,
    _home: TempDir,
}

impl Client {
    /// Starts one of our scripts with node, and with the packages that `cargo xtask test` has installed.
    #[track_caller]
    pub(crate) fn node(script: &str, args: &[&str]) -> Client {
        let modules = installed("node_modules/@stomp/stompjs").ancestors().nth(2).expect("above").to_owned();
        installed("node_modules/ws");
        // Node looks for packages beside the script.
        let home = TempDir::new().expect("a temporary directory");
        for entry in scripts().read_dir().expect("the scripts").flatten() {
            std::fs::copy(entry.path(), home.path().join(entry.file_name())).expect("copy a script");
        }
        std::os::unix::fs::symlink(modules, home.path().join("node_modules")).expect("a link");
        let mut command = Command::new("node");
        command.arg(home.path().join(script)).args(args);
        Client::spawn(command, home)
    }

    #[track_caller]
    pub(crate) fn python(script: &str, args: &[&str]) -> Client {
        let home = TempDir::new().expect("a temporary directory");
        let mut command = Command::new(installed("python/bin/python"));
        command.arg("-B").arg(scripts().join(script)).args(args);
        Client::spawn(command, home)
    }

    #[track_caller]
    fn spawn(mut command: Command, home: TempDir) -> Client {
        let told = format!("{command:?}");
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap_or_else(|e| {
                panic!("cannot run {told}: {e}; `cargo xtask test` installs what it needs")
            });
        let stdout = child.stdout.take().expect("stdout was piped");
        let stdin = child.stdin.take();
        let (said, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if said.send(line).is_err() {
                    return;
                }
            }
        });
        Client { child, stdin, lines, _home: home }
    }

    #[track_caller]
    pub(crate) fn tell(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("not ended yet");
        writeln!(stdin, "{line}").expect("the client listens");
    }

    /// The next line. `None` after the client has ended.
    #[track_caller]
    pub(crate) fn line(&mut self) -> Option<String> {
        match self.lines.recv_timeout(DEADLINE) {
            Ok(line) => Some(line),
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("the client says nothing"),
        }
    }

    /// The next line as JSON.
    #[track_caller]
    pub(crate) fn said(&mut self) -> Value {
        let line = self.line().expect("the client has ended");
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"))
    }

    /// The next callback of the library, which must have this name.
    #[track_caller]
    pub(crate) fn called(&mut self, what: &str) -> Value {
        let said = self.said();
        assert_eq!(said["called"], what, "{said}");
        said
    }

    /// Closes the client's standard input.
    pub(crate) fn end(&mut self) {
        self.stdin = None;
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn scripts() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/clients")
}

/// A file that `cargo xtask test` puts beside the build.
#[track_caller]
fn installed(what: &str) -> PathBuf {
    let target =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target directory").to_owned();
    let path = target.join("clients").join(what);
    assert!(
        path.exists(),
        "{} is missing: this test runs a real client, which `cargo xtask test` installs; run that",
        path.display()
    );
    path
}
