//! Crowds: a hundred clients at one lock, and thousands of clients that wait and cost almost nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::concurrency::race;
use crate::h2;
use crate::harness::{DEADLINE, Server, eventually, within};
use crate::load::Random;
use crate::locks::{Grant, PATIENT, exclusive, release_path, shared, waiting, waiting_in};

/// The time during which a client certainly held the lock, and the token of its grant.
type Interval = (Instant, Instant, u64);

/// Checks that no two intervals overlap, and that they are in the order of their tokens.
#[track_caller]
fn check_intervals(mut intervals: Vec<Interval>) {
    intervals.sort();
    for pair in intervals.windows(2) {
        let [(_, end, token), (start, _, next)] = pair else { unreachable!("windows of two") };
        assert!(end <= start, "two held it at once: {token} and {next}");
        assert!(token < next, "{next} came after {token}");
    }
}

#[test]
fn a_hundred_clients_at_one_lock() {
    let server = Server::fresh();
    let locks = server.locks();
    let inside = AtomicUsize::new(0);
    let intervals: Vec<Interval> = race(100, |_| {
        let mut intervals = Vec::new();
        for _ in 0..3 {
            let grant = locks.grant(waiting(exclusive(json!({"a": 1})), PATIENT));
            let start = Instant::now();
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two inside");
            std::thread::yield_now();
            inside.fetch_sub(1, Ordering::SeqCst);
            intervals.push((start, Instant::now(), grant.token));
            locks.let_go(&grant);
        }
        intervals
    })
    .concat();
    assert_eq!(intervals.len(), 300, "everybody came in every time");
    check_intervals(intervals);
    assert_eq!(locks.ids().len(), 0);
    locks.free(exclusive(json!({"a": 1})));
}

#[test]
fn readers_and_writers() {
    let server = Server::fresh();
    let locks = server.locks();
    // The sum over all holders: 1000 for a writer, 1 for each reader.
    let (inside, together) = (AtomicUsize::new(0), AtomicUsize::new(0));
    race(40, |client| {
        let mut random = Random::new(client as u64 + 1);
        for _ in 0..5 {
            let writes = random.below(4) == 0;
            let request = if writes { exclusive(json!({"a": 1})) } else { shared(json!({"a": 1})) };
            let weight = if writes { 1000 } else { 1 };
            let grant = locks.grant(waiting(request, PATIENT));
            let before = inside.fetch_add(weight, Ordering::SeqCst);
            assert!(before == 0 || (!writes && before < 1000), "{before} inside, {weight} more");
            together.fetch_max(before + weight, Ordering::SeqCst);
            std::thread::yield_now();
            inside.fetch_sub(weight, Ordering::SeqCst);
            locks.let_go(&grant);
        }
    });
    assert_eq!(locks.ids().len(), 0);
    locks.free(exclusive(json!({"a": 1})));
}

/// Of many clients that do not wait, exactly one gets the lock, and the others are refused at once.
#[test]
fn one_of_many_requests_without_a_wait_is_granted() {
    let server = Server::fresh();
    let locks = server.locks();
    for round in 0..10 {
        let replies = race(24, |_| locks.ask(&exclusive(json!({"round": round}))));
        let granted: Vec<Grant> =
            replies.iter().filter(|reply| reply.status == 200).map(|reply| reply.granted()).collect();
        assert_eq!(granted.len(), 1, "round {round}");
        for reply in replies.into_iter().filter(|reply| reply.status != 200) {
            reply.refused(409, "LockHeld");
        }
    }
}

/// So few that every test run can have them. With WAITERS=50000 in the environment, the test has as many as the
/// documentation promises, and takes minutes.
const WAITERS: usize = 2_000;
const STREAMS: usize = 100;

