//! Locks and leases in a cluster: who waits, and who holds what when the owner of the shard dies or leaves.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::cluster::{Cluster, LONG, SHARDS, SHORT, namespace_in, retry};
use crate::database::{Frozen, private};
use crate::harness::{Server, eventually};
use crate::ledger::encode;
use crate::limiter::{Lease, Limiter};
use crate::locks::{Grant, Locks, PATIENT, exclusive, lasting, waiting};
use crate::raw;

/// The `ttl` of the locks and leases that these tests measure, in milliseconds: longer than any test.
const HOUR: u64 = 3_600_000;

/// How long a lock or lease is held before its owner goes, in milliseconds. So a full `ttl` can be distinguished from
/// the rest of one.
const AGE: u64 = 1_000;

/// How imprecise a measured `ttl` may be: shard time may be slewed by 5 %, and instants are whole milliseconds.
fn slack(elapsed: Duration) -> u64 {
    elapsed.as_millis() as u64 / 10 + 20
}

#[test]
fn a_request_that_waits_through_another_node_is_granted() {
    let cluster = Cluster::of(3, LONG);
    let namespace = cluster.namespace_of(0);
    let at = |node: usize| cluster[node].locks_of(&namespace);
    let held = at(1).grant(exclusive(json!({"k": 1})));
    let first = at(1).wait(waiting(exclusive(json!({"k": 1})), PATIENT));
    at(0).await_queue(&held, 1);
    let second = at(2).wait(waiting(exclusive(json!({"k": 1})), PATIENT));
    at(2).await_queue(&held, 2);
    at(2).let_go(&held);
    let first = first.granted();
    assert!(!second.is_answered(), "two at once");
    at(0).let_go(&first);
    assert!(second.granted().token > first.token && first.token > held.token);
    at(1).ask(&waiting(exclusive(json!({"k": 1})), "50ms")).refused(409, "LockWaitTimeout");
}

#[test]
fn a_hang_up_at_another_node_leaves_the_queue() {
    let cluster = Cluster::of(2, LONG);
    let namespace = cluster.namespace_of(0);
    let at = |node: usize| cluster[node].locks_of(&namespace);
    let held = at(0).grant(exclusive(json!({"k": 1})));
    let body = waiting(exclusive(json!({"k": 1})), PATIENT).to_string();
    let mut connection = raw::Connection::open(cluster[1].address());
    connection.send(raw::request("POST", &format!("/v1/ns/{namespace}/locks"), "", body.as_bytes()));
    at(0).await_queue(&held, 1);
    drop(connection);
    at(0).await_queue(&held, 0);
    at(0).let_go(&held);
    at(1).free(exclusive(json!({"k": 1})));
}

/// The client's node is paused while the client hangs up and its grant falls due. When the node continues, it finds the
/// hang-up and the owner's answer at once. The owner cannot take back a grant that it has already sent.
#[test]
fn a_grant_after_a_hang_up_at_another_node_is_released() {
    let mut cluster = Cluster::of(2, LONG);
    let namespace = cluster.namespace_of(0);
    let locks = cluster[0].locks_of(&namespace);
    let body = waiting(exclusive(json!({"k": 1})), PATIENT).to_string();
    let request = raw::request("POST", &format!("/v1/ns/{namespace}/locks"), "", body.as_bytes());
    for round in 0..40 {
        let held = locks.grant(exclusive(json!({"k": 1})));
        let mut connection = raw::Connection::open(cluster[1].address());
        connection.send(&request);
        locks.await_queue(&held, 1);
        cluster.node(1).process().signal(Signal::STOP);
        drop(connection);
        locks.let_go(&held);
        cluster.node(1).process().signal(Signal::CONT);
        let next = locks.ask(&waiting(exclusive(json!({"k": 1})), "20s"));
        assert_eq!(next.status, 200, "held by one who is gone, round {round}: {:?}", locks.all(10));
        locks.let_go(&next.granted());
    }
}

#[test]
fn a_holder_has_its_full_ttl_after_the_owner_died() {
    let mut cluster = Cluster::of(3, SHORT);
    let held = Held::by(&cluster, 1);
    let waiter = held.locks(&cluster[0]).wait(waiting(exclusive(json!({"k": 1})), PATIENT));
    held.locks(&cluster[0]).await_queue(&held.grant, 1);
    held.await_age(&cluster[0]);
    cluster.node(1).kill();
    let died = Instant::now();

    held.has_full_time_since(died, &cluster[2]);
    let told = waiter.answer().reply;
    let code = told.code().to_owned();
    told.refused(503, &code);
    held.stays(&cluster[0], &cluster[2]);
}

