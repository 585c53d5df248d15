//! Somebody who follows a stream: a client of this node, or another node.

use super::{
    Address, Ended, Message, NotFollowed, Told, Topic, feeding,
    ring::{Next, Place},
};
use crate::{Fed, Feed, FeedEnded, NotAnswered, Service, Unavailable, Wanted};
use limina_engine::{
    Command, Name, Outcome, Request,
    events::{self, Changes, Reply, StreamInfo, StreamTerms},
};
use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// How many messages a follower is given at a time.
const AT_ONCE: usize = 256;
/// How many missed changes are read at a time.
const READ_AT_ONCE: usize = 1_000;
/// How long to wait before a key frame is asked for again.
const ASK_AGAIN: Duration = Duration::from_millis(200);

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
        self.begin_serving();
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
                let feeder = feeding::feed(self.clone(), Arc::downgrade(&follower.topic), every);
                ring.feeder = Some(tokio::spawn(feeder).abort_handle());
            }
        }
        follower.begin(resume_after).await?;
        Ok(follower)
    }

    /// Has a key frame put into the ring, in its place among the changes.
    pub(super) async fn key_frame(
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
