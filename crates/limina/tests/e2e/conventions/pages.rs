//! Pages over HTTP: `items`, their number, and a `next` that leads on.

use serde_json::json;

use crate::harness::Server;
use crate::ledger::{batch, encode, hold};
use crate::reply::Reply;

/// Every list: those that are read with GET, and those that are queried with POST.
const LISTS: &[(&str, &str)] = &[
    ("GET", "/v1/ns?"),
    ("GET", "/v1/ledger/limits?"),
    ("GET", "/v1/ledger/operations?state=held&"),
    ("GET", "/v1/ledger/limits/a/entries?"),
    ("GET", "/v1/limiter/rules?"),
    ("GET", "/v1/limiter/rules/a/overrides?"),
    ("GET", "/v1/limiter/leases?"),
    ("POST", "/v1/limiter/rules/query?"),
    ("POST", "/v1/limiter/rules/a/overrides/query?"),
    ("POST", "/v1/limiter/counters/query?"),
    ("GET", "/v1/locks?"),
    ("POST", "/v1/locks/query?"),
    ("GET", "/v1/events?"),
];

fn list(server: &Server, (method, path): (&str, &str), parameters: &str) -> Reply {
    let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
    Reply::to(server.http().request(method, server.url(&format!("{path}{parameters}"))))
}

#[test]
fn a_page_has_100_items_by_default() {
    let mut server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    let holds = (0..101).map(|n| hold(&format!("op {n:03}"), &[("a", 1)])).collect();
    ledger.post("/hold/batch", batch(holds)).ok();
    for path in ["/operations?state=held", "/limits/a/entries?"] {
        let ledger = server.ledger();
        let page = ledger.get(path).ok();
        assert_eq!(page.items().len(), 100);
        let path = format!("{path}&after={}", encode(page.next().expect("more")));
        let last = ledger.get(&path).ok();
        assert_eq!((last.items().len(), last.next()), (1, None));
        assert_eq!(ledger.get(&path).ok().body, last.body, "a page can be read again");
        server.restart();
        assert_eq!(server.ledger().get(&path).ok().body, last.body, "a `next` outlives the server");
    }
}

#[test]
fn a_page_has_1_to_1000_items() {
    let server = Server::fresh();
    server.ledger().create("a");
    server.limiter().rule("a", &[], 1);
    for call in LISTS {
        for limit in ["0", "1001", "-1", "ten", "", "1.5", "99999999999999999999", "%20"] {
            let reply = list(&server, *call, &format!("limit={limit}"));
            assert_eq!(reply.status, 400, "{call:?} limit={limit} → {}", reply.text);
            reply.invalid("limit");
        }
        list(&server, *call, "limit=1").ok();
        list(&server, *call, "limit=1000").ok();
    }
}

/// An `after` that no page has returned is refused, or continues at some item. It is never a server error.
#[test]
fn an_invented_cursor_does_no_harm() {
    let server = Server::fresh();
    server.ledger().create("a");
    server.ledger().hold("op", &[("a", 1)]).ok();
    server.limiter().rule("a", &[], 1);
    server.limiter().set(json!({"a": 1}), 1).ok();
    let long = "x".repeat(5000);
    for call in LISTS {
        for after in ["", "nonsense", "%00", "%FF%FE", "-1", "18446744073709551616", "AAAA", "🌮", &long] {
            let reply = list(&server, *call, &format!("after={after}"));
            assert!([200, 400].contains(&reply.status), "{call:?} after={after} → {}", reply.text);
        }
    }
}

/// An item that exists all the time is returned once, even if the list grows between two pages.
#[test]
fn growing_lists_skip_no_item() {
    let server = Server::fresh();
    let ledger = server.ledger();
    for n in 0..20 {
        ledger.create(&format!("m{n:02}"));
    }
    let mut seen: Vec<String> = Vec::new();
    let mut path = "/limits?limit=3".to_owned();
    for round in 0.. {
        let page = ledger.get(&path).ok();
        seen.extend(page.items().iter().map(|limit| limit["name"].as_str().expect("`name`").to_owned()));
        let Some(next) = page.next() else { break };
        path = format!("/limits?limit=3&after={}", encode(next));
        if round < 10 {
            ledger.create(&format!("a{round}"));
            ledger.create(&format!("z{round}"));
        }
    }
    for n in 0..20 {
        let name = format!("m{n:02}");
        assert_eq!(seen.iter().filter(|seen| **seen == name).count(), 1, "{name} in {seen:?}");
    }
}
