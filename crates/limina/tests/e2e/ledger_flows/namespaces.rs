//! Namespaces: nothing is shared between two, and nothing of a removed one comes back.

use serde_json::json;

use crate::harness::Server;
use crate::shape;
use crate::shape::State::Held;

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
fn two_namespaces_share_nothing() {
    let mut server = Server::fresh();
    let (red, blue) = (server.ledger_of("red"), server.ledger_of("blue"));
    red.create_with_ceiling("a", 10);
    blue.create("a");
    red.hold("op", &[("a", 5)]).ok().value("a", 0, 5);
    blue.hold("op", &[("a", 50)]).ok().value("a", 0, 50);
    red.commit_all("op").ok();
    server.ledger().limit("a").refused(404, "LimitNotFound");
    let third = server.ledger_of("green");
    third.operation("op").refused(404, "OperationNotFound");

    server.crash_and_restart();
    let (red, blue) = (server.ledger_of("red"), server.ledger_of("blue"));
    red.values(&["a"]).ok().value("a", 5, 0);
    blue.values(&["a"]).ok().value("a", 0, 50);
    assert_eq!(blue.states("op"), [("a".into(), Held)]);
    red.hold("more", &[("a", 6)]).refused(409, "LimitExceeded");
    blue.hold("more", &[("a", 6)]).ok();
}

#[test]
fn a_namespace_comes_into_being_with_its_first_write() {
    let server = Server::fresh();
    let ledger = server.ledger_of("new");
    assert_eq!(ledger.get("/limits").ok().items().len(), 0);
    assert_eq!(ledger.get("/operations?state=held").ok().items().len(), 0);
    ledger.limit("a").refused(404, "LimitNotFound");
    ledger.operation("op").refused(404, "OperationNotFound");
    ledger.values(&["a"]).refused(404, "LimitNotFound");
    assert!(!listed(&server, "new"), "reading never creates one");
    ledger.create("a");
    assert!(listed(&server, "new"));
}

#[test]
fn without_a_prefix_the_namespace_is_default() {
    let server = Server::fresh();
    server.ledger().create("a");
    assert!(listed(&server, "default"));
    server.ledger_of("default").hold("op", &[("a", 3)]).ok();
    server.ledger().values(&["a"]).ok().value("a", 0, 3);
}

#[test]
fn a_namespace_has_any_name() {
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
fn a_removed_namespace_is_gone_and_its_names_are_fresh() {
    let mut server = Server::fresh();
    let ledger = server.ledger_of("brief");
    let made = json!({"name": "a", "ceiling": 10, "context": {"k": "v"}});
    ledger.post_keyed("/limits", "key-1", &made).created();
    ledger.hold("op", &[("a", 5)]).ok();
    ledger.commit_all("op").ok();
    let open = ledger.hold("open", &[("a", 5)]).ok();
    let other = server.ledger_of("other");
    other.create("a");
    other.hold("op", &[("a", 1)]).ok();

    remove(&server, "brief");
    let gone = |server: &Server| {
        let ledger = server.ledger_of("brief");
        assert!(!listed(server, "brief"));
        ledger.limit("a").refused(404, "LimitNotFound");
        ledger.operation("op").refused(404, "OperationNotFound");
        ledger.values(&["a"]).refused(404, "LimitNotFound");
        assert_eq!(ledger.get("/limits").ok().items().len(), 0);
        assert_eq!(ledger.get("/operations?state=held").ok().items().len(), 0);
        server.ledger_of("other").values(&["a"]).ok().value("a", 0, 1);
    };
    gone(&server);
    server.crash_and_restart();
    gone(&server);

    // The key went with the namespace: this makes the limit anew.
    let ledger = server.ledger_of("brief");
    ledger.post_keyed("/limits", "key-1", &made).created();
    ledger.limit("a").ok();
    assert_eq!(ledger.entries("a").len(), 0);
    let fresh = ledger.hold("op", &[("a", 10)]).ok().value("a", 0, 10);
    assert!(fresh.position() > open.position(), "positions still grow");
    let open_now = ledger.all("/operations?state=held", 100);
    assert_eq!(open_now.len(), 1, "{open_now:?}");
    server.crash_and_restart();
    let ledger = server.ledger_of("brief");
    ledger.values(&["a"]).ok().value("a", 0, 10);
    ledger.operation("open").refused(404, "OperationNotFound");
}

#[test]
fn a_large_namespace_is_removed_whole() {
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
    // Whatever was still being cleared away when the server died stays away.
    server.crash_and_restart();
    let ledger = server.ledger_of("large");
    ledger.limit("a").refused(404, "LimitNotFound");
    ledger.create("a");
    ledger.operation("op-1").refused(404, "OperationNotFound");
    assert_eq!(ledger.entries("a").len(), 0);
}
