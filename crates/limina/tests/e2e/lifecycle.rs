//! Starting and stopping: flags, files, signals, and the errors that an operator reads.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Process, Server, client, eventually, limina};
use crate::ledger::{Ledger, batch, hold};
use crate::raw;
use crate::reply::Reply;

const ANY_PORT: [&str; 2] = ["--listen", "127.0.0.1:0"];

/// Requires that the start fails, and returns its message.
#[track_caller]
fn fails(command: &mut Command) -> String {
    let said = format!("{command:?}");
    let mut process = Process::spawn(command);
    let status = process.exit();
    let log = process.log();
    assert!(!status.success(), "{said} succeeded:\n{log}");
    assert!(status.code().is_some(), "{said} died by a signal: {status}\n{log}");
    assert!(!log.trim().is_empty(), "{said} failed without a word");
    assert!(!log.contains("panicked at"), "{said} panicked:\n{log}");
    log
}

#[track_caller]
fn says(log: &str, words: &[&str]) {
    for word in words {
        assert!(log.to_lowercase().contains(&word.to_lowercase()), "{word:?} is not in:\n{log}");
    }
}

#[track_caller]
fn ledger_at(process: &Process) -> Ledger {
    Ledger::new(client(), format!("http://{}/v1/ledger", process.address()))
}

#[track_caller]
fn stop(process: &mut Process) {
    process.signal(Signal::TERM);
    let status = process.exit();
    assert!(status.success(), "{status}\n{}", process.log());
}

#[test]
fn a_restart_keeps_everything() {
    let mut server = Server::fresh();
    let ledger = server.ledger();
    ledger.create_all(&["a", "b"]);
    ledger.hold("done", &[("a", 5)]).ok();
    ledger.commit_all("done").ok();
    let held = ledger.hold("open", &[("a", 1), ("b", 2)]).ok();
    let (mut limits, mut entries) = (ledger.all("/limits", 10), ledger.entries("a"));
    for _ in 0..3 {
        server.restart();
        let ledger = server.ledger();
        ledger.values(&["a", "b"]).ok().same_view_as(&held);
        assert_eq!(ledger.all("/limits", 10), limits);
        assert_eq!(ledger.entries("a"), entries);
        (limits, entries) = (ledger.all("/limits", 10), ledger.entries("a"));
    }
    assert!(server.ledger().hold("next", &[("a", 1)]).ok().position() > held.position());
}

#[test]
fn idle_connections_do_not_delay_a_stop() {
    let mut server = Server::fresh();
    let mut idle: Vec<raw::Connection> = (0..8).map(|_| raw::Connection::open(server.address())).collect();
    for connection in &mut idle[..4] {
        connection.send(raw::request("GET", "/healthz", "", b""));
        connection.receive().ok();
    }
    let start = std::time::Instant::now();
    server.stop();
    assert!(start.elapsed().as_secs() < 15, "the end took {:?}", start.elapsed());
    for connection in &mut idle {
        connection.expect_end();
    }
}

/// If the server has read the head of a request, it answers the request, even if the body comes after SIGTERM.
#[test]
fn requests_in_progress_are_answered() {
    let mut server = Server::fresh();
    server.ledger().create("a");
    let body = hold("op", &[("a", 1)]).to_string();
    let mut connection = raw::Connection::open(server.address());
    connection.send(format!(
        "POST /v1/ledger/hold HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n",
        body.len()
    ));
    // The server asks for the body only when the handler reads it. From now on the request is in progress.
    connection.receive().is(100);
    server.process().signal(Signal::TERM);
    connection.send(&body);
    let reply = connection.receive();
    let status = server.process().exit();
    assert!(status.success(), "{status}");
    server.start_again();
    match reply.status {
        200 => server.ledger().operation("op").ok(),
        _ => {
            reply.refused(503, "ShuttingDown");
            server.ledger().operation("op").refused(404, "OperationNotFound")
        }
    };
}

