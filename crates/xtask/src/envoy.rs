//! Tests the server with the real Envoy in front of it, which comes from PyPI: each case of `cases.txt` is a request through
//! Envoy, whose filter asks the server.

use crate::{
    packages::{self, PYTHON},
    program::{self, Outcome},
};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// The folder with the pinned version, both configurations and the cases.
const SOURCES: &str = "crates/limina/tests/envoy";
/// How long something may take that comes sooner or later. Nothing takes so long.
const DEADLINE: Duration = Duration::from_secs(60);

/// Installs Envoy from PyPI into the build directory, unless the same version is already installed.
pub(crate) fn install() -> Outcome {
    let place = folder()?;
    let wanted = program::root().join(SOURCES).join("requirements.txt");
    let wanted =
        std::fs::read_to_string(&wanted).map_err(|error| format!("{}: {error}", wanted.display()))?;
    let stamp = place.join("installed");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    packages::install(&[PYTHON])?;
    // An earlier attempt may have left an incomplete installation.
    let _none_yet = std::fs::remove_dir_all(&place);
    let write = |name: &str| std::fs::write(place.join(name), &wanted);
    std::fs::create_dir_all(&place)
        .and_then(|()| write("requirements.txt"))
        .map_err(|error| format!("{}: {error}", place.display()))?;
    packages::install_python(&place)?;
    write("installed").map_err(|error| format!("{}: {error}", stamp.display()))
}

fn folder() -> Result<PathBuf, String> {
    Ok(program::target_directory()?.join("tools/envoy"))
}

/// Options: `--smoke` for the cases of `cargo xtask test`; `--server PATH` for a binary that is built already.
pub(crate) fn run(args: &[String]) -> Outcome {
    let (mut is_smoke, mut server) = (false, None);
    let mut args = args.iter();
    while let Some(name) = args.next() {
        match name.as_str() {
            "--smoke" => is_smoke = true,
            "--server" => server = Some(PathBuf::from(args.next().ok_or("--server needs a value")?)),
            _ => return Err(format!("envoy has no option {name}")),
        }
    }
    install()?;
    let server = match server {
        Some(path) => path,
        None => {
            program::cargo(&["build", "--quiet", "--package", "limina"])?;
            program::target_directory()?.join("debug/limina")
        }
    };
    let scratch = std::env::temp_dir().join(format!("limina-envoy-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    let result = run_in(&server, &scratch, is_smoke);
    let _kept_for_nobody = std::fs::remove_dir_all(&scratch);
    result
}

/// The job of `cargo xtask test`: this program with a server that is built already.
pub(crate) fn job(server: &Path) -> Result<Command, String> {
    let mut command = Command::new(std::env::current_exe().map_err(|error| error.to_string())?);
    command.args(["envoy", "--smoke", "--server"]).arg(server).current_dir(program::root());
    Ok(command)
}

fn run_in(server: &Path, scratch: &Path, is_smoke: bool) -> Outcome {
    let sources = program::root().join(SOURCES);
    let read =
        |name: &str| std::fs::read_to_string(sources.join(name)).map_err(|error| format!("{name}: {error}"));
    let limits = sources.join("limits.yaml");
    let (_limina, port) = limina(server, &limits, scratch)?;
    let config = scratch.join("envoy.yaml");
    std::fs::write(&config, read("envoy.yaml")?.replace("@PORT@", &port.to_string()))
        .map_err(|error| format!("{}: {error}", config.display()))?;
    let (_envoy, envoy_port) = envoy(&config, scratch)?;
    let mut cases = 0;
    for (number, line) in read("cases.txt")?.lines().enumerate() {
        let (is_in_smoke, case) = match line.strip_prefix("smoke ") {
            Some(case) => (true, case),
            None => (false, line),
        };
        if case.trim().is_empty() || case.starts_with('#') || (is_smoke && !is_in_smoke) {
            continue;
        }
        play(envoy_port, case).map_err(|wrong| format!("cases.txt, line {}: {case}: {wrong}", number + 1))?;
        cases += 1;
    }
    println!("xtask: {cases} cases passed through Envoy");
    Ok(())
}

/// Sends the requests of a case, and compares the answers.
fn play(port: u16, case: &str) -> Outcome {
    let (request, expect) = case.split_once(" -> ").ok_or("there is no ->")?;
    let (path, headers) = request.split_once(' ').ok_or("there are no headers")?;
    let mut words = expect.split(' ');
    let mut last = Answer::default();
    while let Some(word) = words.next() {
        match word {
            "..." => {
                let wanted = words.next().ok_or("`...` needs a status")?;
                let begun = Instant::now();
                loop {
                    last = get(port, path, headers)?;
                    if last.status == wanted {
                        break;
                    }
                    if begun.elapsed() > DEADLINE {
                        return Err(format!("the status stays {}", last.status));
                    }
                }
            }
            "remaining" => {
                let wanted = words.next().ok_or("`remaining` needs a number")?;
                let found = last.header("x-ratelimit-remaining").unwrap_or("none");
                if found != wanted {
                    return Err(format!("remaining {found}"));
                }
            }
            status => {
                last = get(port, path, headers)?;
                if last.status != status {
                    return Err(format!("status {} instead of {status}:\n{}", last.status, last.head));
                }
            }
        }
    }
    Ok(())
}

#[derive(Default)]
struct Answer {
    status: String,
    head: String,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// One request on a connection of its own. `headers` are `name=value`, separated by spaces.
fn get(port: u16, path: &str, headers: &str) -> Result<Answer, String> {
    let failed = |error: std::io::Error| format!("port {port}: {error}");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(failed)?;
    stream.set_read_timeout(Some(DEADLINE)).map_err(failed)?;
    let headers: String = headers
        .split(' ')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let request = format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut text = String::new();
    stream.read_to_string(&mut text).map_err(failed)?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| format!("no answer: {text:?}"))?;
    let status = head.split(' ').nth(1).unwrap_or_default().to_owned();
    Ok(Answer { status, head: head.to_owned(), body: body.to_owned() })
}

/// A process that is killed when the value is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _gone_already = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Starts the server with these limits. Returns its port.
fn limina(program: &Path, limits: &Path, scratch: &Path) -> Result<(Running, u16), String> {
    let mut command = Command::new(program);
    command.args(["serve", "--listen", "127.0.0.1:0", "--envoy-config"]).arg(limits);
    command.arg("--data").arg(scratch.join("data"));
    let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut child = Running(child.map_err(|error| format!("{}: {error}", program.display()))?);
    let mut lines = BufReader::new(child.0.stderr.take().expect("it is piped")).lines();
    let port = lines.by_ref().map_while(Result::ok).find_map(|line| {
        let (_, rest) = line.split_once("limina listening on http://127.0.0.1:")?;
        rest.split([',', ' ']).next()?.parse().ok()
    });
    // Read to the end, because the server would block on a full pipe.
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| eprintln!("{line}")));
    Ok((child, port.ok_or("the server did not start")?))
}

