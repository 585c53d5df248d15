//! Those who follow streams of events.
//!
//! What a shard tells of a stream goes into one ring, which all who follow it share: each of them is a place in it. Who
//! reads slowly holds up nobody and costs nothing; one that has fallen behind the ring goes on from a key frame.
//!
//! Where the shard is in another node, the ring is fed from there, by one connection for all who follow the stream here.
//! When the shard moves, so does the feeding, after the last clock in the ring.

mod feeding;
mod follower;
mod ring;

pub use follower::Follower;

use crate::{Unavailable, shard_of};
use bytes::Bytes;
use limina_engine::{
    Name,
    events::{Change, KeyFrame},
};
use limina_store::ShardId;
use ring::Ring;
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::sync::watch;

/// Something that is told to those who follow a stream.
#[derive(Debug)]
pub struct Message {
    /// What.
    pub told: Told,
    encoded: OnceLock<Bytes>,
}

/// What is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Told {
    /// A change.
    Change(Change),
    /// All that incubates.
    KeyFrame(KeyFrame),
}

impl Message {
    fn new(told: Told) -> Arc<Message> {
        Arc::new(Message { told, encoded: OnceLock::new() })
    }

    /// Its clock.
    pub fn clock(&self) -> u64 {
        match &self.told {
            Told::Change(change) => change.clock,
            Told::KeyFrame(frame) => frame.clock,
        }
    }

    /// As it is sent. Made once, by whoever sends it first, and shared by all.
    pub fn encoded(&self, encode: impl FnOnce(&Told) -> Bytes) -> &Bytes {
        self.encoded.get_or_init(|| encode(&self.told))
    }
}

/// A stream, by its namespace and name.
type Address = (Name, Name);

/// All streams that are followed.
#[derive(Clone, Default)]
pub(crate) struct Streams(Arc<Shared>);

#[derive(Default)]
struct Shared {
    topics: Mutex<HashMap<Address, Arc<Topic>>>,
    /// How many there are, so that where nobody follows anything nothing is looked up.
    count: AtomicUsize,
}

/// One stream that is followed.
struct Topic {
    address: Address,
    ring: Mutex<Ring>,
    /// Moves when there is something new.
    news: watch::Sender<()>,
    followers: AtomicUsize,
}

/// Why nothing more is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The stream was deleted.
    Deleted,
    /// The server is stopping, or the shard does not answer.
    Unavailable(Unavailable),
}

/// Why a stream cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotFollowed {
    /// It does not exist.
    StreamNotFound,
    /// There is no answer.
    Unavailable(Unavailable),
}

impl Streams {
    fn lock(&self) -> MutexGuard<'_, HashMap<Address, Arc<Topic>>> {
        self.0.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, namespace: &Name, stream: &Name) -> Option<Arc<Topic>> {
        if self.0.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.lock().get(&(namespace.clone(), stream.clone())).cloned()
    }

    /// A durable change, in order.
    pub(crate) fn changed(&self, namespace: &Name, stream: &Name, change: Change) {
        if let Some(topic) = self.find(namespace, stream) {
            topic.tell(|ring| ring.push_change(change));
        }
    }

    /// All that incubates, in its place among the changes.
    pub(crate) fn key_frame(&self, namespace: &Name, stream: &Name, frame: KeyFrame) {
        if let Some(topic) = self.find(namespace, stream) {
            topic.tell(|ring| {
                let is_for_all = std::mem::take(&mut ring.is_for_all);
                ring.push_key_frame(frame, is_for_all);
            });
        }
    }

    /// A shard has left this node: other nodes must follow its streams elsewhere.
    pub(crate) fn moved(&self, shard: ShardId, shards: u16) {
        let topics = self.lock();
        for topic in topics.values().filter(|topic| shard_of(topic.address.0.as_str(), shards) == shard) {
            topic.tell(|ring| ring.moves += 1);
        }
    }

    /// The stream is gone. Whoever follows another one of that name begins anew.
    pub(crate) fn deleted(&self, namespace: &Name, stream: &Name) {
        let removed = self.remove(&(namespace.clone(), stream.clone()), |_| true);
        if let Some(topic) = removed {
            topic.tell(|ring| ring.ended = Some(Ended::Deleted));
        }
    }

    /// The process stops: nobody is told anything more.
    pub(crate) fn stop(&self) {
        for topic in self.lock().values() {
            topic.tell(|ring| {
                ring.ended.get_or_insert(Ended::Unavailable(Unavailable::ShuttingDown));
            });
        }
    }

    fn remove(&self, address: &Address, may_go: impl FnOnce(&Topic) -> bool) -> Option<Arc<Topic>> {
        let mut topics = self.lock();
        if !topics.get(address).is_some_and(|topic| may_go(topic)) {
            return None;
        }
        self.0.count.fetch_sub(1, Ordering::AcqRel);
        topics.remove(address)
    }

    /// One more follows the stream.
    fn join(&self, address: Address) -> Arc<Topic> {
        let mut topics = self.lock();
        let topic = topics.entry(address.clone()).or_insert_with(|| {
            self.0.count.fetch_add(1, Ordering::AcqRel);
            let (ring, news) = (Mutex::default(), watch::Sender::new(()));
            Arc::new(Topic { address, ring, news, followers: AtomicUsize::new(0) })
        });
        topic.followers.fetch_add(1, Ordering::AcqRel);
        topic.clone()
    }

    /// One less does. Nobody keeps what nobody follows.
    fn leave(&self, topic: &Arc<Topic>) {
        let is_last = |held: &Topic| {
            topic.followers.fetch_sub(1, Ordering::AcqRel) == 1 && std::ptr::eq(held, &**topic)
        };
        self.remove(&topic.address, is_last);
    }
}

