//! Followers of streams of events.
//!
//! A follower is a cursor: the clock of the last change that it has. A node has one [`Ring`] for each stream that is
//! followed there: the latest changes, encoded once for all followers. A follower that is behind the ring reads the changes
//! that the shard still keeps, a page at a time, as its client takes them; followers share pages. Only a new follower,
//! and one whose changes are no longer kept, gets a key frame: a current one, made for all who ask at the same time.
//!
//! Where the shard is in another node, the ring is fed from there, by one connection for all followers of the stream
//! here. When the shard moves, the feed moves with it, after the last clock in the ring.
//!
//! Read in this order: `ring` and `cursor` (without IO), `follower`, `feeding`.

mod cursor;
mod feeding;
mod follower;
mod joint;
mod ring;

pub use cursor::{Cursor, Step};
pub use follower::Follower;
pub use ring::{PAGE, Page, RECENT_CHANGES, Ring};

use crate::{Unavailable, shard_of};
use bytes::Bytes;
use joint::Joint;
use limina_engine::{
    Name,
    events::{Change, KeyFrame, StreamInfo},
};
use limina_store::ShardId;
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{sync::watch, task::AbortHandle};

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
    /// A message that is not encoded yet.
    pub fn new(told: Told) -> Arc<Message> {
        Arc::new(Message { told, encoded: OnceLock::new() })
    }

    /// Its clock.
    pub fn clock(&self) -> u64 {
        match &self.told {
            Told::Change(change) => change.clock,
            Told::KeyFrame(frame) => frame.clock,
        }
    }

    /// About how long it is when it is encoded.
    fn approximate_bytes(&self) -> usize {
        const REST: usize = 128;
        match &self.told {
            Told::Change(change) => REST + change.event.len(),
            Told::KeyFrame(frame) => frame.events.iter().map(|event| REST + event.event.len()).sum(),
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
    state: Mutex<State>,
    /// Changes with the state.
    news: watch::Sender<()>,
    followers: AtomicUsize,
    infos: Arc<Joint<StreamInfo>>,
    key_frames: Arc<Joint<Arc<Message>>>,
    /// Held by the follower that reads a page.
    page_turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    ring: Ring,
    /// Feeds the ring.
    feeder: Option<AbortHandle>,
    /// How often the stream's shard has left this node.
    moves: u64,
    /// How many followers read pages.
    readers: usize,
    ended: Option<Ended>,
}

impl Drop for State {
    fn drop(&mut self) {
        if let Some(feeder) = &self.feeder {
            feeder.abort();
        }
    }
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
pub enum FollowError {
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
            topic.tell(|state| state.ring.push_change(change));
        }
    }

    /// The periodic key frame, in its place among the changes.
    pub(crate) fn key_frame(&self, namespace: &Name, stream: &Name, frame: KeyFrame) {
        if let Some(topic) = self.find(namespace, stream) {
            topic.tell(|state| state.ring.push_key_frame(frame));
        }
    }

    /// A shard has left this node: other nodes must follow its streams elsewhere.
    pub(crate) fn moved(&self, shard: ShardId, shards: u16) {
        let topics = self.lock();
        for topic in topics.values().filter(|topic| shard_of(topic.address.0.as_str(), shards) == shard) {
            topic.tell(|state| state.moves += 1);
        }
    }

    /// The stream is gone. Whoever follows another one of that name begins anew.
    pub(crate) fn deleted(&self, namespace: &Name, stream: &Name) {
        let removed = self.remove(&(namespace.clone(), stream.clone()), |_| true);
        if let Some(topic) = removed {
            topic.tell(|state| state.ended = Some(Ended::Deleted));
        }
    }

    /// The process stops: nobody is told anything more.
    pub(crate) fn stop(&self) {
        for topic in self.lock().values() {
            topic.tell(|state| {
                state.ended.get_or_insert(Ended::Unavailable(Unavailable::ShuttingDown));
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
            Arc::new(Topic {
                address,
                state: Mutex::default(),
                news: watch::Sender::new(()),
                followers: AtomicUsize::new(0),
                infos: Arc::default(),
                key_frames: Arc::default(),
                page_turn: tokio::sync::Mutex::default(),
            })
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
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.news.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_kept_for_nobody() {
        let names = ["n", "s"].map(|name| Name::new(name).unwrap());
        let [n, s] = &names;
        let streams = Streams::default();
        let topic = streams.join((n.clone(), s.clone()));
        let second = streams.join(topic.address.clone());
        streams.leave(&topic);
        assert!(streams.find(n, s).is_some());
        streams.leave(&second);
        assert!(streams.find(n, s).is_none());
        assert_eq!(streams.0.count.load(Ordering::Relaxed), 0);

        let third = streams.join(topic.address.clone());
        streams.deleted(n, s);
        assert_eq!(third.lock().ended, Some(Ended::Deleted));
        let fourth = streams.join(topic.address.clone());
        streams.leave(&third);
        assert!(streams.find(n, s).is_some_and(|found| Arc::ptr_eq(&found, &fourth)), "another stream");
    }
}
