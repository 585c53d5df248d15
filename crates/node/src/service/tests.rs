//! Requests that go to another node, and are lost there.

use super::{Location, Service, Unavailable};
use crate::{
    Feed, FeedRequest, Metrics, PeerError, Peers,
    clock::Clocks,
    cluster::{Others, TenureGuard},
    peers::PeerFuture,
};
use futures_util::FutureExt;
use limina_engine::{
    Command, KeyValues, Millis, Name, Outcome, Request,
    key_values::Value,
    locks::{self, Acquire, Lock, LockRequest, Mode},
};
use limina_store::{NodeId, ShardId, memory::sharding};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::mpsc;

/// Another node that never answers a request for locks. It fails a few times when such a request is taken back.
struct NeverAnswers {
    asked: mpsc::UnboundedSender<Request>,
    failures: Mutex<Vec<PeerError>>,
}

impl Peers for NeverAnswers {
    fn who<'a>(&'a self, _: &'a str) -> PeerFuture<'a, String> {
        Box::pin(async { Err(PeerError::NotThere) })
    }

    fn ask<'a>(&'a self, _: &'a str, _: ShardId, request: &'a Request) -> PeerFuture<'a, Outcome> {
        let _nobody_listens = self.asked.send(request.clone());
        Box::pin(async move {
            if !request.is_cancellation() {
                std::future::pending::<()>().await;
            }
            match self.failures.lock().unwrap().pop() {
                Some(failure) => Err(failure),
                None => Ok(Outcome::Locks(Ok(locks::Reply::Abandoned))),
            }
        })
    }

    fn follow<'a>(&'a self, _: &'a str, _: &'a FeedRequest) -> PeerFuture<'a, Box<dyn Feed>> {
        Box::pin(std::future::ready(Err(PeerError::NotThere)))
    }
}

fn acquire() -> Request {
    let name = |text: &str| Name::new(text).unwrap();
    let key_values = KeyValues::new(vec![("lock", Value::<&str>::Integer(1))]).unwrap();
    let locks = vec![Lock { key_values, mode: Mode::Exclusive }];
    let wanted = Acquire::new(locks, Millis(1_000)).unwrap().with_wait(Millis(1_000)).unwrap();
    let request = LockRequest { id: name("id"), session: name("session"), wanted };
    let command = Command::Locks(locks::Command::Acquire(request));
    Request::new(name("n"), command)
}

/// The answer of the other node may be under way when the client hangs up. Then only this node can take the request back.
#[tokio::test]
async fn a_forwarded_request_is_taken_back_until_that_is_done() {
    let (asked, mut requests) = mpsc::unbounded_channel();
    let failures = vec![PeerError::NotThere, PeerError::Lost, PeerError::Lost];
    let peers = Arc::new(NeverAnswers { asked, failures: Mutex::new(failures) });
    let service = Service::new(Metrics::new());
    let max_wait = Duration::from_secs(1);
    let tenure_guard = TenureGuard::alone(Clocks::new());
    service.start(sharding(1), Some(Others::new(NodeId(1), peers, tenure_guard, || true, max_wait)));
    service.set_location(ShardId(0), Location::Remote("other".into()));

    let request = acquire();
    let waiting = tokio::spawn({
        let (service, request) = (service.clone(), request.clone());
        async move { service.submit(request).await }
    });
    assert_eq!(requests.recv().await.as_ref(), Some(&request));
    waiting.abort();
    for _ in 0..4 {
        let asked = tokio::time::timeout(Duration::from_secs(60), requests.recv()).await;
        assert_eq!(asked.expect("the request is taken back"), request.cancellation());
    }
    // That is done now, and not repeated: the next request is another one.
    let other = Request { namespace: Name::new("other").unwrap(), ..acquire() };
    let _never_answered = tokio::spawn({
        let (service, other) = (service.clone(), other.clone());
        async move { service.submit(other).await }
    });
    assert_eq!(requests.recv().await, Some(other));
}

