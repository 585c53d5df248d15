//! The cost of one request: its body bounds the memory that it takes, and the size of its answer is checked before it
//! is executed.

use serde_json::{Value, json};

use crate::harness::Server;
use crate::ledger::results;
use crate::limiter::checks;

const MIB: u64 = 1 << 20;

/// The peak of the server's resident memory, in bytes.
fn peak(server: &mut Server) -> u64 {
    let path = format!("/proc/{}/status", server.process().id());
    let status = std::fs::read_to_string(path).expect("the status of the process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    let kib = line.trim().trim_end_matches("kB").trim();
    kib.parse::<u64>().expect("a number of KiB") * 1024
}

/// Each wrong item gets its own problem document, but only as many as a batch may have items.
#[test]
fn many_wrong_items_cost_no_more_than_their_body() {
    let mut server = Server::fresh();
    for (path, field) in [("/v1/limiter/check/batch", "checks"), ("/v1/ledger/hold/batch", "operations")] {
        let before = peak(&mut server);
        let body = format!("{{{field:?}: [{}1]}}", "1,".repeat(1 << 20));
        let reply = server.http().post(server.url(path)).body(body).send().expect("an answer");
        assert_eq!(reply.status().as_u16(), 400, "{path}");
        let problem: Value = reply.json().expect("a problem document");
        assert_eq!((&problem["code"], &problem["field"]), (&json!("InvalidRequest"), &json!(field)));
        let more = peak(&mut server) - before;
        assert!(more < 128 * MIB, "{path} with 2 MiB took {} MiB", more / MIB);
    }
}

/// Two hundred rules apply to each check, so the answer is thousands of times as large as the request.
#[test]
fn a_too_large_answer_is_refused_before_execution() {
    let mut server = Server::fresh();
    let limiter = server.limiter();
    let name = |n: usize| format!("{n:03}{}", "x".repeat(250));
    for n in 0..200 {
        limiter.rule(&name(n), &["a"], 1_000_000);
    }
    let batch = |count: usize| checks(vec![json!({"key_values": {"a": 1}}); count]);
    let before = peak(&mut server);
    for _ in 0..2 {
        let reply = limiter.keyed("POST", "/check/batch", "key", &batch(1_000));
        let problem = reply.refused(413, "AnswerTooLarge");
        assert_eq!(problem.body["max_bytes"], 64 * MIB);
    }
    let more = peak(&mut server) - before;
    assert!(more < 256 * MIB, "a refusal took {} MiB", more / MIB);
    limiter.look(json!({"a": 1})).uses(&name(0), 0);
    // The refused request did not use the key, so the same key can be used for a smaller batch.
    let reply = limiter.keyed("POST", "/check/batch", "key", &batch(50)).ok();
    assert_eq!(results(&reply).len(), 50);
    assert!((reply.text.len() as u64) < 64 * MIB, "{}", reply.text.len());
    assert_eq!(limiter.keyed("POST", "/check/batch", "key", &batch(50)).ok().text, reply.text);
    limiter.look(json!({"a": 1})).uses(&name(0), 50);
}
