//! Pages: `items`, and a `next` that leads on even while the list changes.

use crate::harness::Server;
use crate::ledger::encode;

#[test]
fn a_list_that_grows_meanwhile_loses_nothing() {
    let server = Server::fresh();
    let ledger = server.ledger();
    for n in 0..20 {
        ledger.create(&format!("m{n:02}"));
    }
    let mut seen: Vec<String> = Vec::new();
    let mut path = "/limits?limit=3".to_owned();
    let mut round = 0;
    loop {
        let page = ledger.get(&path).ok();
        seen.extend(page.items().iter().map(|limit| limit["name"].as_str().expect("`name`").to_owned()));
        let Some(next) = page.next() else { break };
        path = format!("/limits?limit=3&after={}", encode(next));
        if round < 10 {
            ledger.create(&format!("a{round}"));
            ledger.create(&format!("z{round}"));
        }
        round += 1;
    }
    for n in 0..20 {
        let name = format!("m{n:02}");
        assert_eq!(seen.iter().filter(|seen| **seen == name).count(), 1, "{name} in {seen:?}");
    }
}

#[test]
fn a_page_can_be_asked_for_again() {
    let mut server = Server::fresh();
    let ledger = server.ledger();
    for n in 0..10 {
        ledger.create(&format!("limit-{n}"));
    }
    let first = ledger.get("/limits?limit=4").ok();
    let path = format!("/limits?limit=4&after={}", encode(first.next().expect("more")));
    let second = ledger.get(&path).ok().body;
    assert_eq!(ledger.get(&path).ok().body, second);
    server.restart();
    assert_eq!(server.ledger().get(&path).ok().body, second, "a `next` outlives the server");
}

/// An `after` that no page gave out is refused or leads nowhere in particular; it is never a fault.
#[test]
fn a_made_up_after_does_no_harm() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    ledger.hold("op", &[("a", 1)]).ok();
    let long = "x".repeat(5000);
    for after in ["", "nonsense", "%00", "%FF%FE", "-1", "18446744073709551616", "AAAA", "🌮", &long] {
        for path in ["/limits?after=", "/operations?state=held&after=", "/limits/a/entries?after="] {
            let reply = ledger.get(&format!("{path}{after}"));
            assert!(
                [200, 400].contains(&reply.status),
                "GET {path}{after} → {} {}",
                reply.status,
                reply.text
            );
        }
    }
}
