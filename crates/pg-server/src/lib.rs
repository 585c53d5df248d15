//! A private PostgreSQL server for tests and benchmarks: in its own directory, on a free port, and stopped together
//! with its owner. Another server can follow it as its standby, and be promoted.
//!
//! It starts the PostgreSQL that is installed. It must never touch a server that it did not start.

use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::{
    fs,
    io::{Error, Result},
    net::{TcpListener, TcpStream},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// The role of all connections. It needs no password.
pub const USER: &str = "limina";

/// The application name under which a standby follows its primary.
const STANDBY: &str = "standby";

/// Settings for speed. A test's server need not survive a loss of power.
const FOR_TESTS: [&str; 4] =
    ["fsync=off", "full_page_writes=off", "shared_buffers=32MB", "max_connections=400"];

/// Waits until its input ends, which happens at the latest when the owner's process ends, and then stops the server and
/// removes its directory.
const GUARD: &str = r#"cat > /dev/null; "$@" && rm -rf "$0""#;

/// A running server. It is stopped when this value is dropped, or when the process ends, even if it is killed.
pub struct PgServer {
    programs: PathBuf,
    data: PathBuf,
    port: u16,
    guard: Child,
    databases: AtomicU64,
}

impl PgServer {
    /// Starts a server for tests.
    pub fn start() -> Result<PgServer> {
        PgServer::start_at(free_port()?)
    }

    /// Starts a server for tests on this port.
    pub fn start_at(port: u16) -> Result<PgServer> {
        PgServer::make(&temporary()?, port, &FOR_TESTS)
    }

    /// Starts a server in a directory, which it may give to another user, and which is removed with the server.
    /// Settings are `name=value`.
    pub fn start_in(directory: &Path, settings: &[&str]) -> Result<PgServer> {
        PgServer::make(directory, free_port()?, settings)
    }

    /// Starts a standby for tests on this port. From then on this server acknowledges nothing that the standby does not
    /// have.
    pub fn start_standby(&self, port: u16) -> Result<PgServer> {
        self.wait_for_standby(true)?;
        let directory = temporary()?;
        let primary = format!("host=127.0.0.1 port={} user={USER} application_name={STANDBY}", self.port);
        let mut copy = program("pg_basebackup", &directory)?;
        copy.args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--dbname", &primary]);
        run(copy.arg("--pgdata").arg(directory.join("data")))?;
        let standby = PgServer::run_in(&directory, port, &FOR_TESTS)?;
        // Once the standby is promoted, it must not wait for another one.
        standby.wait_for_standby(false)?;
        Ok(standby)
    }

    /// Sets whether a commit waits until the standby has it.
    pub fn wait_for_standby(&self, waits: bool) -> Result<()> {
        let name = if waits { STANDBY } else { "" };
        let set = format!("ALTER SYSTEM SET synchronous_standby_names = '{name}'");
        let mut change = Command::new(self.programs.join("psql"));
        change.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", USER, "-d", "postgres"]);
        run(change.args(["-c", &set, "-c", "SELECT pg_reload_conf()"]))
    }

    fn make(directory: &Path, port: u16, settings: &[&str]) -> Result<PgServer> {
        let mut make = program("initdb", directory)?;
        make.args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--username", USER]);
        run(make.arg("--pgdata").arg(directory.join("data")))?;
        PgServer::run_in(directory, port, settings)
    }

    fn run_in(directory: &Path, port: u16, settings: &[&str]) -> Result<PgServer> {
        let (programs, data) = (programs()?, directory.join("data"));
        let settings: String = settings.iter().map(|setting| format!(" -c {setting}")).collect();
        let options = format!("-h 127.0.0.1 -p {port} -c unix_socket_directories={settings}");
        let guard = guard(&programs, directory, &data)?;
        let server = PgServer { programs, data, port, guard, databases: AtomicU64::new(0) };
        server.control(&["start", "--options", &options])?;
        Ok(server)
    }

    /// The port on 127.0.0.1 on which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of one of its databases.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{database}", self.port)
    }

    /// Creates an empty database, and returns its name.
    pub fn new_database(&self) -> Result<String> {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let mut make = Command::new(self.programs.join("createdb"));
        make.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", USER, &name]);
        run(&mut make)?;
        Ok(name)
    }

    /// Promotes a standby. It accepts writes when this returns.
    pub fn promote(&self) -> Result<()> {
        self.control(&["promote"])
    }

    /// The id of the server's main process.
    pub fn pid(&self) -> Result<u32> {
        let text = fs::read_to_string(self.data.join("postmaster.pid"))?;
        let pid = text.lines().next().and_then(|line| line.trim().parse().ok());
        pid.ok_or_else(|| Error::other("the server has not written its process id"))
    }

    /// Stops the server like a crash would, and starts it again.
    pub fn crash_and_restart(&self) -> Result<()> {
        self.control(&["restart", "--mode=immediate"])
    }

    /// Stops every process of the server, like a machine that hangs, until [`PgServer::thaw`].
    pub fn freeze(&self) -> Result<()> {
        self.signal_all(Signal::STOP)
    }

    /// Lets the server continue after [`PgServer::freeze`].
    pub fn thaw(&self) -> Result<()> {
        self.signal_all(Signal::CONT)
    }

    fn signal_all(&self, signal: Signal) -> Result<()> {
        let pid = self.pid()?;
        // Stop the main process first, so that it creates no process meanwhile.
        send(pid, Signal::STOP)?;
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
            send(child, signal)?;
        }
        send(pid, signal)
    }

    /// Kills every process of the server, like a loss of its machine, and removes its directory.
    pub fn kill(mut self) -> Result<()> {
        self.signal_all(Signal::KILL)?;
        // Without this file nothing waits for the killed processes.
        fs::remove_file(self.data.join("postmaster.pid"))?;
        self.end()?;
        while TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
        fs::remove_dir_all(self.data.parent().expect("the data are in its directory"))
    }

    /// Stops the server without waiting for its clients, and removes its directory.
    pub fn stop(mut self) -> Result<()> {
        match self.end()? {
            true => Ok(()),
            false => Err(Error::other("PostgreSQL did not stop")),
        }
    }

    fn end(&mut self) -> Result<bool> {
        drop(self.guard.stdin.take());
        Ok(self.guard.wait()?.success())
    }

    fn control(&self, args: &[&str]) -> Result<()> {
        let mut control = as_postgres(&self.programs.join("pg_ctl"));
        control.args(args).args(["--wait", "--silent", "--pgdata"]).arg(&self.data);
        let log = self.data.join("server.log");
        control.arg("--log").arg(&log).current_dir(&self.data);
        // The server keeps its standard streams open, so reading from a pipe would never end.
        let status = control.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        match status.success() {
            true => Ok(()),
            false => Err(Error::other(format!(
                "pg_ctl {}: {}",
                args[0],
                fs::read_to_string(&log).unwrap_or_else(|error| error.to_string())
            ))),
        }
    }
}

