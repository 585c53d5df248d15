//! Namespaces: their names and pages over HTTP, and the deletion of a large one across a crash.

use crate::harness::Server;
use crate::shape;

#[track_caller]
fn listed(server: &Server, namespace: &str) -> bool {
    shape::namespaces(&server.get("/v1/ns").ok().body).iter().any(|name| name == namespace)
}

#[track_caller]
fn remove(server: &Server, namespace: &str) {
    let reply = server.delete(&format!("/v1/ns/{namespace}"));
    assert!([200, 204].contains(&reply.status), "{} {}", reply.status, reply.text);
}

#[test]
fn paths_without_a_namespace_use_default() {
    let server = Server::fresh();
    server.ledger().create("a");
    assert!(listed(&server, "default"));
    server.ledger_of("default").hold("op", &[("a", 3)]).ok();
    server.ledger().values(&["a"]).ok().value("a", 0, 3);
}

#[test]
fn namespaces_can_have_any_name() {
    let mut server = Server::fresh();
    let names = ["ns one", "a/b", "ünï🌮", "100%", "v1", "ns", "ledger", &"x".repeat(256)];
    for name in names {
        server.ledger_of(&crate::ledger::encode(name)).create("a");
    }
    let check = |server: &Server| {
        for name in names {
            assert!(listed(server, name), "{name:?} is not listed");
            server.ledger_of(&crate::ledger::encode(name)).limit("a").ok();
        }
    };
    check(&server);
    server.restart();
    check(&server);
    remove(&server, "a%2Fb");
    assert!(!listed(&server, "a/b"));
}

#[test]
fn namespaces_are_listed_page_by_page() {
    let server = Server::fresh();
    let mut names: Vec<String> = (0..12).map(|n| format!("ns-{n:02}")).collect();
    for name in &names {
        server.ledger_of(name).create("a");
    }
    let mut found: Vec<String> = Vec::new();
    let mut path = "/v1/ns?limit=5".to_owned();
    loop {
        let page = server.get(&path).ok();
        found.extend(shape::namespaces(&page.body));
        let Some(next) = page.next() else { break };
        path = format!("/v1/ns?limit=5&after={}", crate::ledger::encode(next));
    }
    found.retain(|name| name != "default");
    found.sort();
    names.sort();
    assert_eq!(found, names);
}

#[test]
fn a_large_namespace_is_deleted_completely() {
    let mut server = Server::fresh();
    for round in 0..3 {
        let ledger = server.ledger_of("large");
        ledger.create("a");
        let holds = (0..4000).map(|n| crate::ledger::hold(&format!("op-{n}"), &[("a", 1)])).collect();
        let reply = ledger.post("/hold/batch", crate::ledger::batch(holds)).ok();
        assert!(crate::ledger::results(&reply).iter().all(|result| result["status"] == 200), "round {round}");
        ledger.values(&["a"]).ok().value("a", 0, 4000);
        remove(&server, "large");
        server.ledger_of("large").limit("a").refused(404, "LimitNotFound");
    }
    // The records that were still being removed when the server was killed do not come back.
    server.crash_and_restart();
    let ledger = server.ledger_of("large");
    ledger.limit("a").refused(404, "LimitNotFound");
    ledger.create("a");
    ledger.operation("op-1").refused(404, "OperationNotFound");
    assert_eq!(ledger.entries("a").len(), 0);
}
