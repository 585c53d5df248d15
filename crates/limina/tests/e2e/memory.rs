//! The memory budget: clients that send or read slowly cannot use up the memory, and when it is used up, every client
//! can still release what it holds.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use crate::event_flows::stomp_stalled::resident;
use crate::events::LONG;
use crate::h2;
use crate::harness::{Server, within};
use crate::locks::{exclusive, waiting};
use crate::raw::request;
use crate::stomp::Stomp;

const MIB: u64 = 1 << 20;

fn start_small(home: &TempDir) -> Server {
    Server::start_with(home.path().join("data"), &["--journal-segment-mib", "4", "--memory-mib", "64"])
}

/// Clients send more and more requests that wait for a lock, until there is no memory for another one. Requests that
/// release something are still accepted.
#[test]
fn at_the_limit_everything_can_be_released() {
    let home = TempDir::new().expect("a temporary directory");
    let server = start_small(&home);
    let (locks, ledger) = (server.locks(), server.ledger());
    let held = locks.grant(exclusive(json!({"lock": "held"})));
    let other = locks.grant(exclusive(json!({"lock": "other"})));
    ledger.create("l");
    ledger.hold("committed", &[("l", 1)]).ok();
    ledger.hold("rolled back", &[("l", 1)]).ok();

    let runtime = h2::runtime();
    let request = waiting(exclusive(json!({"lock": "held"})), "5m");
    let mut waiters = Vec::new();
    let is_full = within(Duration::from_secs(120), || {
        let connection = h2::Connection::open(&runtime, &server.url("/healthz"));
        let waiting: Vec<_> = (0..150).map(|_| connection.post(locks.url(), &request)).collect();
        let refused = waiting.iter().any(h2::Stream::is_answered);
        waiters.push((connection, waiting));
        (refused || locks.ask(&exclusive(json!({"lock": "new"}))).status == 503).then_some(())
    });
    assert!(is_full.is_some(), "{} requests wait, and the memory is not used up", 150 * waiters.len());

    // A request that is refused returns its memory. What stays in use must be above the threshold, not just below it.
    let _idle: Vec<_> = (0..64).map(|_| h2::Connection::open(&runtime, &server.url("/healthz"))).collect();

    let refused = locks.ask(&exclusive(json!({"lock": "another"}))).refused(503, "Overloaded");
    refused.header("retry-after");
    ledger.hold("new", &[("l", 1)]).refused(503, "Overloaded");
    locks.heartbeat(&held).ok();
    ledger.commit_all("committed").ok();
    ledger.rollback_all("rolled back").ok();
    locks.get(&other.lock_id).ok();
    locks.let_go(&other);
    let metrics = server.get("/metrics").is(200);
    assert!(metrics.text.contains("limina_memory_bytes{kind=\"requests\"}"), "{}", metrics.text);

    drop(waiters);
    drop(runtime);
    let is_over = within(Duration::from_secs(60), || {
        (locks.ask(&exclusive(json!({"lock": "after"}))).status == 200).then_some(())
    });
    assert!(is_over.is_some(), "still refused after all waiting clients have gone");
    locks.let_go(&held);
}

/// Subscribers that do not read, and bodies that do not end.
#[test]
fn slow_clients_do_not_use_up_the_memory() {
    let home = TempDir::new().expect("a temporary directory");
    let mut server = start_small(&home);
    let events = server.events();
    events.only_once("s", LONG);
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let events = events.clone();
            scope.spawn(move || {
                for n in 0..500 {
                    events.accept("s", &format!("{writer}/{n}/{}", "x".repeat(1000)));
                }
            });
        }
    });
    let before = resident(&mut server);
    let _stomp: Vec<Stomp> = (0..40)
        .map(|_| {
            let mut stomp = Stomp::connect(&server);
            stomp.subscribe("0", "/topic/s");
            stomp
        })
        .collect();
    let send = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(server.address()).expect("connect");
        stream.set_write_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        // If the server refuses the body, it may close the connection before it has read the rest.
        let _refused = stream.write_all(bytes);
        stream
    };
    let follow = request("GET", "/v1/events/s/stream", "", b"");
    let _sse: Vec<TcpStream> = (0..40).map(|_| send(&follow)).collect();
    let body = request("POST", "/v1/ledger/hold/batch", "", &vec![b' '; 8 << 20]);
    let _bodies: Vec<TcpStream> = (0..20).map(|_| send(&body[..body.len() - 1])).collect();

    // Meanwhile the server serves an honest client.
    let locks = server.locks();
    for n in 0..100 {
        let grant = locks.grant(exclusive(json!({"honest": n})));
        locks.let_go(&grant);
    }
    let grown = resident(&mut server).saturating_sub(before);
    println!("grown by {} MiB", grown / MIB);
    assert!(grown < 160 * MIB, "grown by {} MiB, with a budget of 64", grown / MIB);
}

/// With an address space of 1 GiB, the server refuses what does not fit, and does not abort.
#[test]
fn a_limited_address_space_is_enough() {
    let home = TempDir::new().expect("a temporary directory");
    let flags = ["--journal-segment-mib", "4"];
    let mut server = Server::start_limited(home.path().join("data"), &flags, "-v 1048576");
    let body = request("POST", "/v1/ledger/hold/batch", "", &vec![b' '; 16 << 20]);
    let address = server.address();
    let bodies: Vec<_> = (0..100)
        .map(|_| {
            let mut stream = TcpStream::connect(address).expect("connect");
            stream.set_write_timeout(Some(Duration::from_secs(60))).expect("a timeout");
            let _refused = stream.write_all(&body[..body.len() - 1]);
            stream
        })
        .collect();
    let locks = server.locks();
    for n in 0..100 {
        let grant = locks.grant(exclusive(json!({"honest": n})));
        locks.let_go(&grant);
    }
    drop(bodies);
    server.stop();
}
