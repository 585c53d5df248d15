//! The memory budget: what counts against it, what is refused when it is used up, and what is not.

use super::{readers::*, *};
use limina_node::{Budget, memory::Kind};

/// A server whose bodies may take 16 MiB, and its answers as much.
async fn start_small() -> (Server, Budget) {
    let memory = Budget::new(64 * MIB as u64, &limina_node::Metrics::new());
    let server = start_app(AppOptions { memory: memory.clone(), ..anyone() }).await;
    (server, memory)
}

/// Waits until this much memory of the kind is in use.
async fn until_used(memory: &Budget, kind: Kind, bytes: usize) {
    let used = async {
        while memory.used_by(kind) != bytes as u64 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), used).await;
    assert!(waited.is_ok(), "{kind:?}: {} instead of {bytes}", memory.used_by(kind));
}

/// A request whose body lacks its last byte.
async fn unfinished_body(server: &Server, bytes: usize) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = format!("POST /v1/ledger/hold/batch HTTP/1.1\r\nHost: x\r\nContent-Length: {bytes}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![b' '; bytes - 1]).await.unwrap();
    stream
}

#[tokio::test]
async fn unfinished_bodies_are_bounded_and_small_requests_pass() {
    let (server, memory) = start_small().await;
    let mut unfinished = Vec::new();
    for count in 1..=4 {
        unfinished.push(unfinished_body(&server, 4 * MIB).await);
        until_used(&memory, Kind::Bodies, count * 4 * MIB).await;
    }
    let large = " ".repeat(MIB);
    let refused = server.send("POST", "/v1/ledger/hold/batch", &large).await;
    problem_of(refused, 503, "Overloaded").await;
    server.nothing_asked();
    assert_eq!(server.send("POST", "/v1/ledger/hold", HOLD).await.status(), 200);

    drop(unfinished);
    until_used(&memory, Kind::Bodies, 0).await;
    let read = server.send("POST", "/v1/ledger/hold/batch", &large).await;
    problem_of(read, 400, "InvalidRequest").await;
    until_used(&memory, Kind::Bodies, 0).await;
}

#[tokio::test]
async fn answers_count_until_their_clients_have_taken_them() {
    let (server, memory) = start_small().await;
    let items = vec![limit("a"); 50_000];
    server.answers(Ok(Outcome::Ledger(Ok(Reply::Limits(Listed { items, next: None })))));
    let mut stalled = connect(&server).await;
    stalled.write_all(LIST).await.unwrap();
    let answer = async {
        while memory.used_by(Kind::Answers) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        memory.used_by(Kind::Answers) as usize
    };
    let bytes = tokio::time::timeout(Duration::from_secs(60), answer).await.expect("an answer");
    assert!((4 * MIB..12 * MIB).contains(&bytes), "{bytes}");

    // Others get theirs as long as there is room for one more.
    let mut all = vec![stalled];
    while (all.len() + 1) * bytes <= 16 * MIB {
        let mut next = connect(&server).await;
        next.write_all(LIST).await.unwrap();
        all.push(next);
        until_used(&memory, Kind::Answers, all.len() * bytes).await;
    }
    problem_of(server.send("GET", "/v1/ledger/limits", "").await, 503, "Overloaded").await;

    drop(all);
    until_used(&memory, Kind::Answers, 0).await;
    let taken = server.send("GET", "/v1/ledger/limits", "").await;
    assert_eq!(taken.bytes().await.unwrap().len(), bytes);
    until_used(&memory, Kind::Answers, 0).await;
}

#[tokio::test]
async fn without_any_memory_only_probes_are_answered() {
    let (server, memory) = start_small().await;
    let mut state = memory.account(Kind::State);
    state.set(64 * MIB);
    problem_of(server.send("POST", "/v1/ledger/hold", HOLD).await, 503, "Overloaded").await;
    server.nothing_asked();
    assert_eq!(server.send("GET", "/healthz", "").await.status(), 200);
    state.set(0);
    assert_eq!(server.send("POST", "/v1/ledger/hold", HOLD).await.status(), 200);
}
