//! Lists: limits, open operations, a limit's history; page by page.

use std::collections::BTreeSet;

use serde_json::json;

use crate::harness::Server;
use crate::ledger::{batch, hold, results};
use crate::shape;
use crate::shape::State::{Committed, Held, RolledBack};

#[test]
fn limits_are_listed_page_by_page() {
    let mut server = Server::fresh();
    let ledger = server.ledger();
    let mut names: Vec<String> = (0..70).map(|n| format!("limit {n}/ä🌮%")).collect();
    for name in &names {
        ledger.create(name);
    }
    names.sort();
    let check = |server: &Server| {
        for page in [1, 7, 69, 70, 71, 1000] {
            let mut listed = server.ledger().limit_names(page);
            listed.sort();
            assert_eq!(listed, names, "pages of {page}");
        }
    };
    check(&server);
    server.crash_and_restart();
    check(&server);
}

#[test]
fn a_page_has_100_items_unless_told() {
    let server = Server::fresh();
    let ledger = server.ledger();
    assert_eq!(ledger.get("/limits").ok().items().len(), 0);
    assert_eq!(ledger.get("/limits").ok().next(), None);
    let names: Vec<String> = (0..64).map(|n| format!("limit-{n}")).collect();
    for part in ["x", "y"] {
        let changes: Vec<_> =
            names.iter().map(|name| json!({"limit_name": format!("{part}{name}"), "value": 1})).collect();
        ledger.post("/hold", json!({"operation_id": part, "changes": changes, "create_missing": true})).ok();
    }
    let page = ledger.get("/limits").ok();
    assert_eq!(page.items().len(), 100);
    let rest =
        ledger.get(&format!("/limits?after={}", crate::ledger::encode(page.next().expect("28 more")))).ok();
    assert_eq!((rest.items().len(), rest.next()), (28, None));
}

#[test]
fn open_operations_are_listed_page_by_page() {
    let mut server = Server::fresh();
    let ledger = server.ledger();
    ledger.create_all(&["a", "b"]);
    let operations: Vec<String> = (0..250).map(|n| format!("op {n:03}")).collect();
    let holds = operations.iter().map(|id| hold(id, &[("a", 1), ("b", 2)])).collect();
    assert!(
        results(&ledger.post("/hold/batch", batch(holds)).ok()).iter().all(|result| result["status"] == 200)
    );

    let open = |server: &Server, page: usize| -> Vec<String> {
        let items = server.ledger().all("/operations?state=held", page);
        let mut ids: Vec<String> = items
            .iter()
            .map(|item| item["operation_id"].as_str().expect("`operation_id`").to_owned())
            .collect();
        ids.sort();
        ids
    };
    for page in [7, 100, 250, 1000] {
        assert_eq!(open(&server, page), operations, "pages of {page}");
    }

    // Finished in one limit is still open in the other; finished in both is not open.
    let mut expected: BTreeSet<String> = operations.iter().cloned().collect();
    for (n, id) in operations.iter().enumerate() {
        match n % 5 {
            0 => ledger.commit_all(id).ok(),
            1 => ledger.rollback_all(id).ok(),
            2 => ledger.commit_of(id, &["a"]).ok(),
            _ => continue,
        };
        if n % 5 < 2 {
            expected.remove(id);
        }
    }
    let expected: Vec<String> = expected.into_iter().collect();
    assert_eq!(open(&server, 33), expected);
    server.crash_and_restart();
    assert_eq!(open(&server, 33), expected);
}

#[test]
fn an_operation_tells_its_state_in_every_limit() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create_all(&["a", "b", "c"]);
    ledger.hold("op", &[("a", 1), ("b", 2), ("c", 3)]).ok();
    ledger.commit_of("op", &["b"]).ok();
    ledger.rollback_of("op", &["c"]).ok();
    ledger.operation("op").ok().has("operation_id", "op");
    assert_eq!(ledger.states("op"), [("a".into(), Held), ("b".into(), Committed), ("c".into(), RolledBack)]);
    ledger.operation("OP").refused(404, "OperationNotFound");
}

#[test]
fn a_history_adds_up_to_the_values() {
    let mut server = Server::fresh();
    let ledger = server.ledger();
    ledger.create_all(&["a", "b"]);
    let holds: Vec<_> = (0..300).map(|n| hold(&format!("op-{n}"), &[("a", n - 150), ("b", 1)])).collect();
    ledger.post("/hold/batch", batch(holds)).ok();
    let commits = (0..100).map(|n| hold(&format!("op-{n}"), &[("a", (n - 150) / 2)])).collect();
    ledger.post("/commit/batch", batch(commits)).ok();
    let rollbacks = (100..200).map(|n| json!({"operation_id": format!("op-{n}")})).collect();
    ledger.post("/rollback/batch", batch(rollbacks)).ok();
    let commit: i64 = (0..100).map(|n| (n - 150) / 2).sum();
    let open: i64 = (200..300).map(|n| n - 150).sum();

    let check = |server: &Server| {
        let ledger = server.ledger();
        ledger.values(&["a", "b"]).ok().value("a", commit, open).value("b", 0, 200);
        let whole = ledger.entries("a");
        assert_eq!(shape::sum(&whole), (commit, open));
        assert_eq!(shape::sum(&ledger.entries("b")), (0, 200));
        for page in [7, 100, 499] {
            assert_eq!(ledger.all("/limits/a/entries", page), whole, "pages of {page}");
        }
        let operations: BTreeSet<_> = whole.iter().map(|entry| entry["operation_id"].to_string()).collect();
        assert_eq!(operations.len(), 300);
    };
    check(&server);
    server.crash_and_restart();
    check(&server);
    server.ledger().get("/limits/absent/entries").refused(404, "LimitNotFound");
}
