//! What goes wrong, and whether anything was done then.

use super::{
    raw::{GO_AWAY, RST_STREAM, Raw, RawConnection},
    *,
};
use limina_engine::Position;
use limina_node::memory::Kind;

/// Asks a node that does this with the request.
async fn check(
    what: &str,
    misbehave: impl AsyncFnOnce(&mut RawConnection, u32),
    expect: Result<Outcome, PeerError>,
) {
    let raw = Raw::bind().await;
    let peers = raw.client();
    let node = async {
        let mut connection = raw.accept().await;
        let stream = connection.request().await;
        misbehave(&mut connection, stream).await;
    };
    let request = read();
    let (answer, ()) =
        soon(async { tokio::join!(peers.ask(&raw.address, ShardId(0), &request), node) }).await;
    assert_eq!(answer, expect, "{what}");
}

/// The numbers of statuses in HTTP/2's static table.
const OK: u8 = 8;
const BAD_REQUEST: u8 = 12;
const NOT_FOUND: u8 = 13;
const INTERNAL_SERVER_ERROR: u8 = 14;

fn go_away(last: u32, reason: u32) -> Vec<u8> {
    [last.to_be_bytes(), reason.to_be_bytes()].concat()
}

#[tokio::test]
async fn what_was_surely_not_done_is_not_there() {
    let not_there = || Err(PeerError::NotThere);
    let refused_stream = 7_u32.to_be_bytes();
    check("refused", async |c, s| c.send(RST_STREAM, 0, s, &refused_stream).await, not_there()).await;
    check("gone before", async |c, s| c.send(GO_AWAY, 0, 0, &go_away(s - 1, 0)).await, not_there()).await;
    check("gone in anger", async |c, s| c.send(GO_AWAY, 0, 0, &go_away(s - 1, 11)).await, not_there()).await;
    check("another version", async |c, s| c.answer(s, NOT_FOUND, b"").await, not_there()).await;
    check("not understood", async |c, s| c.answer(s, BAD_REQUEST, b"").await, not_there()).await;
}

#[tokio::test]
async fn what_may_have_been_done_is_lost() {
    let lost = || Err(PeerError::Lost);
    check("closed", async |_, _| {}, lost()).await;
    for reason in [0_u32, 2, 8, 11] {
        let reset = async |c: &mut RawConnection, s| c.send(RST_STREAM, 0, s, &reason.to_be_bytes()).await;
        check(&format!("reset for {reason}"), reset, lost()).await;
        let gone = async |c: &mut RawConnection, s| c.send(GO_AWAY, 0, 0, &go_away(s, reason)).await;
        check(&format!("gone after it for {reason}"), gone, lost()).await;
    }
    check("an error", async |c, s| c.answer(s, INTERNAL_SERVER_ERROR, b"").await, lost()).await;
    check("no body", async |c, s| c.answer(s, OK, b"").await, lost()).await;
    check("another body", async |c, s| c.answer(s, OK, b"\xff\xff\xff").await, lost()).await;
    check("bytes to spare", async |c, s| c.answer(s, OK, &[0, 5, 5]).await, lost()).await;
    check("as it should be", async |c, s| c.answer(s, OK, &[0, 5]).await, Ok(Outcome::NamespaceDeleted))
        .await;
    let found = Outcome::Namespaces(vec![NamespaceInfo { name: name("n"), position: Position(7) }]);
    let bytes = [0, 7, 1, 1, b'n', 7];
    check("as it should be", async |c, s| c.answer(s, OK, &bytes).await, Ok(found)).await;
}

/// It refuses a request before it executes it.
#[tokio::test]
async fn a_node_without_memory_has_done_nothing() {
    let memory = Budget::new(1 << 20, &limina_node::Metrics::new());
    let _used = memory.reserve_anyway(Kind::State, 1 << 20);
    let node = Node::start_limited(memory).await;
    let peers = node.client();
    let answer = soon(peers.ask(node.address(), ShardId(0), &read())).await;
    assert_eq!(answer, Err(PeerError::Unavailable(Unavailable::Overloaded { retry_after_ms: 1_000 })));
    assert_eq!(*node.fake.asked.lock().unwrap(), []);
}

