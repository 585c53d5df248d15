//! The database goes away and comes back: nothing is lost, nodes report that they are not ready, and then recover
//! automatically.

use std::time::{Duration, Instant};

use limina_pg_server::{PgServer, USER};
use serde_json::json;

use crate::cluster::{Cluster, SHORT, is_ready, new_store, postgres, retry};
use crate::fail_over::at_work;
use crate::harness::eventually;
use crate::ledger::hold;
use crate::link::Link;
use crate::load;
use crate::reply::Reply;
use crate::setup::execute;

/// A database server for one test, because the test is going to crash or halt it.
pub(crate) fn private() -> (PgServer, String) {
    let server = PgServer::start().expect("a private PostgreSQL");
    let url = server.url(&server.new_database().expect("a database"));
    (server, url)
}

#[test]
fn a_crash_of_the_database_loses_nothing() {
    let (server, url) = private();
    let cluster = Cluster::on(url, 2, SHORT);
    let namespace = cluster.namespace_of(1);
    load::make_limits(&cluster[0].ledger_of(&namespace));
    let clients = [&cluster[0], &cluster[1], &cluster[0], &cluster[1]];
    let mut operations = at_work(&clients, &namespace, "before", || {
        server.crash_and_restart().expect("PostgreSQL starts again");
    });
    cluster.settle(&[0, 1]);
    operations.extend(at_work(&clients, &namespace, "after", || {}));
    load::verify(&cluster[0].ledger_of(&namespace), &mut operations);
}

#[test]
fn nodes_are_not_ready_while_the_database_hangs_and_lose_nothing() {
    let (server, url) = private();
    let cluster = Cluster::on(url, 2, SHORT);
    let namespace = cluster.namespace_of(1);
    let at = |node: usize| cluster[node].ledger_of(&namespace);
    at(0).create("a");
    let frozen = Frozen::new(&server);
    // Sent before the node knew that the database hangs, so this hold may be executed later.
    let early = at(0).request("POST", "/hold").json(&hold("early", &[("a", 1)]));
    let early = std::thread::scope(|scope| {
        let early = scope.spawn(|| Reply::try_to(early));
        for node in 0..2 {
            await_unready(&cluster, node);
            cluster[node].get("/healthz").ok();
        }
        drop(frozen);
        early.join().expect("a client").expect("an answer")
    });
    cluster.settle(&[0, 1]);
    let states = at(1).states("early");
    match early.status {
        200 => assert_eq!(states.len(), 1, "acknowledged: {early:?}"),
        _ if early.code() == "OutcomeUnknown" => {}
        _ => assert_eq!(states, [], "not done, and yet there: {early:?}"),
    }
    at(1).hold("later", &[("a", 1)]).ok();
    at(0).values(&["a"]).ok().value("a", 0, 1 + states.len() as i64);
}

#[test]
fn requests_get_503_while_the_database_hangs() {
    let (server, url) = private();
    let cluster = Cluster::on(url, 1, SHORT);
    cluster[0].ledger().create("a");
    let _frozen = Frozen::new(&server);
    await_unready(&cluster, 0);
    cluster[0].ledger().values(&["a"]).refused(503, "ShardUnavailable");
    // Long into the outage the node sends nothing to the database. So a write at this time is certainly not executed.
    let told = eventually(|| {
        let told = cluster[0].ledger().hold("late", &[("a", 1)]);
        (told.code() == "ShardUnavailable").then_some(())
    });
    assert!(told.is_some(), "it is never known that nothing is sent");
    for n in 0..20 {
        cluster[0].ledger().hold(&format!("later-{n}"), &[("a", 1)]).refused(503, "ShardUnavailable");
    }
}

/// A node that stops while the database hangs can neither give its shards away nor tell the store that it leaves.
#[test]
fn a_node_stops_while_the_database_hangs() {
    let (server, url) = private();
    let mut cluster = Cluster::on(url, 2, SHORT);
    let _frozen = Frozen::new(&server);
    for node in 0..2 {
        await_unready(&cluster, node);
    }
    let stopped = Instant::now();
    cluster.node(0).stop();
    // The process would be killed after 30 s.
    assert!(stopped.elapsed() < Duration::from_secs(20), "{:?}", stopped.elapsed());
}

/// While the database hangs, a request's outcome is unknown only if the request was sent before the node knew of the
/// hang.
#[test]
fn requests_during_an_outage_are_certainly_not_executed() {
    let (server, url) = private();
    let cluster = Cluster::on(url, 1, SHORT);
    let ledger = cluster[0].ledger();
    ledger.create("a");
    let frozen = Frozen::new(&server);
    let holds: Vec<(String, String)> = std::thread::scope(|scope| {
        let asks: Vec<_> = (0..40)
            .map(|n| {
                let (ledger, name) = (&ledger, format!("hold-{n}"));
                scope.spawn(move || {
                    let told = ledger.hold(&name, &[("a", 1)]);
                    (name, told.code().to_owned())
                })
            })
            .collect();
        asks.into_iter().map(|ask| ask.join().expect("a client")).collect()
    });
    drop(frozen);
    cluster.settle(&[0]);
    let unknown = holds.iter().filter(|(_, code)| code == "OutcomeUnknown").count();
    for (name, code) in &holds {
        match &code[..] {
            "OutcomeUnknown" => {}
            "ShardUnavailable" => assert_eq!(ledger.states(name), [], "{name} was told as not done"),
            other => panic!("{name}: {other}"),
        }
    }
    assert!(unknown < holds.len(), "nothing was sent after the first batch, and yet all are in doubt");
}

