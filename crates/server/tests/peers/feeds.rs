//! What is told of a stream.

use super::{raw::Raw, *};
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
    let check = async |answer: &[u8], expect_begun: bool| {
        let raw = Raw::bind().await;
        let peers = raw.client();
        let node = async {
            let mut connection = raw.accept().await;
            let stream = connection.request().await;
            connection.answer(stream, 8, answer).await;
            connection
        };
        let wanted = wanted();
        let followed = async { tokio::join!(peers.follow(&raw.address, &wanted), node) };
        let (begun, _connection) = soon(followed).await;
        assert_eq!(begun.is_ok(), expect_begun, "{answer:?}");
        match begun {
            Ok(mut feed) => assert_eq!(soon(feed.next()).await, Err(FeedEnded::Lost), "{answer:?}"),
            Err(not_answered) => assert_eq!(not_answered, PeerError::Lost, "{answer:?}"),
        }
    };
    let begun = [1, 0, 0, 0, 0];
    check(&[], false).await;
    check(&[1, 0, 0, 0], false).await;
    check(&[1, 0, 0, 0, 9], false).await;
    check(&begun, true).await;
    check(&[&begun[..], &[2, 0, 0, 0, 0]].concat(), true).await;
    check(&[&begun[..], &[2, 0, 0, 0, 9, 9]].concat(), true).await;
    check(&[&begun[..], &[0xff; 4]].concat(), true).await;
}