#[tokio::test]
async fn whoever_is_not_reached_is_not_there() {
    let gone = Raw::bind().await.address;
    let peers = HttpPeers::new().unwrap();
    for address in [&*gone, "no address", "nobody.invalid:1", ""] {
        let answer = soon(peers.ask(address, ShardId(0), &read())).await;
        assert_eq!(answer, Err(PeerError::NotThere), "{address:?}");
    }
}

#[tokio::test]
async fn a_node_that_has_died_is_noticed() {
    let raw = Raw::bind().await;
    let peers = raw.client();
    let node = async {
        let mut connection = raw.accept().await;
        connection.request().await;
        // Its system still takes what is sent, and nobody answers.
        connection
    };
    let request = read();
    let asked = async { tokio::join!(peers.ask(&raw.address, ShardId(0), &request), node) };
    let (answer, _connection) = tokio::time::timeout(Duration::from_secs(10), asked).await.expect("in time");
    assert_eq!(answer, Err(PeerError::Lost));
}

#[tokio::test]
async fn connections_are_shared_and_replaced_when_broken() {
    let raw = Raw::bind().await;
    let peers = raw.client();
    let request = read();
    let ask = || peers.ask(&raw.address, ShardId(0), &request);
    let node = async {
        let mut connection = raw.accept().await;
        let streams = [connection.request().await, connection.request().await];
        connection.answer(streams[1], OK, &[0, 5]).await;
        connection.answer(streams[0], OK, &[0, 5]).await;
        connection.request().await;
        drop(connection);
        let mut connection = raw.accept().await;
        let stream = connection.request().await;
        connection.answer(stream, OK, &[0, 5]).await;
        connection
    };
    let client = async {
        let done = Ok(Outcome::NamespaceDeleted);
        assert_eq!(tokio::join!(ask(), ask()), (done.clone(), done.clone()));
        assert_eq!(ask().await, Err(PeerError::Lost));
        assert_eq!(ask().await, done);
    };
    soon(async { tokio::join!(node, client) }).await;
}

#[tokio::test]
async fn a_node_that_goes_away_answers_what_it_has_and_is_asked_nothing_more() {
    let raw = Raw::bind().await;
    let peers = raw.client();
    let request = read();
    let ask = || peers.ask(&raw.address, ShardId(0), &request);
    let (seen, is_seen) = oneshot::channel();
    let node = async {
        let mut first = raw.accept().await;
        let stream = first.request().await;
        first.send(GO_AWAY, 0, 0, &go_away(i32::MAX as u32, 0)).await;
        first.seen().await;
        seen.send(()).unwrap();
        let mut second = raw.accept().await;
        let other = second.request().await;
        second.answer(other, OK, &[0, 5]).await;
        first.answer(stream, OK, &[0, 5]).await;
        (first, second)
    };
    let later = async {
        is_seen.await.unwrap();
        loop {
            match ask().await {
                Err(PeerError::NotThere) => {}
                answer => break answer,
            }
        }
    };
    let (first, later, _) = soon(async { tokio::join!(ask(), later, node) }).await;
    assert_eq!([first, later], [(); 2].map(|()| Ok(Outcome::NamespaceDeleted)));
}

#[tokio::test]
async fn unused_connections_are_closed() {
    let raw = Raw::bind().await;
    let peers = raw.client().with_unused_after(Duration::from_millis(20));
    let request = read();
    for _ in 0..2 {
        let node = async {
            let mut connection = raw.accept().await;
            let stream = connection.request().await;
            connection.answer(stream, OK, &[0, 5]).await;
            connection.ended().await;
        };
        let asked = async { tokio::join!(peers.ask(&raw.address, ShardId(0), &request), node) };
        assert_eq!(soon(asked).await.0, Ok(Outcome::NamespaceDeleted));
    }
}
