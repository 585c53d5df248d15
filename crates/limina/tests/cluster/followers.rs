//! Followers of a stream, through any node: they see no gap, whatever happens to the owner.

use serde_json::json;

use crate::cluster::{Cluster, LONG, SHORT, retry};
use crate::events::{Events, LONG as DAY};
use crate::harness::Server;
use crate::sse::Sse;
use crate::stomp::{Change, Follower, Kind, Stomp};

const STREAM: &str = "s";

/// Submits events, each one until it is accepted. Returns the clock of the last one.
#[track_caller]
fn submit(events: &Events, name: &str) -> u64 {
    let mut clock = 0;
    for n in 0..20 {
        let event = format!("{name}-{n}");
        let request = || events.submission(STREAM, &event).header("idempotency-key", &event);
        let submitted = retry(request).submitted();
        assert!(submitted.clock > clock, "{submitted:?} after {clock}");
        clock = submitted.clock;
    }
    clock
}

/// A follower over both protocols, STOMP and server-sent events.
struct BothProtocols {
    stomp: Stomp,
    by_stomp: Follower,
    sse: Sse,
    by_sse: Follower,
}

impl BothProtocols {
    #[track_caller]
    fn at(node: &Server, namespace: &str) -> BothProtocols {
        let mut stomp = Stomp::connect_to(node.address());
        let by_stomp = stomp.follow("0", &format!("/topic/{namespace}/{STREAM}"));
        let mut sse = Sse::open(node, &path(namespace), None);
        let mut by_sse = Follower::default();
        by_sse.fold(sse.push());
        BothProtocols { stomp, by_stomp, sse, by_sse }
    }

    /// The same follower, which has lost its connections and resumes at another node.
    #[track_caller]
    fn resume_at(&mut self, node: &Server, namespace: &str) {
        self.stomp = Stomp::connect_to(node.address());
        self.stomp.resume("0", &format!("/topic/{namespace}/{STREAM}"), self.by_stomp.clock);
        self.sse = Sse::open(node, &path(namespace), Some(&self.by_sse.clock.to_string()));
    }

    #[track_caller]
    fn reach(&mut self, clock: u64) {
        self.stomp.follow_to(&mut self.by_stomp, clock);
        while self.by_sse.clock < clock {
            self.by_sse.fold(self.sse.push());
        }
    }

    /// Checks that each of these events was submitted once, and that no key frame replaced a change.
    #[track_caller]
    fn saw(&self, names: &[&str]) {
        let expected: Vec<String> =
            names.iter().flat_map(|name| (0..20).map(move |n| format!("{name}-{n}"))).collect();
        for follower in [&self.by_stomp, &self.by_sse] {
            let submitted = |change: &&Change| change.kind == Kind::Submitted;
            let seen: Vec<&String> =
                follower.changes.iter().filter(submitted).map(|change| &change.event).collect();
            assert_eq!(seen, expected.iter().collect::<Vec<_>>());
            assert_eq!(follower.jumps, 0, "changes were skipped: {follower:?}");
        }
    }
}

fn path(namespace: &str) -> String {
    format!("/v1/ns/{namespace}/events/{STREAM}/stream")
}

#[test]
fn followers_at_other_nodes_miss_nothing_when_the_owner_dies() {
    let mut cluster = Cluster::of(3, SHORT);
    let namespace = cluster.namespace_of(1);
    let (owner, rest) = cluster.apart(1);
    let events = rest[0].events_of(&namespace);
    events.only_once(STREAM, DAY);
    let mut followers = [BothProtocols::at(rest[0], &namespace), BothProtocols::at(rest[1], &namespace)];
    let clock = submit(&events, "before");
    followers.iter_mut().for_each(|follower| follower.reach(clock));
    owner.kill();
    let clock = submit(&events, "after");
    for follower in &mut followers {
        follower.reach(clock);
        follower.saw(&["before", "after"]);
    }
}

