//! A follower of a stream: a client of this node, or another node.

use super::{Address, Ended, FollowError, Message, Told, Topic, cursor::Cursor, cursor::Step, feeding};
use crate::{Feed, FeedEnded, PeerError, Service, Unavailable, Wanted};
use limina_engine::{
    Command, Name, Outcome, Request,
    events::{self, Changes, Reply, StreamInfo, StreamTerms},
};
use std::{
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// How long to wait before the owner is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// How long a follower that is behind waits for an owner that answers. Then it ends, and its client comes back.
const PATIENCE: Duration = Duration::from_secs(30);

/// A follower of a stream.
pub struct Follower {
    service: Service,
    topic: Arc<Topic>,
    news: watch::Receiver<()>,
    cursor: Cursor,
    /// Set while the follower reads pages.
    reading: Option<Reading>,
    /// For another node: how often the shard had left this node when the feed began. The feed ends when it leaves again.
    feeds_until_move: Option<u64>,
}

impl Service {
    /// Follows a stream: from a current key frame on, or after a clock, if all changes since are still kept. If the stream
    /// does not exist, it is made with the terms in `make`.
    pub async fn follow(
        &self,
        namespace: Name,
        stream: Name,
        resume_after: Option<u64>,
        make: Option<StreamTerms>,
    ) -> Result<Follower, FollowError> {
        let mut follower = self.join_topic(namespace, stream, resume_after);
        follower.begin(make).await?;
        Ok(follower)
    }

    /// Follows a stream on behalf of another node, which has a ring of its own.
    pub async fn feed_peer(&self, wanted: Wanted) -> Result<Box<dyn Feed>, PeerError> {
        let Wanted { shard, namespace, stream, resume_after, make } = wanted;
        if !self.is_here(shard) {
            return Err(PeerError::NotThere);
        }
        self.begin_serving();
        let mut follower = self.join_topic(namespace, stream, resume_after);
        follower.feeds_until_move = Some(follower.topic.lock().moves);
        match follower.begin(make).await {
            Ok(()) => Ok(Box::new(follower)),
            Err(FollowError::StreamNotFound) => Ok(Box::new(NoStream)),
            Err(FollowError::Unavailable(_)) => Err(PeerError::NotThere),
        }
    }

    fn join_topic(&self, namespace: Name, stream: Name, resume_after: Option<u64>) -> Follower {
        let topic = self.streams().join((namespace, stream));
        let news = topic.news.subscribe();
        let cursor = Cursor::new(resume_after);
        Follower { service: self.clone(), topic, news, cursor, reading: None, feeds_until_move: None }
    }

    /// The stream as it is now: the answer to a question that is asked after this call.
    pub(super) async fn stream_info(&self, topic: &Topic) -> Result<StreamInfo, FollowError> {
        let question = || {
            let (service, address) = (self.clone(), topic.address.clone());
            async move {
                let command = events::Command::Get(address.1.clone());
                match service.ask(&address, command).await? {
                    Reply::Stream(info) => Ok(info),
                    _ => Err(FollowError::StreamNotFound),
                }
            }
        };
        topic.infos.ask(question).await
    }

    /// A key frame of the stream as it is now, shared by all followers that ask at the same time.
    async fn current_key_frame(&self, topic: &Topic) -> Result<Arc<Message>, FollowError> {
        let question = || {
            let (service, address) = (self.clone(), topic.address.clone());
            async move {
                let command = events::Command::Incubating(address.1.clone());
                match service.ask(&address, command).await? {
                    Reply::Incubating(frame) => Ok(Message::new(Told::KeyFrame(frame))),
                    _ => Err(FollowError::StreamNotFound),
                }
            }
        };
        topic.key_frames.ask(question).await
    }

    /// Has a key frame put into the ring, in its place among the changes.
    pub(super) async fn push_key_frame(
        &self,
        address: &Address,
        make: Option<StreamTerms>,
    ) -> Result<StreamInfo, FollowError> {
        let command = events::Command::KeyFrame { stream: address.1.clone(), make };
        match self.ask(address, command).await? {
            Reply::Stream(info) => Ok(info),
            _ => Err(FollowError::StreamNotFound),
        }
    }

    async fn changes(&self, address: &Address, after: u64, limit: usize) -> Result<Changes, FollowError> {
        let wanted = events::ChangesAfter::new(address.1.clone(), after, limit);
        let wanted = wanted.expect("a cursor asks for few changes at a time");
        match self.ask(address, events::Command::Changes(wanted)).await? {
            Reply::Changes(changes) => Ok(changes),
            _ => Err(FollowError::StreamNotFound),
        }
    }

    async fn ask(&self, address: &Address, command: events::Command) -> Result<Reply, FollowError> {
        let command = Command::Events(command);
        let request = Request { namespace: address.0.clone(), idempotency: None, command };
        match self.submit(request).await {
            Ok(Outcome::Events(Ok(reply))) => Ok(reply),
            Ok(Outcome::Unreadable) => Err(FollowError::Unavailable(Unavailable::ShardUnavailable)),
            Ok(_) => Err(FollowError::StreamNotFound),
            Err(unavailable) => Err(FollowError::Unavailable(unavailable)),
        }
    }
}

impl Follower {
    /// Finds the place to begin at.
    async fn begin(&mut self, make: Option<StreamTerms>) -> Result<(), FollowError> {
        if self.topic.lock().ring.last().is_none() {
            let info = match self.service.stream_info(&self.topic).await {
                Err(FollowError::StreamNotFound) if make.is_some() => {
                    self.service.push_key_frame(&self.topic.address, make).await?
                }
                info => info?,
            };
            let mut state = self.topic.lock();
            state.ring.begin(info.clock);
            if state.feeder.is_none() {
                let every = Duration::from_millis(info.terms.key_frame_every().0);
                let feeder = feeding::feed(self.service.clone(), Arc::downgrade(&self.topic), every);
                state.feeder = Some(tokio::spawn(feeder).abort_handle());
            }
        }
        loop {
            let question = self.cursor.poll_begin(&self.topic.lock().ring);
            match question {
                Some(question) => self.answer(question).await?,
                None => return Ok(()),
            }
        }
    }

    /// The next messages, in order; waits until there are any. May be dropped and called again: nothing is lost.
    pub async fn next(&mut self) -> Result<Vec<Arc<Message>>, Ended> {
        let mut unanswered_since: Option<Instant> = None;
        loop {
            self.news.mark_unchanged();
            let (step, ended) = {
                let state = self.topic.lock();
                let has_moved = self.feeds_until_move.is_some_and(|moves| moves != state.moves);
                let moved = has_moved.then_some(Ended::Unavailable(Unavailable::ShardUnavailable));
                (self.cursor.poll(&state.ring), state.ended.or(moved))
            };
            if !self.cursor.is_behind() && !matches!(step, Step::AskPage { .. }) {
                self.reading = None;
            }
            let question = match (step, ended) {
                (Step::Send(messages), _) => return Ok(messages),
                (_, Some(ended)) => return Err(ended),
                (Step::Wait, None) => {
                    // The sender lives as long as the topic, which is held here.
                    let _is_alive = self.news.changed().await;
                    continue;
                }
                (question, None) => question,
            };
            match self.answer(question).await {
                Ok(()) => unanswered_since = None,
                Err(FollowError::StreamNotFound) => return Err(Ended::Deleted),
                Err(FollowError::Unavailable(reason)) => {
                    let since = *unanswered_since.get_or_insert_with(Instant::now);
                    let is_hopeless = reason == Unavailable::ShuttingDown || since.elapsed() > PATIENCE;
                    if is_hopeless || self.feeds_until_move.is_some() {
                        return Err(Ended::Unavailable(reason));
                    }
                    // The shard opens again, or is on its way to another node.
                    tokio::time::sleep(ASK_AGAIN).await;
                }
            }
        }
    }

    /// Asks the owner what the cursor wants to know.
    async fn answer(&mut self, question: Step) -> Result<(), FollowError> {
        match question {
            Step::Send(_) | Step::Wait => {}
            Step::AskClock => {
                let info = self.service.stream_info(&self.topic).await?;
                self.cursor.handle_clock(info.clock, &self.topic.lock().ring);
            }
            Step::AskKeyFrame => {
                let frame = self.service.current_key_frame(&self.topic).await?;
                self.cursor.handle_key_frame(frame);
            }
            Step::AskPage { .. } => self.read_page().await?,
        }
        Ok(())
    }

    /// Reads a page, unless another follower has read it meanwhile. Followers of a stream read one at a time, so that they
    /// never occupy the shard, however many there are.
    async fn read_page(&mut self) -> Result<(), FollowError> {
        self.reading.get_or_insert_with(|| Reading::new(&self.topic));
        let _turn = self.topic.page_turn.lock().await;
        let wanted = self.cursor.wanted_page(&self.topic.lock().ring);
        if let Some((after, limit)) = wanted {
            let changes = self.service.changes(&self.topic.address, after, limit).await?;
            self.cursor.handle_page(after, changes, &mut self.topic.lock().ring);
        }
        Ok(())
    }
}

/// Pages stay in memory for as long as any follower reads them.
struct Reading(Arc<Topic>);

impl Reading {
    fn new(topic: &Arc<Topic>) -> Reading {
        topic.lock().readers += 1;
        Reading(topic.clone())
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.readers -= 1;
        if state.readers == 0 {
            state.ring.drop_pages();
        }
    }
}

impl Feed for Follower {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Result<Vec<Told>, FeedEnded>> + Send + '_>> {
        Box::pin(async {
            match Follower::next(self).await {
                Ok(messages) => Ok(messages.iter().map(|message| message.told.clone()).collect()),
                Err(Ended::Deleted) => Err(FeedEnded::NoStream),
                Err(Ended::Unavailable(_)) => Err(FeedEnded::Lost),
            }
        })
    }
}

/// There is nothing to follow.
struct NoStream;

impl Feed for NoStream {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Result<Vec<Told>, FeedEnded>> + Send + '_>> {
        Box::pin(async { Err(FeedEnded::NoStream) })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.service.streams().leave(&self.topic);
    }
}
