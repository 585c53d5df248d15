//! Everything acknowledged survives `kill -9` at any moment.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::process::Signal;

use crate::harness::{Process, Server, eventually, limina};
use crate::ledger::{batch, hold, results};
use crate::load::{self, Operation, Progress, Random};

/// Runs sixteen clients until they have this many answers, and then ends the server in this way.
fn load_until(
    server: &mut Server,
    round: u64,
    acknowledged: usize,
    end: impl FnOnce(&mut Server),
) -> Vec<Operation> {
    let progress = Progress::default();
    let ledger = server.ledger();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..16)
            .map(|n| {
                let (ledger, progress) = (&ledger, &progress);
                scope.spawn(move || load::client(ledger, &format!("r{round}c{n}"), round * 100 + n, progress))
            })
            .collect();
        let reached = eventually(|| (progress.done.load(Ordering::Relaxed) >= acknowledged).then_some(()));
        end(server);
        progress.stop.store(true, Ordering::Relaxed);
        assert!(reached.is_some(), "only {} answers came", progress.done.load(Ordering::Relaxed));
        clients.into_iter().flat_map(|client| client.join().expect("a client")).collect()
    })
}

#[test]
fn nothing_acknowledged_is_lost_in_crashes_under_load() {
    let mut server = Server::fresh();
    load::make_limits(&server.ledger());
    let mut operations = Vec::new();
    for round in 0..3 {
        operations.extend(load_until(&mut server, round, 200, Server::kill));
        server.start_again();
        load::verify(&server.ledger(), &mut operations);
    }
    // The checks have resolved every unknown outcome. After another crash, everything must be there again.
    server.crash_and_restart();
    load::verify(&server.ledger(), &mut operations);
}

#[test]
fn nothing_acknowledged_is_lost_in_a_stop_under_load() {
    let mut server = Server::fresh();
    load::make_limits(&server.ledger());
    let mut operations = Vec::new();
    for round in 0..2 {
        operations.extend(load_until(&mut server, round, 300, Server::stop));
        server.start_again();
        load::verify(&server.ledger(), &mut operations);
    }
}

/// A server that is killed during recovery recovers at the next start.
#[test]
fn recovery_survives_kills() {
    let mut server = Server::fresh();
    load::make_limits(&server.ledger());
    let mut operations = load_until(&mut server, 0, 600, Server::kill);
    let mut random = Random::new(7);
    for _ in 0..12 {
        let mut command = limina();
        command.args(["serve", "--listen", "127.0.0.1:0", "--journal-segment-mib", "4", "--data"]);
        let mut process = Process::spawn(command.arg(server.data()));
        // Not a wait for something: the kill hits another moment of the recovery each time.
        std::thread::sleep(Duration::from_millis(random.below(60)));
        process.signal(Signal::KILL);
        process.exit();
    }
    server.start_again();
    load::verify(&server.ledger(), &mut operations);
}

/// A history of several journal segments, with crashes in between, is complete and in order.
#[test]
fn history_spans_several_journal_segments() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let mut server = Server::start_with(home.path().join("data"), &["--journal-segment-mib", "1"]);
    server.ledger().create("a");
    let (rounds, size) = (10, 500_i64);
    for round in 0..rounds {
        // Long ids, so that a few batches fill a segment of 1 MiB.
        let id = |n: i64| format!("{:0200}", round * size + n);
        let ledger = server.ledger();
        let reply =
            ledger.post("/hold/batch", batch((0..size).map(|n| hold(&id(n), &[("a", 1)])).collect())).ok();
        assert!(results(&reply).iter().all(|result| result["status"] == 200));
        let reply = ledger
            .post("/commit/batch", batch((0..size).step_by(2).map(|n| hold(&id(n), &[("a", 1)])).collect()))
            .ok();
        assert!(results(&reply).iter().all(|result| result["status"] == 200));
        if round % 3 == 2 {
            server.crash_and_restart();
        }
    }
    let check = |server: &Server| {
        let ledger = server.ledger();
        let half = rounds * size / 2;
        ledger.values(&["a"]).ok().value("a", half, half);
        for n in (0..rounds * size).step_by(177) {
            let (round, nth) = (n / size, n % size);
            let committed = round * size / 2;
            let held = round * size / 2 + nth + 1;
            ledger.values_as_of(&format!("{n:0200}"), &["a"]).ok().value("a", committed, held);
        }
        let entries = ledger.entries("a");
        assert_eq!(crate::shape::sum(&entries), (half, half));
    };
    check(&server);
    server.restart();
    check(&server);
}