/// The second owner hands the shard over before the holders have sent a heartbeat.
#[test]
fn a_holder_has_its_full_ttl_after_a_death_and_a_hand_over() {
    let mut cluster = Cluster::of(3, SHORT);
    let held = Held::by(&cluster, 1);
    held.await_age(&cluster[0]);
    cluster.node(1).kill();
    let died = Instant::now();
    held.left(&cluster[0]);
    let second = cluster.await_new_owner(&held.namespace, 1, 0);
    let third = 2 - second;
    cluster.node(second).stop();

    held.has_full_time_since(died, &cluster[third]);
    held.stays(&cluster[third], &cluster[third]);
}

/// While the database hangs, no heartbeat is accepted. Nothing was in flight in the shard, so it keeps its memory.
#[test]
fn a_holder_has_its_full_ttl_after_a_database_outage() {
    let (server, url) = private();
    let cluster = Cluster::on(url, 1, SHORT);
    let held = Held::by(&cluster, 0);
    held.await_age(&cluster[0]);
    let mut namespaces = (0..SHARDS).map(|shard| namespace_in(&cluster[0], shard));
    let elsewhere = namespaces.find(|namespace| *namespace != held.namespace);
    let elsewhere = cluster[0].ledger_of(&elsewhere.expect("several shards"));
    let frozen = Frozen::new(&server);
    let is_known = eventually(|| (elsewhere.values(&["a"]).code() == "ShardUnavailable").then_some(()));
    assert!(is_known.is_some(), "it is never known that the database hangs");
    held.locks(&cluster[0]).heartbeat(&held.grant).refused(503, "ShardUnavailable");
    drop(frozen);
    let back = Instant::now();
    cluster.settle(&[0]);

    held.has_full_time_since(back, &cluster[0]);
    held.stays(&cluster[0], &cluster[0]);
}

#[test]
fn a_hand_over_extends_nothing() {
    let mut cluster = Cluster::of(3, LONG);
    let held = Held::by(&cluster, 1);
    held.await_age(&cluster[0]);
    cluster.node(1).stop();
    let most = HOUR - AGE + slack(Duration::from_millis(AGE));
    let left = held.left(&cluster[2]);
    assert!(left.iter().all(|&left| left <= most), "{left:?} left, at most {most} expected");
    held.stays(&cluster[0], &cluster[2]);
}

/// The next owner's clock is an hour ahead. A lock that is held for a minute is still held.
#[test]
fn a_hand_over_keeps_shard_time() {
    let shim = Shim::make();
    let mut cluster = Cluster::of(1, LONG);
    let namespace = cluster.namespace_of(0);
    let grant = cluster[0].locks_of(&namespace).grant(lasting(exclusive(json!({"k": 1})), "60s"));
    let ahead = cluster.join_under(&[("LD_PRELOAD", &shim.library), ("CLOCK_AHEAD", "3600")]);
    cluster.settle(&[0, ahead]);
    let date = cluster[ahead].get("/healthz").header("date").to_owned();
    assert_ne!(date, cluster[0].get("/healthz").header("date"), "its clock is not ahead");
    cluster.node(0).stop();
    let locks = cluster[ahead].locks_of(&namespace);
    let path = format!("/{}", encode(&grant.lock_id));
    let left = retry(|| locks.request("GET", &path)).ok().number("expires_in_ms");
    assert!(left <= 60_000, "{left} ms");
    locks.heartbeat(&grant).ok();
    locks.taken(exclusive(json!({"k": 1})));
}

/// A preloaded library that sets the wall clock of a process ahead.
struct Shim {
    library: String,
    /// Held for its `Drop`.
    _home: tempfile::TempDir,
}

impl Shim {
    const SOURCE: &str = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stdlib.h>
        #include <time.h>
        int clock_gettime(clockid_t clock, struct timespec *time) {
            static int (*real)(clockid_t, struct timespec *);
            if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
            int failed = real(clock, time);
            const char *ahead = getenv("CLOCK_AHEAD");
            if (!failed && clock == CLOCK_REALTIME && ahead) time->tv_sec += atoi(ahead);
            return failed;
        }
    "#;