/// A client that sends no more cannot keep the server from ending.
#[test]
fn an_endless_request_does_not_prevent_a_stop() {
    let mut server = Server::fresh();
    let mut connection = raw::Connection::open(server.address());
    connection.send("POST /v1/ledger/hold HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{");
    let mut half = raw::Connection::open(server.address());
    half.send("GET /healthz HTT");
    server.get("/healthz").ok();
    server.stop();
}

#[test]
fn a_second_signal_does_no_harm() {
    let mut server = Server::fresh();
    server.ledger().create("a");
    server.process().signal(Signal::TERM);
    // The process may have exited already. It is a zombie until it is waited for, so the signal can still be sent.
    server.process().signal(Signal::TERM);
    server.process().exit();
    server.start_again();
    server.ledger().limit("a").ok();
    server.process().signal(Signal::INT);
    let status = server.process().exit();
    assert!(status.success(), "after SIGINT: {status}");
}

#[test]
fn a_directory_is_used_by_one_server() {
    let mut server = Server::fresh();
    server.ledger().create("a");
    let log = fails(limina().arg("serve").args(ANY_PORT).arg("--data").arg(server.data()));
    says(&log, &["in use", &server.data().display().to_string()]);
    // The first server continues. When it has ended, a third one can use the directory.
    server.ledger().limit("a").ok();
    server.crash_and_restart();
    server.ledger().limit("a").ok();
}

#[test]
fn a_port_is_used_by_one_server() {
    let home = TempDir::new().expect("a directory");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    let log = fails(limina().args(["serve", "--listen", &address, "--data"]).arg(home.path().join("data")));
    says(&log, &["in use", &address]);
}

#[test]
fn serve_is_the_default_command() {
    let home = TempDir::new().expect("a directory");
    let data = home.path().join("deep/er/data");
    let mut process = Process::spawn(
        limina().env("LIMINA_LISTEN", "127.0.0.1:0").env("LIMINA_DATA", &data).current_dir(home.path()),
    );
    ledger_at(&process).create("a");
    stop(&mut process);
    assert!(used(&data), "LIMINA_DATA was not used");
}

fn used(data: &Path) -> bool {
    std::fs::read_dir(data).is_ok_and(|mut entries| entries.next().is_some())
}

/// A flag has precedence over the environment, and the environment over the file.
#[test]
fn flags_override_the_environment_and_the_file() {
    let home = TempDir::new().expect("a directory");
    let dir = |name: &str| home.path().join(name);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = listener.local_addr().expect("its address").to_string();
    let file = |name: &str, listen: &str| -> PathBuf {
        let path = dir(name);
        let text = format!("listen = \"{listen}\"\ndata = \"{}\"\n", dir("by-file").display());
        std::fs::write(&path, text).expect("a file");
        path
    };
    let (good, bad) = (file("good.toml", "127.0.0.1:0"), file("bad.toml", &taken));
    let run = |command: &mut Command, expected: &str| {
        for name in ["by-file", "by-env", "by-flag"] {
            let _ = std::fs::remove_dir_all(dir(name));
        }
        let mut process = Process::spawn(command.current_dir(home.path()));
        ledger_at(&process).create("a");
        stop(&mut process);
        for name in ["by-file", "by-env", "by-flag"] {
            assert_eq!(used(&dir(name)), name == expected, "{name} after {command:?}");
        }
    };
    run(limina().arg("serve").arg("--config").arg(&good), "by-file");
    run(limina().arg("serve").arg("--config").arg(&good).env("LIMINA_DATA", dir("by-env")), "by-env");
    run(
        limina()
            .arg("serve")
            .arg("--config")
            .arg(&good)
            .env("LIMINA_DATA", dir("by-env"))
            .arg("--data")
            .arg(dir("by-flag")),
        "by-flag",
    );
    // The same for the address: the address in the file is in use, so a server that starts has not used it.
    run(limina().arg("serve").arg("--config").arg(&bad).env("LIMINA_LISTEN", "127.0.0.1:0"), "by-file");
    run(
        limina().arg("serve").arg("--config").arg(&bad).env("LIMINA_LISTEN", &taken).args(ANY_PORT),
        "by-file",
    );
    fails(limina().arg("serve").arg("--config").arg(&bad).current_dir(home.path()));
    fails(
        limina()
            .arg("serve")
            .arg("--config")
            .arg(&good)
            .env("LIMINA_LISTEN", &taken)
            .current_dir(home.path()),
    );
}