#[track_caller]
fn await_unready(cluster: &Cluster, node: usize) {
    let unready = eventually(|| (!is_ready(&cluster[node])).then_some(()));
    assert!(unready.is_some(), "node {node} is still ready without a database");
}

/// A database server that hangs until this value is dropped.
pub(crate) struct Frozen<'a>(&'a PgServer);

impl Frozen<'_> {
    pub(crate) fn new(server: &PgServer) -> Frozen<'_> {
        server.freeze().expect("PostgreSQL halts");
        Frozen(server)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.0.thaw().expect("PostgreSQL goes on");
    }
}

#[test]
fn a_node_waits_for_its_database() {
    let server = postgres();
    let mut link = Link::to(server.port());
    let database = server.new_database().expect("a database");
    let store = format!("postgres://{USER}@127.0.0.1:{}/{database}", link.port());
    let mut cluster = Cluster::empty(store, SHORT);
    let node = cluster.join();
    let node = &cluster[node];
    let alive = eventually(|| Reply::try_to(node.http().get(node.url("/healthz"))).ok());
    alive.expect("it listens").ok();
    node.get("/readyz").is(503);
    node.ledger().values(&["a"]).is(503);
    let said = eventually(|| node.log().contains(&link.port().to_string()).then_some(()));
    assert!(said.is_some(), "it does not say what it waits for:\n{}", node.log());
    link.mend();
    cluster.settle(&[0]);
    cluster[0].ledger().create("a");
}

/// One node loses its connection to the database. The other nodes keep theirs.
#[test]
fn a_node_that_is_cut_off_answers_nothing_outdated_and_returns() {
    let server = postgres();
    let mut link = Link::to(server.port());
    link.mend();
    let store = new_store();
    let database = store.rsplit('/').next().expect("a database's name");
    let mut cluster = Cluster::on(store.clone(), 2, SHORT);
    let old = cluster.join_by(&format!("postgres://{USER}@127.0.0.1:{}/{database}", link.port()));
    cluster.settle(&[0, 1, old]);
    let namespace = cluster.namespace_of(old);
    let at = |node: usize| cluster[node].ledger_of(&namespace);
    at(old).create("a");
    at(old).hold("before", &[("a", 1)]).ok();

    link.cut();
    let request = hold("meanwhile", &[("a", 1)]);
    retry(|| at(0).request("POST", "/hold").header("idempotency-key", "k").json(&request)).ok();
    let stale = at(old).values(&["a"]);
    if stale.status != 503 {
        stale.ok().value("a", 0, 2);
    }
    await_unready(&cluster, old);

    link.mend();
    cluster.settle(&[0, 1, old]);
    at(old).values(&["a"]).ok().value("a", 0, 2);
    at(old).hold("after", &[("a", 1)]).ok().value("a", 0, 3);
}

/// A node that has lost its connections to the database, and gets no new ones, is not ready and reports the reason.
#[test]
fn a_node_without_connections_is_not_ready() {
    let (_server, url) = private();
    let (base, database) = url.rsplit_once('/').expect("a database");
    let role = format!("create role few login; grant create on database {database} to few");
    execute(&url, &role);
    let few = format!("{}/{database}", base.replace(&format!("{USER}@"), "few@"));
    let cluster = Cluster::on(few, 1, SHORT);
    cluster[0].ledger().create("a");
    execute(&url, "alter role few connection limit 4");
    execute(&url, "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'few'");
    let said = eventually(|| cluster[0].log().contains("takes no more connections").then_some(()));
    assert!(said.is_some(), "nothing names the limit:\n{}", cluster[0].log());
    await_unready(&cluster, 0);
    execute(&url, "alter role few connection limit -1");
    cluster.settle(&[0]);
    let ledger = cluster[0].ledger();
    retry(|| ledger.request("GET", "/limits/a")).ok();
}

#[test]
fn an_idle_cluster_survives_a_crash_of_the_database() {
    let (server, url) = private();
    let cluster = Cluster::on(url, 2, SHORT);
    let namespace = cluster.namespace_of(0);
    let lock = json!({"key_values": {"k": 1}, "ttl": "1h"});
    let grant = cluster[1].locks_of(&namespace).grant(lock.clone());
    server.crash_and_restart().expect("PostgreSQL starts again");
    let locks = cluster[1].locks_of(&namespace);
    retry(|| locks.request("POST", "").json(&lock)).refused(409, "LockHeld");
    locks.heartbeat(&grant).ok();
    locks.let_go(&grant);
    cluster.settle(&[0, 1]);
}
