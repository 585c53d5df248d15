//! What goes wrong, and whether anything was done then.

use super::{
    raw::{ANSWER, GO_AWAY, PING, PONG, REFUSED, Raw, RawConnection, WELCOME},
    *,
};
use limina_engine::Position;
use limina_node::memory::Kind;

/// Asks a node that does this with the call.
async fn check(
    what: &str,
    misbehave: impl AsyncFnOnce(&mut RawConnection, u64),
    expect: Result<Outcome, PeerError>,
) {
    let raw = Raw::bind().await;
    let peers = raw.client();
    let node = async {
        let mut connection = raw.accept().await;
        let call = connection.request().await;
        misbehave(&mut connection, call).await;
    };
    let request = read();
    let (answer, ()) =
        soon(async { tokio::join!(peers.ask(&raw.address, ShardId(0), &request), node) }).await;
    assert_eq!(answer, expect, "{what}");
}

#[tokio::test]
async fn what_was_surely_not_done_is_not_there() {
    let not_there = || Err(PeerError::NotThere);
    let refused = async |what, refusal: Refusal, expect| {
        let body = bytes(&refusal);
        check(what, async |c, n| c.send(REFUSED, n, &body).await, expect).await;
    };
    let invalid = Refusal::Invalid { field: "body".to_owned(), reason: String::new() };
    refused("not understood", invalid, not_there()).await;
    refused("refused for another reason", Refusal::Unknown, not_there()).await;
    let gone = async |c: &mut RawConnection, n: u64| c.send(GO_AWAY, 0, &(n - 1).to_le_bytes()).await;
    check("gone before", gone, not_there()).await;
    let overloaded = PeerError::Unavailable(Unavailable::MemoryFull);
    refused("overloaded", Refusal::Overloaded, Err(overloaded)).await;
}

#[tokio::test]
async fn what_may_have_been_done_is_lost() {
    let lost = || Err(PeerError::Lost);
    check("closed", async |_, _| {}, lost()).await;
    let gone = async |c: &mut RawConnection, n: u64| c.send(GO_AWAY, 0, &n.to_le_bytes()).await;
    check("gone after it", gone, lost()).await;
    check("no frame", async |c, _| c.send_bytes(&[0xff; 13]).await, lost()).await;
    check("no body", async |c, n| c.answer(n, b"").await, lost()).await;
    check("another body", async |c, n| c.answer(n, b"\xff\xff\xff").await, lost()).await;
    check("bytes to spare", async |c, n| c.answer(n, &[deleted(), vec![0]].concat()).await, lost()).await;
    check("another call", async |c, n| c.answer(n + 1, &deleted()).await, lost()).await;
    let half = async |c: &mut RawConnection, n: u64| {
        c.send_bytes(&raw::frame(ANSWER | 0x80, n, &deleted())).await;
    };
    check("half an answer", half, lost()).await;
    check("as it should be", async |c, n| c.answer(n, &deleted()).await, Ok(Outcome::NamespaceDeleted)).await;
    let found = Outcome::Namespaces(vec![NamespaceInfo { name: name("n"), position: Position(7) }]);
    let answer = bytes(&Ok::<_, PeerError>(&found));
    check("as it should be", async |c, n| c.answer(n, &answer).await, Ok(found)).await;
}

/// A node cannot execute a request before all of it has arrived.
#[tokio::test]
async fn a_request_of_which_only_a_part_was_sent_was_not_done() {
    let raw = Raw::bind().await;
    let peers = raw.client();
    let node = async {
        let mut connection = raw.accept().await;
        // The rest does not fit into what the system keeps for the connection.
        connection.send(PING, 0, &[]).await;
    };
    let request = asks::long_batch();
    let (answer, ()) =
        soon(async { tokio::join!(peers.ask(&raw.address, ShardId(0), &request), node) }).await;
    assert_eq!(answer, Err(PeerError::NotThere));
}

#[tokio::test]
async fn a_node_of_another_version_is_not_there() {
    let raw = Raw::bind().await;
    let peers = raw.client();
    let node = async { raw.greet([WELCOME[0], WELCOME[1] + 1]).await.ended().await };
    let request = read();
    let (answer, ()) =
        soon(async { tokio::join!(peers.ask(&raw.address, ShardId(0), &request), node) }).await;
    assert_eq!(answer, Err(PeerError::NotThere));
}

#[tokio::test]
async fn a_node_answers_signs_of_life() {
    let node = Node::start().await;
    let certificate = Certificate::new();
    introduce_to(&node.server.peers, &[&certificate]);
    let mut peer = RawConnection::peer(node.address(), &certificate).await.unwrap();
    peer.send(PING, 0, &[]).await;
    assert_eq!(soon(peer.message()).await, Some((PONG, 0, vec![])));
}

/// It refuses a request before it executes it.
#[tokio::test]
async fn a_node_without_memory_has_done_nothing() {
    let memory = Budget::new(1 << 20, &limina_node::Metrics::new());
    let _used = memory.reserve_anyway(Kind::State, 1 << 20);
    let node = Node::start_limited(memory).await;
    let peers = node.client();
    let answer = soon(peers.ask(node.address(), ShardId(0), &read())).await;
    assert_eq!(answer, Err(PeerError::Unavailable(Unavailable::MemoryFull)));
    assert_eq!(*node.fake.asked.lock().unwrap(), []);
}

#[tokio::test]
async fn whoever_is_not_reached_is_not_there() {
    let gone = Raw::bind().await.address;
    let peers = PeerClient::new(Budget::unlimited()).unwrap();
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
        let calls = [connection.request().await, connection.request().await];
        connection.answer(calls[1], &deleted()).await;
        connection.answer(calls[0], &deleted()).await;
        connection.request().await;
        drop(connection);
        let mut connection = raw.accept().await;
        let call = connection.request().await;
        connection.answer(call, &deleted()).await;
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
    let (gone, is_gone) = oneshot::channel();
    let node = async {
        let mut first = raw.accept().await;
        let call = first.request().await;
        first.send(GO_AWAY, 0, &call.to_le_bytes()).await;
        gone.send(()).unwrap();
        let mut second = raw.accept().await;
        let other = second.request().await;
        second.answer(other, &deleted()).await;
        first.answer(call, &deleted()).await;
        (first, second)
    };
    let later = async {
        is_gone.await.unwrap();
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