    #[track_caller]
    fn make() -> Shim {
        let home = tempfile::tempdir().expect("a directory");
        let [source, library] = ["clock.c", "clock.so"].map(|name| home.path().join(name));
        std::fs::write(&source, Shim::SOURCE).expect("written");
        let mut compiler = std::process::Command::new("cc");
        let made = compiler.args(["-shared", "-fPIC", "-o"]).args([&library, &source]).arg("-ldl").status();
        assert!(made.is_ok_and(|status| status.success()), "a C compiler is needed");
        Shim { library: library.display().to_string(), _home: home }
    }
}

/// A client with a short `ttl` sends its heartbeats through another node, and never loses its lock.
#[test]
fn heartbeats_keep_a_lock_when_the_owner_dies() {
    let mut cluster = Cluster::of(3, SHORT);
    let namespace = cluster.namespace_of(2);
    let (owner, rest) = cluster.apart(2);
    let locks = rest[0].locks_of(&namespace);
    let grant = locks.grant(lasting(exclusive(json!({"k": 1})), "5s"));
    owner.kill();
    let path = format!("/{}/heartbeat", encode(&grant.lock_id));
    for _ in 0..20 {
        retry(|| locks.request("POST", &path).json(&json!({"session_id": grant.session_id}))).ok();
    }
    locks.taken(exclusive(json!({"k": 1})));
    locks.let_go(&grant);
    assert!(locks.grant(exclusive(json!({"k": 1}))).token > grant.token);
}

/// A lock and a lease in a namespace that one node owns.
struct Held {
    namespace: String,
    grant: Grant,
    lease: Lease,
    lease_token: u64,
}

impl Held {
    #[track_caller]
    fn by(cluster: &Cluster, owner: usize) -> Held {
        let namespace = cluster.namespace_of(owner);
        let grant = cluster[owner].locks_of(&namespace).grant(exclusive(json!({"k": 1})));
        let limiter = cluster[owner].limiter_of(&namespace);
        limiter.rule("uses", &["k"], 1);
        let lease = limiter.lease(json!({"k": 1}), 1, "1h").created();
        Held { namespace, grant, lease: lease.lease(), lease_token: lease.number("fencing_token") }
    }

    fn locks(&self, node: &Server) -> Locks {
        node.locks_of(&self.namespace)
    }

    fn limiter(&self, node: &Server) -> Limiter {
        node.limiter_of(&self.namespace)
    }

    /// Waits until both have been held for [`AGE`].
    #[track_caller]
    fn await_age(&self, node: &Server) {
        let old = eventually(|| self.left(node).iter().all(|&left| left <= HOUR - AGE).then_some(()));
        assert!(old.is_some(), "time stands still");
    }

    /// The remaining time of both.
    #[track_caller]
    fn left(&self, node: &Server) -> [u64; 2] {
        let lock = format!("/{}", encode(&self.grant.lock_id));
        let lock = retry(|| self.locks(node).request("GET", &lock)).ok();
        let lease = format!("/leases/{}", encode(&self.lease.id));
        let lease = retry(|| self.limiter(node).request("GET", &lease)).ok();
        [lock.number("expires_in_ms"), lease.number("expires_in_ms")]
    }

    /// Checks that both got their full `ttl` at this instant or later.
    #[track_caller]
    fn has_full_time_since(&self, instant: Instant, node: &Server) {
        let left = self.left(node);
        let least = HOUR - instant.elapsed().as_millis() as u64 - slack(instant.elapsed());
        assert!(
            left.iter().all(|left| (least..=HOUR).contains(left)),
            "{left:?} left, at least {least} expected"
        );
    }

    /// Checks that no other client gets either before it is released, and that tokens keep growing after that.
    #[track_caller]
    fn stays(&self, node: &Server, other: &Server) {
        self.locks(node).taken(exclusive(json!({"k": 1})));
        self.locks(other).heartbeat(&self.grant).ok();
        self.limiter(other).heartbeat(&self.lease).ok();
        self.limiter(node).lease(json!({"k": 1}), 1, "1h").denied(&["uses"]);
        self.locks(node).let_go(&self.grant);
        self.limiter(other).release(&self.lease).is(204);
        let next = self.locks(other).grant(exclusive(json!({"k": 1}))).token;
        let lease = self.limiter(node).lease(json!({"k": 1}), 1, "1h").created().number("fencing_token");
        assert!(self.grant.token < self.lease_token && self.lease_token < next && next < lease);
    }
}
