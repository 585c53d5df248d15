//! Starts the real server, and the proxy that loses and delays messages.

use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Read},
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
};
use tempfile::TempDir;

/// A server on a port that it chooses, with data that is deleted afterwards.
pub(crate) struct Server {
    pub(crate) url: String,
    _process: Process,
    _data: TempDir,
}

impl Server {
    /// `None` if no binary is named.
    pub(crate) fn start() -> Option<Server> {
        Server::start_with(&[])
    }

    pub(crate) fn start_with(flags: &[&str]) -> Option<Server> {
        install_tls_provider();
        let Some(binary) = std::env::var_os("LIMINA_BIN") else {
            eprintln!("skipped: LIMINA_BIN does not name the server's binary");
            return None;
        };
        let data = TempDir::new().unwrap();
        let mut command = Command::new(binary);
        command.args(["serve", "--listen", "127.0.0.1:0", "--shards", "4", "--data"]).arg(data.path());
        let (process, line) = spawn(command.args(flags), "listening on http");
        let (_, url) = line.split_once("listening on ").unwrap();
        let (url, _) = url.split_once(',').unwrap();
        Some(Server { url: url.to_owned(), _process: process, _data: data })
    }
}

/// The proxy of `clients/conformance`.
pub(crate) struct Proxy {
    pub(crate) url: String,
    control: String,
    http: reqwest::Client,
    _process: Process,
}

impl Proxy {
    pub(crate) fn start(server: &str) -> Proxy {
        let mut command = Command::new("python3");
        command
            .arg(conformance().join("proxy.py"))
            .arg("--upstream")
            .arg(server.trim_start_matches("http://"));
        let (process, line) = spawn(&mut command, "{");
        let addresses: Value = serde_json::from_str(&line).unwrap();
        let url = |name: &str| format!("http://{}", addresses[name].as_str().unwrap());
        Proxy { url: url("listen"), control: url("control"), http: reqwest::Client::new(), _process: process }
    }

    pub(crate) async fn steer(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let mut request = self.http.request(method.parse().unwrap(), format!("{}{path}", self.control));
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.unwrap();
        assert!(response.status().is_success(), "{method} {path}: {response:?}");
        serde_json::from_slice(&response.bytes().await.unwrap()).unwrap_or_default()
    }
}

pub(crate) fn conformance() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../conformance")
}

/// The feature `tls` of the client gives reqwest TLS without a provider, and the HTTP clients of the tests panic without one.
fn install_tls_provider() {
    let _another_test_was_first = rustls::crypto::ring::default_provider().install_default();
}

/// A port on which nobody listens.
pub(crate) fn closed_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

/// A process that is killed when the test is over, however it ends.
pub(crate) struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a process, and waits for a line that contains `expect`. Its output is drained afterwards.
pub(crate) fn spawn(command: &mut Command, expect: &'static str) -> (Process, String) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Process(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")));
    let (lines, found) = mpsc::channel();
    let outputs: [Box<dyn Read + Send>; 2] =
        [Box::new(process.0.stdout.take().unwrap()), Box::new(process.0.stderr.take().unwrap())];
    for output in outputs {
        let lines = lines.clone();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _nobody_waits = lines.send(line);
            }
        });
    }
    drop(lines);
    let mut seen = Vec::new();
    while let Ok(line) = found.recv() {
        if line.contains(expect) {
            return (process, line);
        }
        seen.push(line);
    }
    panic!("{command:?} ended early:\n{}", seen.join("\n"));
}
