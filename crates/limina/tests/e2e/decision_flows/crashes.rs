//! `kill -9` at the moments that matter: between the decision and its commit, and between the commit and its answer.

use super::{actual, call, gateway, used};
use crate::harness::{Server, eventually};
use crate::reply::Reply;
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn an_open_decision_survives_a_crash_with_all_its_parts() {
    let mut server = Server::fresh();
    let decisions = gateway(&server, 1_000, 5, 100);
    server.events().only_once("mails", "10ms");
    let request = crate::ledger::with(
        call("a", 900, 90),
        json!({"locks": [{"key_values": {"session": "s-1"}}], "event": {"stream": "mails", "event": "x"}}),
    );
    let made = decisions.decide(&request).ok();
    server.crash_and_restart();
    let decisions = server.decisions();
    assert_eq!(used(&server), (900, 1, 0, 90));
    let found = decisions.decide(&request).ok().has("repeated", true);
    assert_eq!(found.body["position"], made.body["position"]);
    // After the restart the decision has its full `ttl` again.
    let left = found.body["expires_in_ms"].as_u64().unwrap();
    assert!(left > 3_500_000, "{left} ms left of an hour");
    server.locks().taken(crate::locks::exclusive(json!({"session": "s-1"})));
    server.events().read("mails").ok().has("incubating", 1);
    decisions.commit("a", &actual(800, 80)).ok();
    assert_eq!(used(&server), (800, 0, 80, 0));
    let published = eventually(|| (server.events().read("mails").ok().body["incubating"] == 0).then_some(()));
    assert!(published.is_some(), "the event is published after the commit");
}

/// The server is killed while clients commit. Each client repeats its commit: if it had an answer, it gets the same
/// one, and no amount is booked twice.
#[test]
fn a_commit_with_a_lost_answer_can_be_repeated() {
    const CLIENTS: usize = 24;
    let mut server = Server::fresh();
    let decisions = gateway(&server, 1_000_000, 1_000, 1_000_000);
    for round in 0..3 {
        let decisions = if round == 0 { decisions.clone() } else { server.decisions() };
        let id = |client: usize| format!("{round}-{client}");
        decisions.batch("/batch", (0..CLIENTS).map(|client| call(&id(client), 100, 100)).collect());
        let amounts = |client: usize| actual(50 + client as u64, 50 + client as i64);
        let answered = AtomicUsize::new(0);
        let told: Vec<Option<Reply>> = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    let (decisions, answered) = (&decisions, &answered);
                    scope.spawn(move || {
                        let path = format!("/{}/commit", id(client));
                        let reply = Reply::try_to(decisions.sending(&path, &amounts(client))).ok();
                        answered.fetch_add(1, Ordering::Relaxed);
                        reply
                    })
                })
                .collect();
            let some = eventually(|| (answered.load(Ordering::Relaxed) > 0).then_some(()));
            server.kill();
            assert!(some.is_some(), "no commit was answered");
            clients.into_iter().map(|client| client.join().expect("a client")).collect()
        });
        server.start_again();
        let decisions = server.decisions();
        for (client, told) in told.into_iter().enumerate() {
            let again = decisions.commit(&id(client), &amounts(client)).ok().has("state", "committed");
            match told {
                Some(told) if told.status == 200 => assert_eq!(again.body, told.body),
                Some(told) => assert_eq!(told.status, 503, "{}", told.text),
                None => {}
            }
        }
        let sum: i64 = (0..CLIENTS as i64).map(|client| 50 + client).sum::<i64>() * (round + 1);
        assert_eq!(used(&server), (sum, 0, sum, 0));
    }
}