/// Several nodes, of which one accepts connections and says nothing. The others answer that they do not know the lock.
struct OneHangs;

impl Peers for OneHangs {
    fn who<'a>(&'a self, _: &'a str) -> PeerFuture<'a, String> {
        Box::pin(async { Err(PeerError::NotThere) })
    }

    fn reach<'a>(&'a self, address: &'a str) -> PeerFuture<'a, ()> {
        Box::pin(async move {
            if address == "hangs" {
                std::future::pending::<()>().await;
            }
            Ok(())
        })
    }

    fn ask<'a>(&'a self, address: &'a str, _: ShardId, _: &'a Request) -> PeerFuture<'a, Outcome> {
        assert_ne!(address, "hangs", "it was not reached");
        Box::pin(async { Ok(Outcome::Locks(Ok(locks::Reply::Abandoned))) })
    }

    fn follow<'a>(&'a self, _: &'a str, _: &'a FeedRequest) -> PeerFuture<'a, Box<dyn Feed>> {
        Box::pin(async { Err(PeerError::NotThere) })
    }
}

/// A request waits for a connection to a node that hangs. As soon as another node has the shard, it goes there.
#[tokio::test]
async fn a_request_does_not_wait_for_a_node_that_has_lost_the_shard() {
    let service = Service::new(Metrics::new());
    let tenure_guard = TenureGuard::alone(Clocks::new());
    let max_wait = Duration::from_secs(60);
    service.start(
        sharding(1),
        Some(Others::new(NodeId(1), Arc::new(OneHangs), tenure_guard, || true, max_wait)),
    );
    service.set_location(ShardId(0), Location::Remote("hangs".into()));
    let mut waiting = std::pin::pin!(service.submit(acquire()));
    assert!(waiting.as_mut().now_or_never().is_none());
    service.set_location(ShardId(0), Location::Unknown);
    assert!(waiting.as_mut().now_or_never().is_none());
    service.set_location(ShardId(0), Location::Remote("next".into()));
    let answered =
        tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("it is sent to the next owner");
    assert_eq!(answered, Ok(Outcome::Locks(Ok(locks::Reply::Abandoned))));
}

/// Another node that crashes at every request. It counts them.
#[derive(Default)]
struct Crashes(AtomicUsize);

impl Peers for Crashes {
    fn who<'a>(&'a self, _: &'a str) -> PeerFuture<'a, String> {
        Box::pin(async { Err(PeerError::NotThere) })
    }

    fn ask<'a>(&'a self, _: &'a str, _: ShardId, _: &'a Request) -> PeerFuture<'a, Outcome> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Err(PeerError::Lost) })
    }

    fn follow<'a>(&'a self, _: &'a str, _: &'a FeedRequest) -> PeerFuture<'a, Box<dyn Feed>> {
        Box::pin(async { Err(PeerError::NotThere) })
    }
}

#[tokio::test]
async fn a_request_that_crashes_its_node_is_not_passed_from_node_to_node() {
    let name = |text: &str| Name::new(text).unwrap();
    let check = async |command: locks::Command, expect: Unavailable, asked: usize| {
        let peers = Arc::new(Crashes::default());
        let service = Service::new(Metrics::new());
        // Long enough for dozens of attempts.
        let max_wait = Duration::from_secs(10);
        let tenure_guard = TenureGuard::alone(Clocks::new());
        let others = Others::new(NodeId(1), peers.clone(), tenure_guard, || true, max_wait);
        service.start(sharding(1), Some(others));
        service.set_location(ShardId(0), Location::Remote("another".into()));
        let command = Command::Locks(command);
        let request = Request::new(name("n"), command);
        assert_eq!(service.submit(request).await.unwrap_err(), expect);
        assert_eq!(peers.0.load(Ordering::Relaxed), asked, "how many requests reached a node");
    };
    check(locks::Command::Get(name("l")), Unavailable::ShardUnavailable, 2).await;
    let release = locks::Command::Release { id: name("l"), session: None };
    check(release, Unavailable::OutcomeUnknown, 1).await;
}