impl Drop for PgServer {
    fn drop(&mut self) {
        let _best_effort = self.end();
    }
}

/// Starts the process that stops the server when the owner ends. It has its own process group, so that an interrupt
/// from the terminal ends the owner but not this process.
fn guard(programs: &Path, directory: &Path, data: &Path) -> Result<Child> {
    let stop = as_postgres(&programs.join("pg_ctl"));
    let mut guard = Command::new("sh");
    guard.args(["-c", GUARD]).arg(directory).arg(stop.get_program()).args(stop.get_args());
    guard.args(["stop", "--mode=immediate", "--wait", "--silent", "--pgdata"]).arg(data);
    guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    guard.process_group(0).current_dir("/").spawn()
}

/// The version that a server would have.
pub fn version() -> Result<String> {
    let output = Command::new(programs()?.join("postgres")).arg("--version").output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.split_whitespace().nth(2).ok_or_else(|| Error::other("PostgreSQL has no version"))?;
    Ok(version.to_owned())
}

/// The newest installed version, in the directory where Debian and Ubuntu put it.
fn programs() -> Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let versions = versions.filter(|version| version.path().join("bin/initdb").is_file());
    let newest = versions.max_by_key(|version| {
        version
            .file_name()
            .to_string_lossy()
            .split('.')
            .map(|part| part.parse().unwrap_or(0))
            .collect::<Vec<u32>>()
    });
    let newest = newest.ok_or_else(|| {
        Error::other("there is no PostgreSQL in /usr/lib/postgresql: `cargo xtask test` installs it")
    })?;
    Ok(newest.path().join("bin"))
}

fn temporary() -> Result<PathBuf> {
    Ok(tempfile::Builder::new().prefix("limina-pg-").tempdir()?.keep())
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A program that creates a server's data in this directory.
fn program(name: &str, directory: &Path) -> Result<Command> {
    if geteuid().is_root() {
        // PostgreSQL refuses to run as root.
        run(Command::new("chown").arg("postgres:").arg(directory))?;
    }
    let mut program = as_postgres(&programs()?.join(name));
    program.current_dir(directory);
    Ok(program)
}

/// The program as another user, if this process runs as root.
fn as_postgres(program: &Path) -> Command {
    if !geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--init-groups", "--"]).arg(program);
    command
}

fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| Error::other(format!("running {program}: {error}")))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Error::other(format!("{program}: {}", String::from_utf8_lossy(&output.stderr)))),
    }
}

fn send(pid: u32, signal: Signal) -> Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| Error::other("not a process id"))?;
    Ok(kill_process(pid, signal)?)
}
