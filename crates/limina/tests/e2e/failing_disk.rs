//! A failing or full disk below the table, a process that may open few files, and a wrong clock.

use std::io::Read;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::faults::Faults;
use crate::harness::{Process, Server, eventually, limina};
use crate::ledger::{batch, hold, results};
use crate::reply::Reply;

/// Bounds so small that a few batches exceed what memory may hold while checkpoints fail.
const FLAGS: [&str; 8] =
    ["--journal-segment-mib", "4", "--checkpoint-mib", "1", "--shards", "1", "--storage-reserve-mib", "1"];
/// No answer takes this long, whatever the disk does: a look-up waits 5 s for a table that is being reopened.
const ANSWER: Duration = Duration::from_secs(30);
/// The number of rounds after which the backlog exceeds every bound. Each round writes about 200 KiB.
const ROUNDS: usize = 60;
/// The number of rounds after which the table has failed.
const FAILED: usize = 15;

struct Setup {
    server: Server,
    faults: Faults,
    held: Vec<String>,
    rounds: usize,
    _home: TempDir,
}

impl Setup {
    fn new() -> Setup {
        let home = TempDir::new().expect("a temporary directory");
        let faults = Faults::compile(home.path());
        let server = Server::start_under(home.path().join("data"), &FLAGS, |command| faults.preload(command));
        server.ledger().create("a");
        Setup { server, faults, held: Vec::new(), rounds: 0, _home: home }
    }

    /// Holds 1 for many operations with long ids, so that a checkpoint is soon due. Returns the answer.
    fn write(&mut self) -> Reply {
        let ids: Vec<String> = (0..300).map(|n| format!("{:0200}/{n}", self.rounds)).collect();
        self.rounds += 1;
        let operations = ids.iter().map(|id| hold(id, &[("a", 1)])).collect();
        let begun = Instant::now();
        let reply = self.server.ledger().post("/hold/batch", batch(operations));
        assert!(begun.elapsed() < ANSWER, "an answer took {:?}", begun.elapsed());
        match reply.status {
            200 => {
                let taken = results(&reply).iter().zip(ids).filter(|(result, _)| result["status"] == 200);
                self.held.extend(taken.map(|(_, id)| id).collect::<Vec<_>>());
            }
            503 => assert_ne!(reply.code(), "OutcomeUnknown", "the journal does not fail"),
            _ => panic!("{} {}", reply.status, reply.text),
        }
        reply
    }

    /// A read that needs the table.
    fn read(&self) -> Reply {
        let begun = Instant::now();
        let reply = self.server.ledger().operation(&self.held[0]);
        assert!(begun.elapsed() < ANSWER, "an answer took {:?}", begun.elapsed());
        reply
    }

    /// Checks that everything acknowledged is there.
    #[track_caller]
    fn check(&self) {
        self.server.ledger().values(&["a"]).ok().value("a", 0, self.held.len() as i64);
        for id in self.held.iter().step_by(97) {
            self.server.ledger().operation(id).ok();
        }
    }

    /// Waits until writes are accepted and the backlog is written, without a restart.
    #[track_caller]
    fn recovers(&mut self) {
        let taken = eventually(|| (self.write().status == 200).then_some(()));
        assert!(taken.is_some(), "writes are refused for ever");
        let failures = self.metric("limina_checkpoint_failures_total");
        let checkpoints = self.metric("limina_checkpoint_duration_seconds_count");
        let done = eventually(|| {
            self.write();
            (self.metric("limina_checkpoint_duration_seconds_count") > checkpoints).then_some(())
        });
        assert!(done.is_some(), "no checkpoint succeeds; {failures} have failed");
        self.server.get("/readyz").ok();
        self.check();
    }

    fn metric(&self, name: &str) -> f64 {
        let text = self.server.get("/metrics").ok().text;
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(name));
        let line = line.unwrap_or_else(|| panic!("no {name} in {text}"));
        line.split_whitespace().nth(1).expect("a value").parse().expect("a number")
    }
}

/// While the disk fails, compactions and ingestions fail. The server continues, refuses the writes that it cannot
/// accept, and recovers. SIGTERM ends it meanwhile, and a restart finds everything.
#[test]
fn a_table_that_cannot_be_written_recovers() {
    for rules in ["write EIO 1000 /tables/", "write ENOSPC 1000 /tables/ fjall:worker", "sync EIO 1000 .jnl"]
    {
        let mut setup = Setup::new();
        for _ in 0..30 {
            setup.write().ok();
        }
        setup.faults.set(rules);
        let mut refused = false;
        for _ in 0..ROUNDS {
            refused |= setup.write().status == 503;
            // While the table is being reopened, a read waits. If that takes long, the read is refused.
            let read = eventually(|| (setup.read().status == 200).then_some(()));
            assert!(read.is_some(), "reads are refused for ever under {rules}");
            if refused {
                break;
            }
        }
        assert!(refused || rules.contains("worker"), "memory has no bound; {} rounds under {rules}", ROUNDS);
        setup.faults.set("");
        setup.recovers();

        setup.faults.set(rules);
        for _ in 0..FAILED {
            setup.write();
        }
        let begun = Instant::now();
        setup.server.stop();
        assert!(begun.elapsed() < Duration::from_secs(20), "SIGTERM took {:?}", begun.elapsed());
        setup.faults.set("");
        setup.server.start_again();
        setup.check();
    }
}

