//! The database goes away and comes back: nothing is lost, nodes say that they are not ready, and go on by themselves.

use std::time::{Duration, Instant};

use limina_pg_server::{PgServer, USER};
use serde_json::json;

use crate::cluster::{Cluster, SHORT, insist, is_ready, new_store, postgres};
use crate::fail_over::at_work;
use crate::harness::eventually;
use crate::ledger::hold;
use crate::link::Link;
use crate::load;
use crate::reply::Reply;
use crate::setup::execute;

/// A server of its own, since it is about to be crashed or halted.
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
fn a_database_that_hangs_is_told_by_readiness_and_loses_nothing() {
    let (server, url) = private();
    let cluster = Cluster::on(url, 2, SHORT);
    let namespace = cluster.namespace_of(1);
    let at = |node: usize| cluster[node].ledger_of(&namespace);
    at(0).create("a");
    let frozen = Frozen::new(&server);
    // Taken before it was known that the database hangs, so it may be done later.
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
fn while_the_database_hangs_requests_are_answered_with_503() {
    let (server, url) = private();
    let cluster = Cluster::on(url, 1, SHORT);
    cluster[0].ledger().create("a");
    let _frozen = Frozen::new(&server);
    await_unready(&cluster, 0);
    cluster[0].ledger().values(&["a"]).refused(503, "ShardUnavailable");
    // Long into the outage nothing is sent to the database, so a write is surely not done either.
    let told = eventually(|| {
        let told = cluster[0].ledger().hold("late", &[("a", 1)]);
        (told.code() == "ShardUnavailable").then_some(())
    });
    assert!(told.is_some(), "it is never known that nothing is sent");
    for n in 0..20 {
        cluster[0].ledger().hold(&format!("later-{n}"), &[("a", 1)]).refused(503, "ShardUnavailable");
    }
}

/// The node can neither give its shards away nor tell the store that it leaves.
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
    // The process would be ended by force after 30 s.
    assert!(stopped.elapsed() < Duration::from_secs(20), "{:?}", stopped.elapsed());
}

/// Of everything that clients ask for while the database hangs, only what was sent before that was known is in doubt.
#[test]
fn what_was_not_sent_is_surely_not_done() {
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

/// A server that hangs until this is dropped.
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

/// One node loses its way to the database, and the others do not.
#[test]
fn a_node_that_is_cut_off_answers_nothing_old_and_comes_back() {
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
    insist(|| at(0).request("POST", "/hold").header("idempotency-key", "k").json(&request)).ok();
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

/// A node whose connections are lost, and that gets no others, is not ready, and says why.
#[test]
fn a_server_that_takes_no_more_connections_is_told_by_readiness() {
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
    insist(|| ledger.request("GET", "/limits/a")).ok();
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
    insist(|| locks.request("POST", "").json(&lock)).refused(409, "LockHeld");
    locks.heartbeat(&grant).ok();
    locks.let_go(&grant);
    cluster.settle(&[0, 1]);
}