/// Starts Envoy. Returns the port of its listener when it finds the server healthy.
fn envoy(config: &Path, scratch: &Path) -> Result<(Running, u16), String> {
    let admin_file = scratch.join("admin");
    let log = scratch.join("envoy.log");
    let mut command = Command::new(folder()?.join("python/bin/envoy"));
    command
        .arg("--config-path")
        .arg(config)
        .arg("--admin-address-path")
        .arg(&admin_file)
        .arg("--log-path")
        .arg(&log);
    command.args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "warning"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = Running(command.spawn().map_err(|error| format!("envoy: {error}"))?);
    let begun = Instant::now();
    loop {
        if let Some(port) = envoy_port(&admin_file) {
            return Ok((child, port));
        }
        let is_over = child.0.try_wait().is_ok_and(|ended| ended.is_some());
        if is_over || begun.elapsed() > DEADLINE {
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            return Err(format!("Envoy did not start:\n{log}"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The port of the listener, as soon as Envoy listens and has checked the health of the server.
fn envoy_port(admin_file: &Path) -> Option<u16> {
    let admin = std::fs::read_to_string(admin_file).ok()?;
    let admin = admin.trim().rsplit_once(':')?.1.parse().ok()?;
    let clusters = get(admin, "/clusters", "").ok()?;
    let is_healthy = |line: &str| line.starts_with("limina::") && line.ends_with("health_flags::healthy");
    if !clusters.body.lines().any(is_healthy) {
        return None;
    }
    let listeners = get(admin, "/listeners", "").ok()?;
    let line = listeners.body.lines().find(|line| line.starts_with("main::"))?;
    line.rsplit_once(':')?.1.trim().parse().ok()
}
