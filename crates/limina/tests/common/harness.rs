//! A server process: starts, kills, stops and restarts it, and sends requests to it.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::ledger::Ledger;
use crate::reply::Reply;

/// No operation takes this long on a machine that can run the tests. The deadline turns a hang into a failure.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) const LIMINA: &str = env!("CARGO_BIN_EXE_limina");

pub(crate) struct Server {
    process: Process,
    address: SocketAddr,
    /// Where other nodes reach the server. `None` on a directory.
    peer_address: Option<SocketAddr>,
    http: reqwest::blocking::Client,
    args: Vec<OsString>,
    data: PathBuf,
    /// The additional environment variables of the process.
    env: Vec<(OsString, OsString)>,
    /// Held so that the directory is removed on drop. `None` if the caller owns the directory.
    _home: Option<TempDir>,
}

impl Server {
    /// Starts a server on a new, empty directory.
    #[track_caller]
    pub(crate) fn fresh() -> Server {
        let home = TempDir::new().expect("a temporary directory");
        let mut server = Server::start(home.path().join("data"));
        server._home = Some(home);
        server
    }

    #[track_caller]
    pub(crate) fn start(data: impl AsRef<Path>) -> Server {
        Server::start_with(data, &["--journal-segment-mib", "4"])
    }

    #[track_caller]
    pub(crate) fn start_with(data: impl AsRef<Path>, flags: &[&str]) -> Server {
        Server::start_under(data, flags, |_| ())
    }

    /// As `start_with`, with environment variables that `set` adds. A restart keeps them.
    #[track_caller]
    pub(crate) fn start_under(
        data: impl AsRef<Path>,
        flags: &[&str],
        set: impl FnOnce(&mut Command),
    ) -> Server {
        let data = data.as_ref().to_owned();
        let args = args_of(&data, flags);
        let mut environment = Command::new(LIMINA);
        set(&mut environment);
        let set = environment.get_envs().filter_map(|(name, value)| Some((name.into(), value?.into())));
        let env: Vec<(OsString, OsString)> = set.collect();
        let process = Process::spawn(limina().arg("serve").args(&args).envs(env.iter().cloned()));
        let address = process.address();
        Server { process, address, peer_address: None, http: client(), args, data, env, _home: None }
    }

    /// As `start_with`, in a process with a limit of the shell's `ulimit`, such as `-n 64`.
    #[track_caller]
    pub(crate) fn start_limited(data: impl AsRef<Path>, flags: &[&str], limit: &str) -> Server {
        let data = data.as_ref().to_owned();
        let args = args_of(&data, flags);
        let mut command = without_settings(Command::new("sh"));
        command.arg("-c").arg(format!("ulimit {limit}; exec \"$@\"")).args(["sh", LIMINA, "serve"]);
        let process = Process::spawn(command.args(&args));
        let address = process.address();
        let (peer_address, env) = (None, Vec::new());
        Server { process, address, peer_address, http: client(), args, data, env, _home: None }
    }

    /// Starts a node on a database, with these addresses for clients and for other nodes. It may not listen yet.
    #[track_caller]
    pub(crate) fn node(addresses: [SocketAddr; 2], flags: &[&str]) -> Server {
        Server::node_under(addresses, flags, &[])
    }

    /// As `node`, with other environment variables. A restart does not keep them.
    #[track_caller]
    pub(crate) fn node_under(
        addresses: [SocketAddr; 2],
        flags: &[&str],
        environment: &[(&str, &str)],
    ) -> Server {
        let [address, peer_address] = addresses;
        let args =
            ["--listen", &address.to_string(), "--peer-listen", &peer_address.to_string()].map(Into::into);
        let args: Vec<OsString> = args.into_iter().chain(flags.iter().map(Into::into)).collect();
        let process = Process::spawn(limina().arg("serve").args(&args).envs(environment.iter().copied()));
        let (data, env) = (PathBuf::new(), Vec::new());
        let peer_address = Some(peer_address);
        Server { process, address, peer_address, http: client(), args, data, env, _home: None }
    }

    /// Sends SIGKILL: the process ends as in a crash.
    pub(crate) fn kill(&mut self) {
        self.process.signal(Signal::KILL);
        self.process.exit();
    }

    /// Sends SIGTERM. The process must exit cleanly.
    #[track_caller]
    pub(crate) fn stop(&mut self) {
        self.process.signal(Signal::TERM);
        let status = self.process.exit();
        assert!(status.success(), "after SIGTERM: {status}\n{}", self.log());
    }

    /// Starts the server again after `kill` or `stop`, with the same arguments.
    #[track_caller]
    pub(crate) fn start_again(&mut self) {
        self.begin_again();
        self.address = self.process.address();
    }

