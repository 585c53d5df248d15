//! Those who follow streams of events.
//!
//! What a shard tells of a stream goes into one ring, which all who follow it share: each of them is a place in it. Who
//! reads slowly holds up nobody and costs nothing; one that has fallen behind the ring goes on from a key frame.
//!
//! Where the shard is in another node, the ring is fed from there, by one connection for all who follow the stream here.
//! When the shard moves, so does the feeding, after the last clock in the ring.

use crate::{Fed, Feed, FeedEnded, NotAnswered, Service, Unavailable, Wanted, service::At, shard_of};
use bytes::Bytes;
use limina_engine::{
    Command, Name, Outcome, Request,
    events::{self, Change, Changes, KEPT_CHANGES, KeyFrame, Reply, StreamInfo, StreamTerms},
};
use limina_store::ShardId;
use serde::{Deserialize, Serialize};
use std::{
    collections::{HashMap, VecDeque},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{sync::watch, task::AbortHandle};

/// How many messages a follower is given at a time.
const AT_ONCE: usize = 256;
/// How many missed changes are read at a time.
const READ_AT_ONCE: usize = 1_000;
/// How long to wait before another node is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(200);

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

/// The last changes, without a gap, and the last key frame.
#[derive(Default)]
struct Ring {
    changes: VecDeque<Arc<Message>>,
    /// The clock of the last change that is known of; none until anything is told.
    last: Option<u64>,
    key_frame: Option<Arc<Message>>,
    /// How many key frames there were.
    frames: u64,
    /// How many of them were for all. Others are only for those who begin, or have fallen behind.
    for_all: u64,
    /// The next one is.
    is_for_all: bool,
    /// Sees to it that the ring is fed, and that there is a key frame now and then.
    feeder: Option<AbortHandle>,
    /// How often the stream's shard has left this node.
    moves: u64,
    ended: Option<Ended>,
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

impl Ring {
    fn push_change(&mut self, change: Change) {
        if !self.join(change.clock - 1) {
            return;
        }
        self.last = Some(change.clock);
        self.changes.push_back(Message::new(Told::Change(change)));
        if self.changes.len() as u64 > KEPT_CHANGES {
            self.changes.pop_front();
        }
    }

    fn push_key_frame(&mut self, frame: KeyFrame, is_for_all: bool) {
        if self.join(frame.clock) {
            self.frames += 1;
            self.for_all += u64::from(is_for_all);
            self.key_frame = Some(Message::new(Told::KeyFrame(frame)));
        }
    }

    /// What comes next follows this clock. If something between was never told (its outcome was not known at first, or
    /// the shard has moved), the ring begins anew. What is older than the ring was told before: says whether it is not.
    fn join(&mut self, clock: u64) -> bool {
        if self.last.is_some_and(|last| clock < last) {
            return false;
        }
        if self.last != Some(clock) {
            self.changes.clear();
            self.last = Some(clock);
        }
        true
    }

    /// Nothing was told yet.
    fn is_empty(&self) -> bool {
        self.last.is_none() && self.ended.is_none()
    }

    /// The clock before the first change in the ring.
    fn before_first(&self) -> u64 {
        self.last.unwrap_or(0) - self.changes.len() as u64
    }

    /// The next message for somebody who has come so far.
    fn next(&self, place: &mut Place) -> Option<Next> {
        let is_for_all = place.for_all < self.for_all;
        if self.is_behind(place) {
            let frame = self.usable_key_frame()?;
            *place = self.place_after(frame, place.is_feed);
            return Some(Next { message: frame.clone(), is_for_all });
        }
        if let Some(frame) = &self.key_frame
            && (is_for_all || (place.is_feed && place.frames < self.frames))
            && frame.clock() <= place.clock
        {
            let clock = place.clock;
            *place = Place { clock, ..self.place_after(frame, place.is_feed) };
            // One that comes too late would take back what was told since.
            if frame.clock() == clock {
                return Some(Next { message: frame.clone(), is_for_all });
            }
        }
        let number = place.clock - self.before_first();
        let change = self.changes.get(usize::try_from(number).ok()?)?;
        place.clock += 1;
        Some(Next { message: change.clone(), is_for_all: false })
    }

    /// Where somebody is who has just been told the last key frame.
    fn place_after(&self, frame: &Message, is_feed: bool) -> Place {
        Place { clock: frame.clock(), frames: self.frames, for_all: self.for_all, is_feed }
    }

    /// Whether what comes next for somebody is not in the ring.
    fn is_behind(&self, place: &Place) -> bool {
        self.last.is_none_or(|last| place.clock < self.before_first() || place.clock > last)
    }

    /// The last key frame, if everything since is in the ring.
    fn usable_key_frame(&self) -> Option<&Arc<Message>> {
        self.key_frame.as_ref().filter(|frame| frame.clock() >= self.before_first())
    }
}

/// A message, and whether it is a key frame for all.
struct Next {
    message: Arc<Message>,
    is_for_all: bool,
}

/// How far somebody has come.
#[derive(Debug, Clone, Copy)]
struct Place {
    clock: u64,
    /// How many of the key frames it has seen.
    frames: u64,
    /// How many of those for all.
    for_all: u64,
    /// It tells another node, and passes every key frame on.
    is_feed: bool,
}

/// Somebody who follows a stream.
pub struct Follower {
    service: Service,
    topic: Arc<Topic>,
    news: watch::Receiver<()>,
    place: Place,
    /// How often the shard had left this node when it began.
    moves: u64,
    /// What it missed before it came, or since, read from the store.
    missed: VecDeque<Arc<Message>>,
}

impl Service {
    /// Follows a stream: from a key frame on, or after a clock, if all changes since are still kept. `make` is what the
    /// stream is to be if there is none.
    pub async fn follow(
        &self,
        namespace: Name,
        stream: Name,
        resume_after: Option<u64>,
        make: Option<StreamTerms>,
    ) -> Result<Follower, NotFollowed> {
        self.follow_as(namespace, stream, resume_after, make, false).await
    }

    /// Follows a stream on behalf of another node, which has a ring of its own.
    pub async fn feed_peer(&self, wanted: Wanted) -> Result<Box<dyn Feed>, NotAnswered> {
        let Wanted { shard, namespace, stream, resume_after, make } = wanted;
        if !self.is_here(shard) {
            return Err(NotAnswered::NotThere);
        }
        match self.follow_as(namespace, stream, resume_after, make, true).await {
            Ok(follower) => Ok(Box::new(follower)),
            Err(NotFollowed::StreamNotFound) => Ok(Box::new(NoStream)),
            Err(NotFollowed::Unavailable(_)) => Err(NotAnswered::NotThere),
        }
    }

    async fn follow_as(
        &self,
        namespace: Name,
        stream: Name,
        resume_after: Option<u64>,
        make: Option<StreamTerms>,
        is_feed: bool,
    ) -> Result<Follower, NotFollowed> {
        let topic = self.streams().join((namespace, stream));
        let news = topic.news.subscribe();
        let place = Place { clock: 0, frames: 0, for_all: 0, is_feed };
        let moves = topic.lock().moves;
        let missed = VecDeque::new();
        let mut follower = Follower { service: self.clone(), topic, news, place, moves, missed };
        let can_begin = follower.topic.lock().usable_key_frame().is_some();
        if !can_begin {
            let info = self.key_frame(&follower.topic.address, make).await?;
            let mut ring = follower.topic.lock();
            if ring.feeder.is_none() {
                let every = Duration::from_millis(info.terms.key_frame_every.0);
                let feeder = feed(self.clone(), Arc::downgrade(&follower.topic), every);
                ring.feeder = Some(tokio::spawn(feeder).abort_handle());
            }
        }
        follower.begin(resume_after).await?;
        Ok(follower)
    }

    /// Has a key frame put into the ring, in its place among the changes.
    async fn key_frame(
        &self,
        address: &Address,
        make: Option<StreamTerms>,
    ) -> Result<StreamInfo, NotFollowed> {
        let command = events::Command::KeyFrame { stream: address.1.clone(), make };
        match self.ask(address, command).await? {
            Reply::Stream(info) => Ok(info),
            _ => Err(NotFollowed::StreamNotFound),
        }
    }

    async fn ask(&self, address: &Address, command: events::Command) -> Result<Reply, NotFollowed> {
        let command = Command::Events(command);
        let request = Request { namespace: address.0.clone(), idempotency: None, command };
        match self.submit(request).await {
            Ok(Outcome::Events(Ok(reply))) => Ok(reply),
            Ok(Outcome::Unreadable) => Err(NotFollowed::Unavailable(Unavailable::ShardUnavailable)),
            Ok(_) => Err(NotFollowed::StreamNotFound),
            Err(unavailable) => Err(NotFollowed::Unavailable(unavailable)),
        }
    }
}

impl Follower {
    /// Finds the place to begin at: after that clock if everything since is kept, or else with a key frame.
    async fn begin(&mut self, resume_after: Option<u64>) -> Result<(), NotFollowed> {
        if let Some(after) = resume_after {
            self.wait_for_ring().await;
            self.place.clock = after;
            self.read_missed().await?;
            let ring = self.topic.lock();
            if !ring.is_behind(&self.place) {
                (self.place.frames, self.place.for_all) = (ring.frames, ring.for_all);
                return Ok(());
            }
        }
        self.missed.clear();
        let ring = self.topic.lock();
        // Where there is none, it is as behind as can be, and asks for one.
        if let Some(frame) = ring.usable_key_frame() {
            self.missed.push_back(frame.clone());
            self.place = ring.place_after(frame, self.place.is_feed);
        }
        Ok(())
    }

    /// Waits until the ring has begun. In this node it has; from another it is on its way.
    async fn wait_for_ring(&mut self) {
        while self.topic.lock().is_empty() {
            let _still_there = self.news.changed().await;
        }
    }

    /// Reads what was told before the ring began, as far as it is kept, and puts it before what comes from the ring.
    async fn read_missed(&mut self) -> Result<(), NotFollowed> {
        loop {
            let after = self.place.clock;
            // No more than the ring lacks: what it has comes from there, also if the store has more by now.
            let missing = self.topic.lock().before_first().saturating_sub(after);
            if missing == 0 {
                break;
            }
            let limit = READ_AT_ONCE.min(usize::try_from(missing).unwrap_or(usize::MAX));
            let stream = self.topic.address.1.clone();
            let command = events::Command::Changes { stream, after, limit };
            match self.service.ask(&self.topic.address, command).await? {
                Reply::Changes(Changes::Kept(changes)) if !changes.is_empty() => {
                    self.place.clock += changes.len() as u64;
                    let messages = changes.into_iter().map(|change| Message::new(Told::Change(change)));
                    self.missed.extend(messages);
                }
                _ => break,
            }
        }
        Ok(())
    }

    /// The next messages, in order; waits until there are any.
    pub async fn next(&mut self) -> Result<Vec<Arc<Message>>, Ended> {
        Ok(self.next_marked().await?.into_iter().map(|next| next.message).collect())
    }

    async fn next_marked(&mut self) -> Result<Vec<Next>, Ended> {
        let mut asked_at: Option<Instant> = None;
        loop {
            self.news.mark_unchanged();
            let missed = self.missed.drain(..self.missed.len().min(AT_ONCE));
            let mut messages: Vec<_> = missed.map(|message| Next { message, is_for_all: false }).collect();
            let has_lost = {
                let ring = self.topic.lock();
                if let (Some(ended), true) = (ring.ended, messages.is_empty()) {
                    return Err(ended);
                }
                while messages.len() < AT_ONCE
                    && self.missed.is_empty()
                    && let Some(message) = ring.next(&mut self.place)
                {
                    messages.push(message);
                }
                if messages.is_empty() && self.place.is_feed && ring.moves != self.moves {
                    return Err(Ended::Unavailable(Unavailable::ShardUnavailable));
                }
                ring.is_behind(&self.place) && ring.usable_key_frame().is_none()
            };
            if !messages.is_empty() {
                return Ok(messages);
            }
            if has_lost && asked_at.is_none_or(|at| at.elapsed() >= ASK_AGAIN) {
                self.catch_up().await?;
                asked_at = Some(Instant::now());
                continue;
            }
            // What was asked of another node may be lost on its way. The news live as long as the topic, held here.
            let changed = self.news.changed();
            match has_lost {
                true => drop(tokio::time::timeout(ASK_AGAIN, changed).await),
                false => drop(changed.await),
            }
        }
    }

    /// What comes next is not in the ring: it is read, if it is little and still kept, or else there will be a key frame.
    async fn catch_up(&mut self) -> Result<(), Ended> {
        let caught_up = async {
            let missing = self.topic.lock().before_first().saturating_sub(self.place.clock);
            if self.place.clock > 0 && missing <= READ_AT_ONCE as u64 {
                self.read_missed().await?;
            }
            let is_behind = self.topic.lock().is_behind(&self.place);
            if is_behind && self.missed.is_empty() {
                self.service.key_frame(&self.topic.address, None).await?;
            }
            Ok(())
        };
        caught_up.await.map_err(|error| match error {
            NotFollowed::StreamNotFound => Ended::Deleted,
            NotFollowed::Unavailable(reason) => Ended::Unavailable(reason),
        })
    }
}

impl Feed for Follower {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Result<Vec<Fed>, FeedEnded>> + Send + '_>> {
        Box::pin(async {
            let fed = |next: Next| Fed { told: next.message.told.clone(), is_for_all: next.is_for_all };
            match self.next_marked().await {
                Ok(messages) => Ok(messages.into_iter().map(fed).collect()),
                Err(Ended::Deleted) => Err(FeedEnded::NoStream),
                Err(Ended::Unavailable(_)) => Err(FeedEnded::Lost),
            }
        })
    }
}

/// There is nothing to follow.
struct NoStream;

impl Feed for NoStream {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Result<Vec<Fed>, FeedEnded>> + Send + '_>> {
        Box::pin(async { Err(FeedEnded::NoStream) })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.service.streams().leave(&self.topic);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if let Some(feeder) = &self.feeder {
            feeder.abort();
        }
    }
}

