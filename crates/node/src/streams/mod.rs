//! Followers of streams of events.
//!
//! A follower has a cursor: the clock of the last change that it has sent. For each stream that is followed here, the node
//! has one [`Ring`]: the latest changes, encoded once for all followers. A follower that is behind the ring reads older
//! changes from the shard, a page at a time, as its client takes them. Followers share pages. A key frame goes only to a new
//! follower, and to one whose changes are no longer kept. Followers that ask at the same time share one key frame.
//!
//! If the shard is in another node, one connection for each stream feeds the ring. When the shard moves, the feed continues
//! at the new owner, after the last clock in the ring.
//!
//! Read in this order: `ring` and `cursor` (without IO), `follower`, `feeding`.

mod cursor;
mod feeding;
mod follower;
mod ring;
mod shared_question;

pub use cursor::{Cursor, Step};
pub use follower::Follower;
pub use ring::{PAGE, Page, RECENT_CHANGES, Ring};

use crate::{
    Budget, Unavailable,
    memory::{Kind, MemoryFull, Priority, Reservation},
};
use bytes::Bytes;
use limina_engine::{
    Name, QuotaExceeded,
    events::{Change, EventInfo, KeyFrame, StreamInfo},
};
use serde::{Deserialize, Serialize};
use shared_question::SharedQuestion;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{sync::watch, task::AbortHandle};

/// An update of a stream with its encoding, shared by all followers of the stream.
#[derive(Debug)]
pub struct Message {
    /// The update itself.
    pub update: StreamUpdate,
    encoded: OnceLock<Bytes>,
    /// The memory of a key frame and of its encoding, which takes it over. Changes are small: their rings count them.
    memory: Mutex<Option<Reservation>>,
}

/// What a follower of a stream receives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StreamUpdate {
    /// One change of the stream.
    Change(Change),
    /// A snapshot of all incubating events.
    KeyFrame(KeyFrame),
}

impl Message {
    /// A message that is not encoded yet.
    pub fn new(update: StreamUpdate) -> Arc<Message> {
        Arc::new(Message { update, encoded: OnceLock::new(), memory: Mutex::default() })
    }

    /// A key frame that is not encoded yet. Its memory is reserved until the last follower has sent the last byte of it.
    pub fn key_frame(frame: KeyFrame, memory: &Budget) -> Result<Arc<Message>, MemoryFull> {
        let message = Message::new(StreamUpdate::KeyFrame(frame));
        let reserved = memory.reserve(Kind::Streams, message.memory_bytes(), Priority::Buffer)?;
        *message.lock_memory() = Some(reserved);
        Ok(message)
    }

    fn lock_memory(&self) -> MutexGuard<'_, Option<Reservation>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The clock of the change, or the clock as of which the key frame is.
    pub fn clock(&self) -> u64 {
        match &self.update {
            StreamUpdate::Change(change) => change.clock,
            StreamUpdate::KeyFrame(frame) => frame.clock,
        }
    }

    /// The approximate length of the encoding.
    fn approximate_bytes(&self) -> usize {
        const REST: usize = 128;
        match &self.update {
            StreamUpdate::Change(change) => REST + change.event.len(),
            StreamUpdate::KeyFrame(frame) => frame.events.iter().map(|event| REST + event.event.len()).sum(),
        }
    }

    /// The approximate memory of the message with its encoding.
    fn memory_bytes(&self) -> usize {
        const STRUCT: usize = 192;
        match &self.update {
            StreamUpdate::Change(_) => STRUCT + self.approximate_bytes(),
            StreamUpdate::KeyFrame(frame) => {
                STRUCT + frame.events.len() * size_of::<EventInfo>() + self.approximate_bytes()
            }
        }
    }

    /// The encoding. The first follower that sends the message encodes it; the others share the bytes.
    pub fn encoded(&self, encode: impl FnOnce(&StreamUpdate) -> Bytes) -> &Bytes {
        self.encoded.get_or_init(|| {
            let encoded = encode(&self.update);
            match self.lock_memory().take() {
                Some(memory) => memory.attach_to(encoded),
                None => encoded,
            }
        })
    }

    /// Bytes of the encoding that keep the message, so that later followers can share it while these bytes are being sent.
    pub fn keep_with(self: &Arc<Message>, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Kept { _message: self.clone(), bytes })
    }
}