/// If the table cannot be reopened, the process reports that and ends, so that a supervisor can restart it.
#[test]
fn a_table_that_cannot_be_reopened_ends_the_process() {
    let mut setup = Setup::new();
    for _ in 0..30 {
        setup.write().ok();
    }
    // The table fails first. If reads failed from the beginning, they could refuse the writes that lead to its failure.
    let no_writes = "write EIO 1000 /tables/";
    setup.faults.set(no_writes);
    let failed = eventually(|| {
        setup.write();
        setup.server.log().contains("the table failed").then_some(())
    });
    failed.expect("a checkpoint fails");
    setup.faults.set(&format!("{no_writes}\nread EIO 1000 /keyspaces/"));
    let unready = eventually(|| {
        setup.write();
        (setup.server.get("/readyz").status == 503).then_some(())
    });
    unready.expect("`/readyz` tells");
    let read = setup.read();
    read.refused(503, "ShardUnavailable");
    let status = setup.server.process().exit();
    assert_eq!(status.code(), Some(1), "{}", setup.server.log());
    assert!(setup.server.log().contains("cannot be opened again"), "{}", setup.server.log());
    setup.faults.set("");
    setup.server.start_again();
    setup.check();
}

/// Idle connections get only the file descriptors that the store does not need.
#[test]
fn connections_leave_file_descriptors_to_the_store() {
    let home = TempDir::new().expect("a temporary directory");
    let flags = ["--journal-segment-mib", "1", "--journal-mib", "8", "--checkpoint-mib", "1"];
    let server = Server::start_limited(home.path().join("data"), &flags, "-n 64");
    let ledger = server.ledger();
    ledger.create("a");
    let idle: Vec<TcpStream> =
        (0..200).map(|_| TcpStream::connect(server.address()).expect("a connection")).collect();
    // The refused connections are counted now, because later the server also closes accepted ones that send nothing.
    let refused = || idle.iter().filter(|stream| is_refused(stream)).count();
    let enough = eventually(|| Some(refused()).filter(|refused| *refused >= 100));
    assert!(enough.is_some_and(|refused| refused < 200), "{enough:?} of 200 were refused");
    for round in 0..60 {
        let operations = (0..300).map(|n| hold(&format!("{round:0200}/{n}"), &[("a", 1)])).collect();
        let reply = ledger.post("/hold/batch", batch(operations)).ok();
        assert!(results(&reply).iter().all(|result| result["status"] == 200), "{}", reply.text);
    }
    ledger.values(&["a"]).ok().value("a", 0, 60 * 300);
    let log = server.log();
    let warnings = log.lines().filter(|line| line.contains("connections are refused")).count();
    assert!((1..20).contains(&warnings), "{warnings} warnings");
    assert!(server.get("/metrics").ok().text.contains("limina_http_connections_refused_total"));
}

/// Whether the server has closed the connection, with or without an answer.
fn is_refused(mut stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => answer.is_empty() || answer.starts_with(b"HTTP/1.1 503"),
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn too_few_file_descriptors_prevent_the_start() {
    let home = TempDir::new().expect("a temporary directory");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -n 40; exec \"$@\"", "sh", crate::harness::LIMINA, "serve", "--listen"]);
    let mut process = Process::spawn(command.args(["127.0.0.1:0", "--data"]).arg(home.path().join("data")));
    assert_eq!(process.exit().code(), Some(1));
    assert!(process.log().contains("may have only 40 files open"), "{}", process.log());
}

#[test]
fn a_clock_before_1970_prevents_the_start() {
    let home = TempDir::new().expect("a temporary directory");
    let faults = Faults::compile(home.path());
    let mut command = limina();
    faults
        .preload(command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(home.path().join("data")));
    let mut process = Process::spawn(command.env("FAULTS_CLOCK", "-4000000000"));
    assert_eq!(process.exit().code(), Some(1), "{}", process.log());
    assert!(process.log().contains("before 1970"), "{}", process.log());
}

/// While every append fails, the log has one line a second for each cause, however many requests are refused.
#[test]
fn failed_appends_do_not_fill_the_log() {
    const CLIENTS: usize = 20;
    const REFUSED_EACH: usize = 10;
    /// The largest number of different messages and causes.
    const CAUSES: usize = 8;
    let mut setup = Setup::new();
    setup.write().ok();
    let before = setup.server.log().lines().count();
    setup.faults.set("write EIO 1000 /journal/\nopen EIO 1000 /journal/");
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let ledger = setup.server.ledger();
            scope.spawn(move || {
                for n in 0..REFUSED_EACH {
                    ledger.hold(&format!("refused {client} {n}"), &[("a", 1)]).is(503);
                }
            });
        }
    });
    let log = setup.server.log();
    let (lines, seconds) = (log.lines().count() - before, begun.elapsed().as_secs() as usize);
    assert!(lines <= CAUSES * (seconds + 2), "{lines} lines in {seconds} s:\n{log}");
    assert!(log.contains("an append failed") && log.contains("times"), "{log}");
    setup.faults.set("");
    let taken = eventually(|| (setup.write().status == 200).then_some(()));
    assert!(taken.is_some(), "writes are refused for ever");
    setup.check();
}