#[test]
fn bad_settings_are_reported() {
    let home = TempDir::new().expect("a directory");
    let data = home.path().join("data");
    let serve = || {
        let mut command = limina();
        command.arg("serve").arg("--data").arg(&data).current_dir(home.path());
        command
    };
    for (flags, words) in [
        (&["--bogus"][..], &["--bogus"][..]),
        (&["--listen", "nonsense"], &["nonsense", "listen"]),
        (&["--listen", "127.0.0.1:99999"], &["127.0.0.1:99999"]),
        (&["--listen", "127.0.0.1:0", "--log-format", "yaml"], &["yaml", "log-format"]),
        (&["--listen", "127.0.0.1:0", "--journal-segment-mib", "many"], &["many", "journal-segment-mib"]),
        (&["--listen", "127.0.0.1:0", "--journal-segment-mib", "0"], &["segment"]),
        (&["--listen", "127.0.0.1:0", "--storage-reserve-mib", "-1"], &["-1"]),
        (&["--listen", "127.0.0.1:0", "--config", "no-such-file.toml"], &["no-such-file.toml"]),
        (&["stray"], &["stray"]),
    ] {
        says(&fails(serve().args(flags)), words);
    }
    says(&fails(limina().arg("swerve").current_dir(home.path())), &["swerve"]);
    says(&fails(serve().env("LIMINA_LISTEN", "nonsense")), &["nonsense"]);

    for (text, words) in [
        ("listen = 5\n", &["listen"][..]),
        ("lisen = \"127.0.0.1:0\"\n", &["lisen"]),
        ("listen = \n", &["bad.toml"]),
        ("listen = \"nonsense\"\n", &["line 1, listen"]),
        ("\u{0}\u{1}", &["bad.toml"]),
    ] {
        let file = home.path().join("bad.toml");
        std::fs::write(&file, text).expect("a file");
        says(&fails(serve().arg("--config").arg(&file)), words);
    }
}

#[test]
fn an_unusable_data_path_is_reported() {
    let home = TempDir::new().expect("a directory");
    let file = home.path().join("a-file");
    std::fs::write(&file, "not a directory").expect("a file");
    let beneath = file.join("data");
    for data in [&file, &beneath] {
        let log = fails(limina().arg("serve").args(ANY_PORT).arg("--data").arg(data));
        says(&log, &["a-file"]);
    }
    assert_eq!(std::fs::read_to_string(&file).expect("still there"), "not a directory");
}