impl Topic {
    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, change: impl FnOnce(&mut Ring)) {
        change(&mut self.lock());
        self.news.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use super::{ring::Place, *};
    use limina_engine::{
        Time,
        events::{ChangeKind, KEPT_CHANGES},
    };

    fn change(clock: u64) -> Change {
        Change { clock, kind: ChangeKind::Submitted, event: "e".into(), time: Time(1) }
    }

    fn frame(clock: u64) -> KeyFrame {
        KeyFrame { clock, events: Vec::new() }
    }

    /// A topic that somebody follows.
    fn followed() -> (Streams, Arc<Topic>, [Name; 2]) {
        let names = ["n", "s"].map(|name| Name::new(name).unwrap());
        let streams = Streams::default();
        let topic = streams.join((names[0].clone(), names[1].clone()));
        (streams, topic, names)
    }

    /// All that somebody is told from there on: clocks, those of key frames negative.
    fn told(topic: &Topic, place: &mut Place) -> Vec<i64> {
        let ring = topic.lock();
        let next = || ring.next(place);
        std::iter::from_fn(next)
            .map(|next| match &next.message.told {
                Told::Change(change) => change.clock as i64,
                Told::KeyFrame(frame) => -(frame.clock as i64),
            })
            .collect()
    }

    #[test]
    fn changes_come_in_order_and_key_frames_in_their_place() {
        let (streams, topic, [n, s]) = followed();
        let beat = || topic.lock().is_for_all = true;
        streams.key_frame(&n, &s, frame(7));
        let mut place = Place { clock: 7, frames: 0, for_all: 0, is_feed: false };
        let mut slow = place;
        (8..=10).for_each(|clock| streams.changed(&n, &s, change(clock)));
        assert_eq!(told(&topic, &mut place), [8, 9, 10]);
        beat();
        streams.key_frame(&n, &s, frame(10));
        streams.changed(&n, &s, change(11));
        assert_eq!(told(&topic, &mut place), [-10, 11]);
        assert_eq!(told(&topic, &mut slow), [8, 9, 10, -10, 11], "whoever is slow gets it in the same place");

        // One that was asked for by somebody who begins is nothing to the others.
        streams.key_frame(&n, &s, frame(11));
        assert_eq!(told(&topic, &mut place), []);
        // One that has been passed would take back what was told since.
        streams.changed(&n, &s, change(12));
        assert_eq!(told(&topic, &mut place), [12]);
        topic.lock().for_all += 1;
        assert_eq!(told(&topic, &mut place), []);
    }

    #[test]
    fn whoever_falls_behind_goes_on_from_a_key_frame() {
        let (streams, topic, [n, s]) = followed();
        streams.key_frame(&n, &s, frame(7));
        let mut place = Place { clock: 7, frames: 0, for_all: 0, is_feed: false };
        (8..=8 + KEPT_CHANGES).for_each(|clock| streams.changed(&n, &s, change(clock)));
        assert_eq!(topic.lock().changes.len() as u64, KEPT_CHANGES);
        assert!(topic.lock().usable_key_frame().is_none(), "the old one is of no use any more");
        assert_eq!(told(&topic, &mut place), []);
        let last = 8 + KEPT_CHANGES;
        streams.key_frame(&n, &s, frame(last));
        streams.changed(&n, &s, change(last + 1));
        assert_eq!(told(&topic, &mut place), [-(last as i64), last as i64 + 1]);
    }

    #[test]
    fn what_was_never_told_leaves_no_gap_that_looks_like_none() {
        let (streams, topic, [n, s]) = followed();
        streams.key_frame(&n, &s, frame(7));
        let mut place = Place { clock: 7, frames: 0, for_all: 0, is_feed: false };
        streams.changed(&n, &s, change(8));
        // 9 and 10 became durable, but their answers were lost with the shard's memory.
        streams.changed(&n, &s, change(11));
        assert_eq!(told(&topic, &mut place), [], "not 8 and then 11");
        assert!(topic.lock().is_behind(&place));
        streams.key_frame(&n, &s, frame(11));
        assert_eq!(told(&topic, &mut place), [-11]);
    }

    #[test]
    fn nothing_is_kept_for_nobody() {
        let (streams, topic, [n, s]) = followed();
        let second = streams.join(topic.address.clone());
        streams.leave(&topic);
        assert!(streams.find(&n, &s).is_some());
        streams.leave(&second);
        assert!(streams.find(&n, &s).is_none());
        assert_eq!(streams.0.count.load(Ordering::Relaxed), 0);

        let third = streams.join(topic.address.clone());
        streams.deleted(&n, &s);
        assert_eq!(third.lock().ended, Some(Ended::Deleted));
        let fourth = streams.join(topic.address.clone());
        streams.leave(&third);
        assert!(streams.find(&n, &s).is_some_and(|found| Arc::ptr_eq(&found, &fourth)), "another stream");
    }
}
