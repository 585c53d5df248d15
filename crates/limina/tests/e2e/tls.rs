//! TLS for clients, with certificates from files: curl is the client, and the files change while the server runs.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use tempfile::TempDir;

use crate::harness::{Process, Server, eventually, limina};

/// A directory with a self-signed certificate and its key.
struct Home(TempDir);

impl Home {
    fn new() -> Home {
        let home = Home(TempDir::new().expect("a directory"));
        home.write(&Home::certificate(|_| ()));
        home
    }

    /// A new certificate and its key, both PEM.
    fn certificate(set: impl FnOnce(&mut CertificateParams)) -> [String; 2] {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
        set(&mut params);
        [params.self_signed(&key).expect("a certificate").pem(), key.serialize_pem()]
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, [cert, key]: &[String; 2]) {
        self.replace("cert.pem", cert);
        self.replace("key.pem", key);
    }

    fn replace(&self, name: &str, text: &str) {
        let next = self.path("next");
        fs::write(&next, text).expect("a file");
        fs::rename(next, self.path(name)).expect("a file in place of another");
    }

    fn flags(&self) -> Vec<String> {
        let files = [("--tls-cert", "cert.pem"), ("--tls-key", "key.pem")];
        let path = |name| self.path(name).to_str().expect("a path that is text").to_owned();
        files.into_iter().flat_map(|(flag, name)| [flag.to_owned(), path(name)]).collect()
    }

    #[track_caller]
    fn serve(&self) -> Server {
        let flags = self.flags();
        let flags: Vec<&str> =
            ["--journal-segment-mib", "4"].into_iter().chain(flags.iter().map(|f| &**f)).collect();
        Server::start_with(self.path("data"), &flags)
    }

    /// Requires that `limina serve` ends with status 1. Returns its message.
    #[track_caller]
    fn fails_to_serve(&self) -> String {
        let mut command = limina();
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(self.path("data"));
        let mut process = Process::spawn(command.args(self.flags()));
        let status = process.exit();
        assert_eq!(status.code(), Some(1), "{}", process.log());
        process.log()
    }
}

/// Sends a request with curl, which trusts only the certificate in this file. Returns the version of HTTP and the
/// status.
fn curl(server: &Server, trusted: &str, args: &[&str]) -> Output {
    curl_at(server, trusted, "/v1/ledger/limits", args)
}

fn curl_at(server: &Server, trusted: &str, path: &str, args: &[&str]) -> Output {
    let port = server.address().port();
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "60", "--output", "/dev/null"]);
    command.args(["--resolve", &format!("localhost:{port}:127.0.0.1"), "--cacert", trusted]);
    command.args(["--write-out", "%{http_version} %{http_code}"]).args(args);
    command.arg(format!("https://localhost:{port}{path}")).output().expect("curl runs")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn curl_speaks_both_versions_over_tls() {
    let home = Home::new();
    let mut server = home.serve();
    assert!(server.log().contains("listening on https://"), "{}", server.log());
    let trusted = home.path("cert.pem");
    let trusted = trusted.to_str().expect("a path that is text");
    for (flag, expect) in [("--http1.1", "1.1 200"), ("--http2", "2 200"), ("--tlsv1.3", "2 200")] {
        let answer = curl(&server, trusted, &[flag]);
        assert_eq!(text(&answer), expect, "{flag}: {}", String::from_utf8_lossy(&answer.stderr));
    }
    // A gRPC request: the health of Envoy's rate limit service.
    fs::write(home.path("call"), [0; 5]).expect("a file");
    let call = format!("@{}", home.path("call").display());
    let grpc = ["--http2", "--header", "content-type: application/grpc", "--data-binary", &call];
    let answer = curl_at(&server, trusted, "/grpc.health.v1.Health/Check", &grpc);
    assert_eq!(text(&answer), "2 200", "{}", String::from_utf8_lossy(&answer.stderr));
    server.stop();
}

#[test]
fn changed_certificates_are_loaded_and_broken_files_ignored() {
    let home = Home::new();
    let mut server = home.serve();
    let trust = |name: &str, pem: &str| {
        fs::write(home.path(name), pem).expect("a file");
        home.path(name).to_str().expect("a path that is text").to_owned()
    };
    let old = trust("old.pem", &fs::read_to_string(home.path("cert.pem")).expect("the certificate"));
    let is_served = |trusted: &str| text(&curl(&server, trusted, &[])) == "2 200";
    let logs = |words: &str| eventually(|| server.log().contains(words).then_some(())).is_some();
    assert!(is_served(&old));

    // Only the certificate is replaced, and its key is missing.
    let [cert, key] = Home::certificate(|_| ());
    home.replace("cert.pem", &cert);
    assert!(logs("is not that of the certificate in"), "{}", server.log());
    assert!(is_served(&old), "{}", server.log());
    home.replace("key.pem", "-----BEGIN PRIVATE KEY-----\nnonsense\n");
    assert!(logs("is missing"), "{}", server.log());
    assert!(is_served(&old), "{}", server.log());

    home.replace("key.pem", &key);
    assert!(logs("the TLS certificate was loaded again"), "{}", server.log());
    assert!(is_served(&trust("new.pem", &cert)) && !is_served(&old), "{}", server.log());
    server.stop();
}

#[test]
fn an_expired_certificate_prevents_the_start() {
    let home = Home::new();
    home.write(&Home::certificate(|params| params.not_after = date_time_ymd(2020, 2, 3)));
    let log = home.fails_to_serve();
    assert!(log.contains("cert.pem: the certificate expired at 2020-02-03T00:00:00Z"), "{log}");
    home.write(&[Home::certificate(|_| ())[0].clone(), Home::certificate(|_| ())[1].clone()]);
    let log = home.fails_to_serve();
    assert!(log.contains("is not that of the certificate in"), "{log}");
    assert!(!home.path("data").exists(), "a start that fails has changed nothing");
}
