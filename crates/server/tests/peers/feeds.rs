//! What is told of a stream.

use super::{
    raw::{ANSWER, FOLLOW, PART, PING, PONG, Raw, RawConnection, TAKEN},
    *,
};
use limina_engine::{
    Millis, Time,
    events::{EventInfo, KeyFrame, Mode, StreamTerms},
};

fn wanted() -> FeedRequest {
    let make = StreamTerms::new(Mode::StrictlyOnce, Millis(10)).unwrap().with_max_events(2).unwrap();
    let (namespace, stream) = (name("n"), name("s"));
    FeedRequest { shard: ShardId(4095), namespace, stream, resume_after: Some(7), make: Some(make) }
}

fn change(clock: u64) -> StreamUpdate {
    let change = Change { clock, kind: ChangeKind::Published, event: "🌮".into(), time: Time(5) };
    StreamUpdate::Change(change)
}

fn key_frame(events: usize) -> StreamUpdate {
    let event = EventInfo { event: "e".repeat(1024).into(), time: Time(1), publishes_at: Time(2) };
    let frame = KeyFrame { clock: 9, events: vec![event; events] };
    StreamUpdate::KeyFrame(frame)
}

#[tokio::test]
async fn everything_is_told_in_order_until_the_end() {
    for end in [FeedEnded::NoStream, FeedEnded::Lost] {
        let node = Node::start().await;
        let teller = node.feeds();
        let peers = node.client();
        let mut feed = soon(peers.follow(node.address(), &wanted())).await.expect("a feed");
        assert_eq!(*node.fake.wanted.lock().unwrap(), Some(wanted()));
        let told = [vec![change(8), change(9)], vec![], vec![key_frame(20_000)], vec![change(10)]];
        told.iter().for_each(|told| teller.send(Ok(told.clone())).unwrap());
        teller.send(Err(end)).unwrap();
        for told in told {
            assert!(soon(feed.next()).await == Ok(told), "another one");
        }
        assert_eq!(soon(feed.next()).await, Err(end));
        assert_eq!(soon(feed.next()).await, Err(FeedEnded::Lost), "nothing more comes");
    }
}

#[tokio::test]
async fn a_feed_that_is_not_to_be_had_says_so() {
    let node = Node::start().await;
    let peers = node.client();
    let answer = soon(peers.follow(node.address(), &wanted())).await;
    assert_eq!(answer.err(), Some(PeerError::NotThere));
}

#[tokio::test]
async fn feeds_are_lost_when_the_node_stops() {
    let node = Node::start().await;
    let _silent = node.feeds();
    let peers = node.client();
    let mut feed = soon(peers.follow(node.address(), &wanted())).await.expect("a feed");
    node.server.stop.send(()).unwrap();
    assert_eq!(soon(feed.next()).await, Err(FeedEnded::Lost));
    soon(node.server.serving).await.unwrap();
}

#[tokio::test]
async fn a_feed_that_nobody_reads_any_more_is_let_go_of() {
    let node = Node::start().await;
    let teller = node.feeds();
    let peers = node.client();
    let feed = soon(peers.follow(node.address(), &wanted())).await.expect("a feed");
    drop(feed);
    soon(teller.closed()).await;
}

#[tokio::test]
async fn a_broken_feed_is_lost() {
    let check = async |answers: &[(u8, &[u8])], expect_begun: bool| {
        let raw = Raw::bind().await;
        let peers = raw.client();
        let node = async {
            let mut connection = raw.accept().await;
            let call = connection.request().await;
            for (kind, body) in answers {
                connection.send(*kind, call, body).await;
            }
        };
        let wanted = wanted();
        let followed = async { tokio::join!(peers.follow(&raw.address, &wanted), node) };
        let (begun, ()) = soon(followed).await;
        assert_eq!(begun.is_ok(), expect_begun, "{answers:?}");
        match begun {
            Ok(mut feed) => assert_eq!(soon(feed.next()).await, Err(FeedEnded::Lost), "{answers:?}"),
            Err(not_answered) => assert_eq!(not_answered, PeerError::Lost, "{answers:?}"),
        }
    };
    let ok = bytes(&Ok::<_, PeerError>(()));
    let begun = (PART, &ok[..]);
    check(&[], false).await;
    check(&[(PART, &[])], false).await;
    check(&[(PART, &[9])], false).await;
    check(&[begun], true).await;
    check(&[begun, (PART, &ok[..1])], true).await;
    check(&[begun, (PART, &[9, 9])], true).await;
    check(&[begun, (ANSWER, &[])], true).await;
}

/// A follower that does not take what is sent keeps the rest of the stream from being encoded.
#[tokio::test]
async fn no_more_is_sent_than_the_follower_takes() {
    let node = Node::start().await;
    let teller = node.feeds();
    let certificate = Certificate::new();
    introduce_to(&node.server.peers, &[&certificate]);
    let mut peer = RawConnection::peer(node.address(), &certificate).await.unwrap();
    peer.send(FOLLOW, 1, &bytes(&wanted())).await;
    assert_eq!(soon(peer.message()).await, Some((PART, 1, bytes(&Ok::<_, PeerError>(())))));
    // Each message has more than 1 MiB, and four of them fill the window.
    (0..6).for_each(|_| teller.send(Ok(vec![key_frame(1_024)])).unwrap());
    let mut received = 0;
    for _ in 0..4 {
        let (kind, call, body) = soon(peer.message()).await.unwrap();
        assert_eq!((kind, call), (PART, 1));
        received += body.len() as u64;
    }
    peer.send(PING, 0, &[]).await;
    assert_eq!(soon(peer.message()).await, Some((PONG, 0, vec![])), "a fifth message was sent");
    peer.send(TAKEN, 1, &received.to_le_bytes()).await;
    for _ in 0..2 {
        assert!(matches!(soon(peer.message()).await, Some((PART, 1, _))));
    }
}