    /// As `start_again`, but returns before the server listens.
    #[track_caller]
    pub(crate) fn begin_again(&mut self) {
        self.process.refuse_panics();
        let mut command = limina();
        self.process = Process::spawn(command.arg("serve").args(&self.args).envs(self.env.iter().cloned()));
        self.http = client();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    #[track_caller]
    pub(crate) fn restart(&mut self) {
        self.stop();
        self.start_again();
    }

    #[track_caller]
    pub(crate) fn crash_and_restart(&mut self) {
        self.kill();
        self.start_again();
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address at which other nodes reach the server.
    #[track_caller]
    pub(crate) fn peer_address(&self) -> SocketAddr {
        self.peer_address.expect("a node on a database")
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn http(&self) -> &reqwest::blocking::Client {
        &self.http
    }

    pub(crate) fn log(&self) -> String {
        self.process.log()
    }

    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    pub(crate) fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// The ledger of the namespace `default`.
    pub(crate) fn ledger(&self) -> Ledger {
        Ledger::new(self.http.clone(), self.url("/v1/ledger"))
    }

    pub(crate) fn ledger_of(&self, namespace: &str) -> Ledger {
        Ledger::new(self.http.clone(), self.url(&format!("/v1/ns/{namespace}/ledger")))
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Reply {
        Reply::to(self.http.get(self.url(path)))
    }

    #[track_caller]
    pub(crate) fn delete(&self, path: &str) -> Reply {
        Reply::to(self.http.delete(self.url(path)))
    }
}

/// The binary, without the environment variables that could configure it.
pub(crate) fn limina() -> Command {
    without_settings(Command::new(LIMINA))
}

fn args_of(data: &Path, flags: &[&str]) -> Vec<OsString> {
    let args = ["--listen".into(), "127.0.0.1:0".into(), "--data".into(), data.into()];
    args.into_iter().chain(flags.iter().map(Into::into)).collect()
}

fn without_settings(mut command: Command) -> Command {
    for (name, _) in std::env::vars() {
        if name.starts_with("LIMINA_") || name == "RUST_LOG" {
            command.env_remove(name);
        }
    }
    // On a busy machine a shard may wait for a processor longer than requests may wait by default.
    command.env("LIMINA_MAX_WAIT_MS", "30000");
    command
}

pub(crate) fn client() -> reqwest::blocking::Client {
    reqwest::blocking::Client::builder()
        .timeout(DEADLINE)
        .pool_max_idle_per_host(64)
        // No test needs the certificates of the system, and reading them takes longer than most requests together.
        .tls_certs_only([])
        .build()
        .expect("an HTTP client")
}

/// A child process that is killed when this value is dropped.
pub(crate) struct Process {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    address: mpsc::Receiver<SocketAddr>,
    reader: Option<std::thread::JoinHandle<()>>,
    exited: bool,
}

impl Process {
    #[track_caller]
    pub(crate) fn spawn(command: &mut Command) -> Process {
        // The client in clients/rust gives reqwest TLS without a provider, and the tests' HTTP clients panic without one.
        let _another_test_was_first = rustls::crypto::ring::default_provider().install_default();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("cannot run {LIMINA}: {e}"));
        let stderr = child.stderr.take().expect("stderr was piped");
        let log = Arc::new(Mutex::new(Vec::new()));
        let (found, address) = mpsc::channel();
        let lines = Arc::clone(&log);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                let address = listening_on(&line);
                lines.lock().unwrap().push(line);
                if let Some(address) = address {
                    // The receiver may be gone, but the log must still be read.
                    let _ = found.send(address);
                }
            }
        });
        Process { child, log, address, reader: Some(reader), exited: false }
    }

    /// Waits for the log line that names the address on which the server listens.
    #[track_caller]
    pub(crate) fn address(&self) -> SocketAddr {
        match self.address.recv_timeout(DEADLINE) {
            Ok(address) => address,
            Err(_) => panic!("never said `listening on http://…`; its log:\n{}", self.log()),
        }
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends the signal. After SIGSTOP, returns only when all threads of the process have stopped, because some of them
    /// continue for a moment.
    #[track_caller]
    pub(crate) fn signal(&self, signal: Signal) {
        assert!(!self.exited, "the process has exited already");
        kill_process(Pid::from_child(&self.child), signal).expect("signal to our own child");
        if signal == Signal::STOP {
            let stopped = eventually(|| self.has_stopped().then_some(()));
            stopped.expect("a process that is told to stop does");
        }
    }

    fn has_stopped(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("our own child");
        threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("stat")).ok()).all(
            |stat| {
                // The state follows the name, which is in parentheses.
                stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
            },
        )
    }

    /// Waits until the process and its log have ended.
    #[track_caller]
    pub(crate) fn exit(&mut self) -> ExitStatus {
        let status = match eventually(|| self.child.try_wait().expect("wait for our own child")) {
            Some(status) => status,
            None => panic!("still running after {DEADLINE:?}; its log:\n{}", self.log()),
        };
        self.exited = true;
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the log's reader");
        }
        status
    }

    /// Fails if the server has panicked: that is a defect even if the client got an answer.
    #[track_caller]
    fn refuse_panics(&self) {
        let log = self.log();
        assert!(!log.contains("panicked at"), "the server panicked:\n{log}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.exited {
            let _ = self.child.kill();
            let _ = self.child.wait();
            if let Some(reader) = self.reader.take() {
                let _ = reader.join();
            }
        }
        if std::thread::panicking() {
            eprintln!("--- the server's log ---\n{}\n---", self.log());
        } else {
            self.refuse_panics();
        }
    }
}

fn listening_on(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("listening on http")?;
    let (_, rest) = rest.split_once("://")?;
    let end = rest.find(|c: char| !(c.is_ascii_hexdigit() || ".:[]".contains(c))).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// Repeats `ask` until it returns something, or until the deadline.
pub(crate) fn eventually<T>(ask: impl FnMut() -> Option<T>) -> Option<T> {
    within(DEADLINE, ask)
}

/// As `eventually`, with a deadline of its own.
pub(crate) fn within<T>(deadline: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = ask() {
            return Some(found);
        }
        if start.elapsed() > deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