#[test]
fn followers_at_other_nodes_miss_nothing_when_the_owner_stops() {
    let mut cluster = Cluster::of(3, LONG);
    let namespace = cluster.namespace_of(0);
    let (owner, rest) = cluster.apart(0);
    let events = rest[1].events_of(&namespace);
    events.only_once(STREAM, DAY);
    let mut follower = BothProtocols::at(rest[0], &namespace);
    submit(&events, "before");
    owner.stop();
    submit(&events, "while away");
    owner.start_again();
    cluster.settle(&[0, 1, 2]);
    let clock = submit(&cluster[0].events_of(&namespace), "after");
    follower.reach(clock);
    follower.saw(&["before", "while away", "after"]);
}

#[test]
fn a_follower_whose_node_died_resumes_at_another() {
    let mut cluster = Cluster::of(3, SHORT);
    let namespace = cluster.namespace_of(1);
    cluster[1].events_of(&namespace).only_once(STREAM, DAY);
    let mut follower = BothProtocols::at(&cluster[1], &namespace);
    let clock = submit(&cluster[1].events_of(&namespace), "before");
    follower.reach(clock);
    cluster.node(1).kill();
    submit(&cluster[0].events_of(&namespace), "meanwhile");
    follower.resume_at(&cluster[2], &namespace);
    let clock = submit(&cluster[0].events_of(&namespace), "after");
    follower.reach(clock);
    follower.saw(&["before", "meanwhile", "after"]);
}

/// While all changes are kept, a follower that resumes gets no key frame, even if new changes arrive all the time.
#[test]
fn a_follower_that_resumes_during_changes_gets_all_of_them() {
    let cluster = Cluster::of(3, LONG);
    let namespace = cluster.namespace_of(0);
    let events = cluster[0].events_of(&namespace);
    let setting = json!({"mode": "only_once", "duration": DAY, "key_frame_every": "100ms"});
    for attempt in 0..10 {
        events.put(STREAM, &setting).created();
        let first = events.clock(STREAM);
        std::thread::scope(|scope| {
            let submitting = scope.spawn(|| submit(&events, &attempt.to_string()));
            for node in 0..3 {
                let mut sse = Sse::open(&cluster[node], &path(&namespace), Some(&first.to_string()));
                scope.spawn(move || {
                    let mut follower = Follower { clock: first, key_frames: 1, ..Follower::default() };
                    while follower.clock < first + 20 {
                        follower.fold(sse.push());
                        assert_eq!(follower.jumps, 0, "at node {node}, resumed after {first}: {follower:?}");
                    }
                });
            }
            assert_eq!(submitting.join().expect("the submitter"), first + 20);
        });
        events.delete(STREAM).is(204);
    }
}

/// An event that falls due is published once, even if the owner dies at that moment.
#[test]
fn events_are_published_once_when_the_owner_dies() {
    let mut cluster = Cluster::of(2, SHORT);
    let namespace = cluster.namespace_of(1);
    let events = cluster[0].events_of(&namespace);
    events.only_once(STREAM, "1s");
    let mut follower = BothProtocols::at(&cluster[0], &namespace);
    submit(&events, "due");
    cluster.node(1).kill();
    retry(|| events.request("GET", &format!("/{STREAM}"))).ok();
    let clock = events.await_none(STREAM).clock;
    follower.reach(clock);
    follower.saw(&["due"]);
    let published = follower.by_stomp.changes.iter().filter(|change| change.kind == Kind::Published).count();
    assert_eq!(published, 20);
}

#[test]
fn followers_at_other_nodes_learn_of_a_deleted_stream() {
    let cluster = Cluster::of(3, LONG);
    let namespace = cluster.namespace_of(0);
    cluster[0].events_of(&namespace).only_once(STREAM, DAY);
    let mut follower = BothProtocols::at(&cluster[1], &namespace);
    cluster[2].events_of(&namespace).delete(STREAM).is(204);
    follower.stomp.receive().error_naming("StreamNotFound");
    follower.stomp.expect_close();
    assert_eq!(follower.sse.next(), None, "the stream goes on");
    let mut stomp = Stomp::connect_to(cluster[1].address());
    stomp.subscribe("0", &format!("/topic/{namespace}/{STREAM}"));
    stomp.receive().error_naming("StreamNotFound");
}