#[test]
fn help_and_version_are_no_errors() {
    for flags in [&["--help"][..], &["--version"], &["serve", "--help"]] {
        let output = limina().args(flags).stdin(Stdio::null()).output().expect("run");
        assert!(output.status.success(), "{flags:?}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("limina"), "{flags:?}: {output:?}");
    }
}

#[test]
fn json_logs_are_json() {
    let home = TempDir::new().expect("a directory");
    let mut server = Server::start_with(home.path().join("data"), &["--log-format", "json"]);
    server.ledger().create("a");
    server.ledger().post_text("/limits", "{").refused(400, "InvalidRequest");
    server.stop();
    let log = server.log();
    assert!(log.contains("listening on http://"), "{log}");
    for line in log.lines() {
        let parsed: Result<Value, _> = serde_json::from_str(line);
        assert!(parsed.is_ok_and(|line| line.is_object()), "not JSON: {line}");
    }
    let mut text = Server::start_with(home.path().join("data"), &["--log-format", "text"]);
    text.stop();
    assert!(text.log().contains("listening on http://"));
}

/// If no process reads the logs any more, for example because the supervisor has ended, the server continues.
#[test]
fn a_closed_log_does_not_stop_the_server() {
    let home = TempDir::new().expect("a directory");
    let mut child = limina()
        .args(["serve", "--listen", "127.0.0.1:0", "--journal-segment-mib", "4", "--data"])
        .arg(home.path().join("data"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("run");
    let address = {
        use std::io::BufRead;
        let mut lines = std::io::BufReader::new(child.stderr.take().expect("piped")).lines();
        lines.find_map(|line| {
            let line = line.ok()?;
            let (_, rest) = line.split_once("listening on http://")?;
            let end = rest.find(|c: char| !(c.is_ascii_digit() || ".:".contains(c))).unwrap_or(rest.len());
            Some(rest[..end].to_owned())
        })
    };
    // The pipe is closed here.
    let outcome = std::panic::catch_unwind(|| {
        let ledger = Ledger::new(client(), format!("http://{}/v1/ledger", address.expect("an address")));
        ledger.create("a");
        for n in 0..20 {
            ledger.hold(&n.to_string(), &[("a", 1)]).ok();
            ledger.post_text("/limits", "{").refused(400, "InvalidRequest");
        }
    });
    let pid = rustix::process::Pid::from_child(&child);
    let _ = rustix::process::kill_process(pid, Signal::TERM);
    let status = eventually(|| child.try_wait().expect("wait"));
    if status.is_none() {
        child.kill().expect("our own child");
        child.wait().expect("our own child");
    }
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
    let status = status.expect("an end after SIGTERM");
    assert!(status.success(), "{status}");
}

/// Every `journal-*.seg` below a directory.
fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path()) {
        let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if entry.is_dir() {
            found.extend(segments(&entry));
        } else if name.starts_with("journal-") && name.ends_with(".seg") {
            found.push(entry);
        }
    }
    found.sort();
    found
}

/// The segment that contains this text, and where.
fn find(text: &str, dir: &Path) -> Option<(PathBuf, usize)> {
    segments(dir).into_iter().find_map(|segment| {
        let bytes = std::fs::read(&segment).expect("a segment");
        let at = bytes.windows(text.len()).position(|window| window == text.as_bytes())?;
        Some((segment, at))
    })
}

#[test]
fn a_damaged_journal_is_not_served() {
    let mut server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    for n in 0..300 {
        ledger.hold(&format!("operation-{n:04}"), &[("a", 1)]).ok();
    }
    server.stop();

    // Damages the middle of the journal. Many valid frames follow, so this is not a torn end.
    let (segment, at) = find("operation-0150", server.data()).expect("an operation's id in the journal");
    let mut bytes = std::fs::read(&segment).expect("the segment");
    bytes[at + 5] ^= 0x20;
    std::fs::write(&segment, &bytes).expect("the segment");
    let serve = || {
        let mut command = limina();
        command.args(["serve", "--journal-segment-mib", "4"]).args(ANY_PORT).arg("--data").arg(server.data());
        command
    };
    let log = fails(&mut serve());
    says(&log, &[&segment.file_name().expect("a name").to_string_lossy(), "offset"]);
    assert_eq!(std::fs::read(&segment).expect("the segment"), bytes, "the evidence is left as it was");
    says(&fails(&mut serve()), &["offset"]);

    // With the byte restored, the server starts.
    bytes[at + 5] ^= 0x20;
    std::fs::write(&segment, &bytes).expect("the segment");
    server.start_again();
    server.ledger().values(&["a"]).ok().value("a", 0, 300);
}

/// A missing segment is damage too, whichever it is.
#[test]
fn a_missing_journal_segment_is_not_served() {
    let mut server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    for round in 0..8 {
        let holds = (0..2000).map(|n| hold(&format!("{:0200}", round * 2000 + n), &[("a", 1)])).collect();
        ledger.post("/hold/batch", batch(holds)).ok();
    }
    server.stop();
    let segments = segments(server.data());
    assert!(segments.len() > 1, "{segments:?}");
    for segment in segments {
        let aside = segment.with_extension("aside");
        std::fs::rename(&segment, &aside).expect("move the segment");
        let mut command = limina();
        command.args(["serve", "--journal-segment-mib", "4"]).args(ANY_PORT).arg("--data").arg(server.data());
        fails(&mut command);
        std::fs::rename(&aside, &segment).expect("move it back");
    }
    server.start_again();
    server.ledger().values(&["a"]).ok().value("a", 0, 16_000);
}

/// The size of a segment is a setting, and may change for existing data.
#[test]
fn the_segment_size_may_change() {
    let home = TempDir::new().expect("a directory");
    let data = home.path().join("data");
    let mut total = 0;
    for (round, size) in ["4", "16", "64", "4", "8"].into_iter().enumerate() {
        let mut server = Server::start_with(&data, &["--journal-segment-mib", size]);
        let ledger = server.ledger();
        if round == 0 {
            ledger.create("a");
        }
        ledger.values(&["a"]).ok().value("a", 0, total);
        let holds = (0..2000).map(|n| hold(&format!("{round:0200}-{n}"), &[("a", 1)])).collect();
        ledger.post("/hold/batch", batch(holds)).ok();
        total += 2000;
        if round % 2 == 0 { server.kill() } else { server.stop() }
    }
    Server::start(&data).ledger().values(&["a"]).ok().value("a", 0, total);
}

/// What a crash of the machine can leave: the files from before a write, and half of that write.
#[test]
fn a_torn_write_is_dropped() {
    let home = TempDir::new().expect("a directory");
    let mut server = Server::start(home.path().join("data"));
    server.ledger().create("a");
    for n in 0..50 {
        server.ledger().hold(&format!("operation-{n:04}"), &[("a", 1)]).ok();
    }
    let before = home.path().join("before");
    server.process().signal(Signal::STOP);
    copy(server.data(), &before);
    server.process().signal(Signal::CONT);
    server.ledger().hold("the-last-operation", &[("a", 1)]).ok();
    server.kill();

    let (segment, at) = find("the-last-operation", server.data()).expect("the operation's id in the journal");
    let mut bytes = std::fs::read(&segment).expect("the segment");
    bytes[at + 9..].fill(0);
    let segment = before.join(segment.strip_prefix(server.data()).expect("beneath it"));
    std::fs::write(&segment, &bytes).expect("the segment");

    let mut server = Server::start(&before);
    let ledger = server.ledger();
    ledger.operation("the-last-operation").refused(404, "OperationNotFound");
    ledger.values(&["a"]).ok().value("a", 0, 50);
    ledger.hold("the-last-operation", &[("a", 2)]).ok().value("a", 0, 52);
    server.crash_and_restart();
    server.ledger().values(&["a"]).ok().value("a", 0, 52);
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory").map(|entry| entry.expect("an entry")) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a copy");
        }
    }
}

/// While the server drains, `/readyz` reports that it is not ready, if the connection is still accepted.
#[test]
fn a_draining_server_is_not_ready() {
    let mut server = Server::fresh();
    let mut slow = raw::Connection::open(server.address());
    let body = json!({"name": "a"}).to_string();
    slow.send(format!(
        "POST /v1/ledger/limits HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n",
        body.len()
    ));
    slow.receive().is(100);
    server.process().signal(Signal::TERM);
    // The server may notice the signal a little later. Then the answer is 503, or the connection is refused.
    let ready = server.url("/readyz");
    let closed = eventually(|| match Reply::try_to(client().get(&ready)) {
        Ok(reply) if reply.status == 200 => None,
        Ok(reply) => Some(reply.status),
        Err(_) => Some(503),
    });
    assert_eq!(closed, Some(503));
    slow.send(&body);
    let reply = slow.receive();
    assert!([201, 503].contains(&reply.status), "{} {}", reply.status, reply.text);
    let status = server.process().exit();
    assert!(status.success(), "{status}");
}