struct Kept {
    _message: Arc<Message>,
    bytes: Bytes,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A stream, by its namespace and name.
type Address = (Name, Name);

/// All streams that are followed at this node. A clone shares them.
#[derive(Clone)]
pub(crate) struct Streams(Arc<Shared>);

struct Shared {
    memory: Budget,
    topics: Mutex<HashMap<Address, Arc<Topic>>>,
    /// The number of topics. While it is 0, changes need no look-up.
    count: AtomicUsize,
}

/// A stream that is followed at this node.
struct Topic {
    address: Address,
    state: Mutex<State>,
    /// Notifies followers whenever the state has changed.
    news: watch::Sender<()>,
    followers: AtomicUsize,
    infos: Arc<SharedQuestion<StreamInfo>>,
    key_frames: Arc<SharedQuestion<Arc<Message>>>,
    /// Held by the one follower that may read a page.
    page_turn: tokio::sync::Mutex<()>,
}

struct State {
    ring: Ring,
    /// The key frame that was sent to new followers last, while any of them still sends it.
    sent_key_frame: Weak<Message>,
    /// The task that feeds the ring.
    feeder: Option<AbortHandle>,
    /// How many times the stream's shard has left this node.
    moves: u64,
    /// The number of followers that read pages.
    readers: usize,
    ended: Option<Ended>,
}

impl State {
    fn new(memory: &Budget) -> State {
        State {
            ring: Ring::new(memory),
            sent_key_frame: Weak::new(),
            feeder: None,
            moves: 0,
            readers: 0,
            ended: None,
        }
    }

    /// The key frames that are in memory.
    fn key_frames(&self) -> impl Iterator<Item = Arc<Message>> + use<> {
        let periodic = self.ring.key_frame().0.cloned();
        [periodic, self.sent_key_frame.upgrade()].into_iter().flatten()
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if let Some(feeder) = &self.feeder {
            feeder.abort();
        }
    }
}

/// Why a follower receives no more updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The stream was deleted.
    Deleted,
    /// The server is stopping, or the shard is unavailable. The client should follow the stream again, after its last clock.
    Unavailable(Unavailable),
}

/// Why a stream cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FollowError {
    /// There is no stream of this name.
    StreamNotFound,
    /// The stream would have been created, but a quota of the namespace forbids it.
    QuotaExceeded(QuotaExceeded),
    /// The shard did not answer.
    Unavailable(Unavailable),
}

impl Streams {
    pub(crate) fn new(memory: Budget) -> Streams {
        Streams(Arc::new(Shared { memory, topics: Mutex::default(), count: AtomicUsize::new(0) }))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Address, Arc<Topic>>> {
        self.0.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, namespace: &Name, stream: &Name) -> Option<Arc<Topic>> {
        if self.0.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.lock().get(&(namespace.clone(), stream.clone())).cloned()
    }

    /// The shard reports a change that is durable. Changes are reported in order.
    pub(crate) fn changed(&self, namespace: &Name, stream: &Name, change: Change) {
        if let Some(topic) = self.find(namespace, stream) {
            topic.update(|state| state.ring.push_change(change));
        }
    }

    /// The shard reports a periodic key frame, at its position among the changes.
    pub(crate) fn key_frame(&self, namespace: &Name, stream: &Name, frame: KeyFrame) {
        if let Some(topic) = self.find(namespace, stream) {
            topic.update(|state| state.ring.push_key_frame(frame));
        }
    }

    /// The shard of these namespaces has left this node: other nodes must follow its streams at the new owner.
    pub(crate) fn shard_left(&self, is_in_shard: impl Fn(&Name) -> bool) {
        let topics = self.lock();
        for topic in topics.values().filter(|topic| is_in_shard(&topic.address.0)) {
            topic.update(|state| state.moves += 1);
        }
    }

    /// The stream was deleted. A later stream of the same name is another topic.
    pub(crate) fn deleted(&self, namespace: &Name, stream: &Name) {
        let removed = self.lock().remove(&(namespace.clone(), stream.clone()));
        if let Some(topic) = removed {
            self.0.count.fetch_sub(1, Ordering::AcqRel);
            topic.update(|state| state.ended = Some(Ended::Deleted));
        }
    }

    /// The process stops: all followers end.
    pub(crate) fn stop(&self) {
        for topic in self.lock().values() {
            topic.update(|state| {
                state.ended.get_or_insert(Ended::Unavailable(Unavailable::ShuttingDown));
            });
        }
    }

    /// Adds a follower of a stream.
    fn join(&self, address: Address) -> Arc<Topic> {
        let mut topics = self.lock();
        let topic = topics.entry(address.clone()).or_insert_with(|| {
            self.0.count.fetch_add(1, Ordering::AcqRel);
            Arc::new(Topic {
                address,
                state: Mutex::new(State::new(&self.0.memory)),
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

    /// Removes a follower, and the topic with its last follower.
    fn leave(&self, topic: &Arc<Topic>) {
        let mut topics = self.lock();
        let was_last = topic.followers.fetch_sub(1, Ordering::AcqRel) == 1;
        // After a deletion, another topic may have the address.
        let is_listed = topics.get(&topic.address).is_some_and(|listed| Arc::ptr_eq(listed, topic));
        if was_last && is_listed {
            topics.remove(&topic.address);
            self.0.count.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Topic {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.news.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_ends_with_its_last_follower() {
        let names = ["n", "s"].map(|name| Name::new(name).unwrap());
        let [n, s] = &names;
        let streams = Streams::new(Budget::unlimited());
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