/// Sees to it that the ring is fed, from wherever the stream's shard is, for as long as anybody follows.
async fn feed(service: Service, topic: Weak<Topic>, mut every: Duration) {
    let Some(address) = topic.upgrade().map(|topic| topic.address.clone()) else { return };
    let Some((shard, mut whereabouts)) = service.watch(&address.0) else { return };
    loop {
        let at = whereabouts.borrow_and_update().clone();
        let feeding = async {
            match at {
                // What its shard tells goes into the ring by itself.
                At::Here(_) => beat(&service, &topic, &mut every).await,
                At::There(other) => feed_from(&service, &topic, shard, &other).await,
                At::Nowhere => std::future::pending().await,
            }
        };
        tokio::select! {
            () = feeding => {}
            moved = whereabouts.changed() => if moved.is_err() { return },
        }
        if topic.upgrade().is_none_or(|topic| topic.lock().ended.is_some()) {
            return;
        }
    }
}

/// Tells those who follow, every now and then, all that incubates.
async fn beat(service: &Service, topic: &Weak<Topic>, every: &mut Duration) {
    tokio::time::sleep(*every).await;
    let Some(topic) = topic.upgrade() else { return };
    topic.lock().is_for_all = true;
    match service.key_frame(&topic.address, None).await {
        Ok(info) => *every = Duration::from_millis(info.terms.key_frame_every.0),
        // It was deleted while it was elsewhere.
        Err(NotFollowed::StreamNotFound) => service.streams().deleted(&topic.address.0, &topic.address.1),
        // Those who follow have what they have; there will be another time.
        Err(_) => topic.lock().is_for_all = false,
    }
}

/// Takes what another node tells, until that ends.
async fn feed_from(service: &Service, topic: &Weak<Topic>, shard: ShardId, other: &str) {
    let wanted = {
        let Some(topic) = topic.upgrade() else { return };
        let (namespace, stream) = topic.address.clone();
        let resume_after = topic.lock().last;
        Wanted { shard, namespace, stream, resume_after, make: None }
    };
    let Some(others) = service.others() else { return };
    let Ok(mut feed) = others.peers().follow(other, &wanted).await else {
        return tokio::time::sleep(ASK_AGAIN).await;
    };
    loop {
        let told = feed.next().await;
        let Some(topic) = topic.upgrade() else { return };
        match told {
            Ok(told) => topic.tell(|ring| {
                for fed in told {
                    match fed.told {
                        Told::Change(change) => ring.push_change(change),
                        Told::KeyFrame(frame) => ring.push_key_frame(frame, fed.is_for_all),
                    }
                }
            }),
            Err(FeedEnded::NoStream) => {
                let (namespace, stream) = &topic.address;
                return service.streams().deleted(namespace, stream);
            }
            Err(FeedEnded::Lost) => return tokio::time::sleep(ASK_AGAIN).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use limina_engine::{Time, events::ChangeKind};

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
