//! Tests a server against the API reference with schemathesis, which generates requests from it: valid ones, which the
//! server must accept, and invalid ones, which it must reject. All answers must be as the reference says.

use crate::{
    packages::{self, PYTHON},
    program::{self, Outcome},
};
use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// The folder with the pinned versions, the configuration and the hooks.
const SOURCES: &str = "crates/limina/tests/schemathesis";

/// The run of `cargo xtask test`, which takes about 30 s. The number of cases is fixed instead of the time, and they are the
/// same in every run. Bodies that take seconds to generate are left to longer runs: batches of decisions, and rule sets.
const SHORT: &[&str] = &[
    "--generation-deterministic",
    "--max-examples=2",
    "--phases=examples,fuzzing",
    "--workers=2",
    r"--exclude-path-regex=^/v1/(ns/\{namespace\}/|decisions/.*batch|limiter/rule-sets/)",
];

/// Installs schemathesis from PyPI into the build directory, unless the same versions are already installed.
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
    Ok(program::target_directory()?.join("schemathesis"))
}

/// Options: `--minutes N` for a longer run with new cases; `--server PATH` for a binary that is built already.
pub(crate) fn run(args: &[String]) -> Outcome {
    let (mut minutes, mut server) = (None, None);
    let mut args = args.iter();
    while let Some(name) = args.next() {
        let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--minutes" => minutes = Some(value.parse::<u64>().map_err(|_| "--minutes takes a number")?),
            "--server" => server = Some(PathBuf::from(value)),
            _ => return Err(format!("schemathesis has no option {name}")),
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
    let server = Server::start(&server)?;
    let mut schemathesis = Command::new(folder()?.join("python/bin/schemathesis"));
    let sources = program::root().join(SOURCES);
    schemathesis.current_dir(&sources).env("PYTHONDONTWRITEBYTECODE", "1");
    schemathesis.args(["--config-file", "schemathesis.toml", "run", &format!("{}/openapi.json", server.url)]);
    schemathesis.arg(format!("--header=Authorization: Bearer {}", server.token));
    match minutes {
        // The paths below `/v1/ns/{namespace}` have the same handlers, so the short run leaves them out.
        None => schemathesis.args(SHORT),
        Some(minutes) => {
            let seconds = (60 * minutes).to_string();
            schemathesis.args(["--max-time", &seconds, "--seed", &now().to_string()])
        }
    };
    let status = schemathesis.status().map_err(|error| format!("schemathesis: {error}"))?;
    match status.success() {
        true => Ok(()),
        false => Err("schemathesis found failures; see above".into()),
    }
}

/// The time in seconds, which is a different seed each time.
fn now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

/// The job of `cargo xtask test`: this program with a server that is built already.
pub(crate) fn job(server: &Path) -> Result<Command, String> {
    let mut command = Command::new(std::env::current_exe().map_err(|error| error.to_string())?);
    command.args(["schemathesis", "--server"]).arg(server).current_dir(program::root());
    Ok(command)
}

/// A server on a new directory. It is killed when the value is dropped.
struct Server {
    child: Child,
    url: String,
    /// A token with every right.
    token: String,
    data: PathBuf,
}

impl Server {
    fn start(program: &Path) -> Result<Server, String> {
        let data = std::env::temp_dir().join(format!("limina-schemathesis-{}", std::process::id()));
        let (token, tokens) = new_token(program, &data)?;
        let child = Command::new(program)
            .args(["serve", "--listen", "127.0.0.1:0", "--tokens"])
            .arg(tokens)
            .arg("--data")
            .arg(data.join("data"))
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let mut server = Server { child, url: String::new(), token, data };
        let mut lines = BufReader::new(server.child.stderr.take().expect("it is piped")).lines();
        let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, rest) = line.split_once("listening on ")?;
            Some(rest.split([',', ' ']).next()?.to_owned())
        });
        server.url = address.ok_or("the server did not start")?;
        // Read to the end, because the server would block on a full pipe.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| eprintln!("{line}")));
        Ok(server)
    }
}

/// Makes a token with every right. Returns it, and a file in `folder` that lets it in.
fn new_token(program: &Path, folder: &Path) -> Result<(String, PathBuf), String> {
    let failed = |error: std::io::Error| format!("making a token: {error}");
    let mut command = Command::new(program);
    command.args(["token", "new", "--name", "schemathesis", "--allow", "cluster:admin"]);
    let printed = String::from_utf8_lossy(&command.output().map_err(failed)?.stdout).into_owned();
    let (token, block) = printed.split_once("\n\n").ok_or("`limina token new` printed no token")?;
    let file = folder.join("tokens.toml");
    std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&file, block)).map_err(failed)?;
    Ok((token.trim().to_owned(), file))
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _status = self.child.wait();
        let _best_effort = std::fs::remove_dir_all(&self.data);
    }
}