/// Waiting requests on connections with a hundred streams each, a hundred requests for each lock.
#[test]
fn thousands_of_waiting_requests_are_answered() {
    let size = std::env::var("WAITERS").map_or(WAITERS, |text| text.parse().expect("a number"));
    let mut server = Server::fresh();
    let process = server.process().id();
    let locks = server.locks();
    let held: Vec<Grant> =
        (0..size / STREAMS).map(|lock| locks.grant(exclusive(json!({"lock": lock})))).collect();
    let runtime = h2::runtime();
    let connections: Vec<h2::Connection> =
        (0..size / STREAMS).map(|_| h2::Connection::open(&runtime, &server.url("/healthz"))).collect();
    let inside: Arc<Vec<AtomicUsize>> = Arc::new(held.iter().map(|_| AtomicUsize::new(0)).collect());
    let waiters: Vec<_> = (0..size)
        .map(|n| {
            let (connection, lock) = (connections[n / STREAMS].clone(), n % held.len());
            runtime.spawn(visit(connection, locks.url().to_owned(), lock, Arc::clone(&inside)))
        })
        .collect();
    // One second more for every fifty clients: an unoptimized build may be slow.
    let deadline = DEADLINE + Duration::from_millis(20 * size as u64);
    let all_wait = within(deadline, || {
        let waiting: u64 = locks.all(1000).iter().map(waiting_in).sum();
        (waiting == size as u64).then_some(())
    });
    assert!(all_wait.is_some(), "not all of {size} joined");
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()), "somebody was answered");
    await_quiet(process);

    for grant in &held {
        locks.let_go(grant);
    }
    let mut tokens: Vec<u64> =
        waiters.into_iter().map(|waiter| runtime.block_on(waiter).expect("a waiter's task")).collect();
    tokens.sort();
    tokens.dedup();
    assert_eq!(tokens.len(), size, "each was granted once");
    assert_eq!(locks.ids().len(), 0);

    // The same for a lock that is never released.
    let held = locks.grant(exclusive(json!({"lock": "kept"})));
    let request = waiting(exclusive(json!({"lock": "kept"})), "3s");
    let asked = Instant::now();
    let streams: Vec<h2::Stream> =
        (0..size).map(|n| connections[n / STREAMS].post(locks.url(), &request)).collect();
    for stream in streams {
        stream.answer().refused(409, "LockWaitTimeout");
    }
    assert!(asked.elapsed() + crate::locks::SLACK >= Duration::from_secs(3));
    locks.await_queue(&held, 0);
}

/// Acquires the lock, checks that no other client holds it, and releases it.
async fn visit(connection: h2::Connection, url: String, lock: usize, inside: Arc<Vec<AtomicUsize>>) -> u64 {
    let request: Value = waiting(exclusive(json!({"lock": lock})), PATIENT);
    let grant = connection.send("POST", &url, Some(&request)).await.granted();
    assert_eq!(inside[lock].swap(1, Ordering::SeqCst), 0, "two inside of {lock}");
    tokio::task::yield_now().await;
    inside[lock].store(0, Ordering::SeqCst);
    let path = release_path(&grant.lock_id, &grant.session_id);
    connection.send("DELETE", &format!("{url}{path}"), None).await.is(204);
    grant.token
}

/// Waits until the process has hardly used a processor for a while: requests that wait cost nothing.
#[track_caller]
fn await_quiet(process: u32) {
    const SPAN: Duration = Duration::from_secs(2);
    const QUIET: Duration = Duration::from_millis(100);
    let mut spans = Vec::new();
    // During the first intervals, the server may still work on the arrival of the crowd.
    let quiet = eventually(|| {
        let before = processor_time(process);
        std::thread::sleep(SPAN);
        let used = processor_time(process) - before;
        spans.push(used);
        (used <= QUIET).then_some(())
    });
    assert!(quiet.is_some(), "never quiet: of every {SPAN:?} it used {spans:?}");
}

/// The processor time as Linux reports it, in hundredths of a second.
#[track_caller]
fn processor_time(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("/proc/…/stat");
    // The name in parentheses may contain any characters. The fields after it begin with the third one.
    let (_, fields) = stat.rsplit_once(')').expect("a name");
    let field = |n: usize| fields.split_whitespace().nth(n - 3).and_then(|text| text.parse::<u64>().ok());
    let (user, system) = (field(14).expect("utime"), field(15).expect("stime"));
    Duration::from_millis((user + system) * 10)
}
