//! The server: a process of its own, with its data in a temporary directory.

use crate::Failed;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Starting and stopping never take this long. The deadline turns a hang into a failure.
const DEADLINE: Duration = Duration::from_secs(120);
/// The log lines that are kept, to be printed if the server fails.
const KEPT_LINES: usize = 40;

/// What a scenario demands of the process.
#[derive(Default, Clone, Copy)]
pub(crate) struct Limits {
    /// The server's memory budget; none: the server chooses it.
    pub(crate) memory_mib: Option<u64>,
    /// `ulimit -v`, in MiB.
    pub(crate) address_space_mib: Option<u64>,
    /// `ulimit -n`.
    pub(crate) open_files: Option<u64>,
    /// The text of the server's configuration file.
    pub(crate) config: Option<&'static str>,
}

/// A running server. It is killed when the value is dropped.
pub(crate) struct Server {
    child: Child,
    address: SocketAddr,
    log: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Starts the server with its data below `directory`, and returns when it listens. All namespaces are in one shard, so that
    /// the honest client is in the shard of the hostile ones.
    pub(crate) fn start(program: &Path, directory: &TempDir, limits: Limits) -> Result<Server, Failed> {
        let ulimit = |flag: &str, value: Option<u64>| value.map(|value| format!("ulimit -{flag} {value}; "));
        let address_space = ulimit("v", limits.address_space_mib.map(|mib| mib << 10));
        let script = [address_space, ulimit("n", limits.open_files), Some("exec \"$0\" \"$@\"".into())];
        let script: String = script.into_iter().flatten().collect();
        let mut command = Command::new("sh");
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("LIMINA_") {
                command.env_remove(name);
            }
        }
        command.args(["-c", &script]).arg(program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--shards", "1", "--data"]);
        command.arg(directory.path().join("data"));
        if let Some(config) = limits.config {
            let path = directory.path().join("limina.toml");
            fs::write(&path, config)?;
            command.arg("--config").arg(path);
        }
        if let Some(mib) = limits.memory_mib {
            command.env("LIMINA_MEMORY_MIB", mib.to_string());
        }
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let output = BufReader::new(child.stderr.take().expect("it is piped"));
        let log = Arc::new(Mutex::new(Vec::new()));
        let (sender, receiver) = mpsc::channel();
        let lines = log.clone();
        // Read to the end, because the server would block on a full pipe.
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some(address) = address_in(&line) {
                    let _nobody_waits_any_more = sender.send(address);
                }
                keep(&mut lines.lock().unwrap_or_else(|poisoned| poisoned.into_inner()), line);
            }
        });
        let mut server = Server { child, address: SocketAddr::from(([127, 0, 0, 1], 0)), log };
        match receiver.recv_timeout(DEADLINE) {
            Ok(address) => server.address = address,
            Err(_) => return Err(format!("the server did not start:\n{}", server.log()).into()),
        }
        Ok(server)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The last lines of the log.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).join("\n")
    }

    /// Sets the peak of the resident memory to what is resident now.
    pub(crate) fn reset_peak(&self) -> Result<(), Failed> {
        Ok(fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5")?)
    }

    /// The peak of the resident memory, in bytes.
    pub(crate) fn peak(&self) -> Result<u64, Failed> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
        Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>()? << 10)
    }

    /// How the process ended, if it has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Stops the server as an operator would.
    pub(crate) fn stop(&mut self) -> Result<(), Failed> {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).ok_or("no process id")?;
        kill_process(id, Signal::TERM)?;
        let begin = Instant::now();
        while self.ended().is_none() {
            if begin.elapsed() > DEADLINE {
                return Err("the server did not stop".into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Keeps a line and drops the oldest one, but no line that tells of a panic.
fn keep(lines: &mut Vec<String>, line: String) {
    if lines.len() == KEPT_LINES
        && let Some(oldest) = lines.iter().position(|line| !line.contains("panicked"))
    {
        lines.remove(oldest);
    }
    lines.push(line);
}

/// The address behind `listening on http://` in a line of the log.
fn address_in(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("listening on http://")?;
    rest.split(|letter: char| letter != ':' && letter != '.' && !letter.is_ascii_digit()).next()?.parse().ok()
}