/// Holds that expire around a crash: each one expires exactly once.
#[test]
fn expiries_around_a_crash_happen_once() {
    let mut server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    let holds = (0..3000)
        .map(|n| {
            let request = hold(&format!("op-{n}"), &[("a", 1)]);
            // The expiries are spread out, so that some come before the crash and some after it.
            crate::ledger::with(request, serde_json::json!({"expires_after_ms": 500 + n / 3}))
        })
        .collect();
    ledger.post("/hold/batch", batch(holds)).ok();
    for left in [2500, 1500, 500] {
        let ledger = server.ledger();
        let some = eventually(|| {
            let now = ledger.values(&["a"]).ok();
            (now.body["values"][0]["hold_value"].as_i64()? <= left).then_some(())
        });
        assert!(some.is_some(), "nothing expires");
        server.crash_and_restart();
    }
    let ledger = server.ledger();
    let empty =
        eventually(|| (ledger.values(&["a"]).ok().body["values"][0]["hold_value"] == 0).then_some(()));
    assert!(empty.is_some(), "some never expire");
    let entries = ledger.entries("a");
    assert_eq!((entries.len(), crate::shape::sum(&entries)), (6000, (0, 0)));
}

/// A batch of 16 MiB is accepted, although the journal's segments have 4 MiB here.
#[test]
fn a_batch_may_be_longer_than_a_journal_segment() {
    let mut server = Server::fresh();
    let context = serde_json::json!({"one": "n".repeat(900), "two": "n".repeat(900)});
    let operations: Vec<_> = (0..8192)
        .map(|n| {
            let change = serde_json::json!({"limit_name": format!("limit-{n}"), "value": n, "context": context});
            serde_json::json!({"operation_id": format!("op-{n}"), "changes": [change], "create_missing": true})
        })
        .collect();
    let reply = server.ledger().post("/hold/batch", batch(operations)).ok();
    let held = results(&reply);
    assert_eq!(held.len(), 8192);
    for result in held {
        assert_eq!(result["status"], 200, "{result}");
    }
    server.crash_and_restart();
    let ledger = server.ledger();
    for n in (0..8192).step_by(1000) {
        let name = format!("limit-{n}");
        ledger.limit(&name).ok().has("context", context.clone());
        ledger.values_as_of(&format!("op-{n}"), &[&name]).ok().value(&name, 0, n);
    }
    assert_eq!(ledger.limit_names(1000).len(), 8192);
}

/// A hold with the largest context that a request may have is stored completely.
#[test]
fn a_large_context_is_kept() {
    let mut server = Server::fresh();
    let context: serde_json::Map<_, _> =
        (0..64).map(|n| (format!("{n:0256}"), "x".repeat(1024).into())).collect();
    let context = serde_json::Value::from(context);
    server.ledger().post("/limits", serde_json::json!({"name": "large", "context": context})).created();
    let change = serde_json::json!({"limit_name": "larger", "value": 1, "context": context});
    let request = serde_json::json!({"operation_id": "op", "changes": [change], "create_missing": true});
    server.ledger().post("/hold", request).ok();
    server.crash_and_restart();
    for name in ["large", "larger"] {
        server.ledger().limit(name).ok().has("context", context.clone());
    }
}
