//! A follower of a stream: a client of this node, or another node.

use super::{
    Address, Ended, FollowError, Message, StreamUpdate, Topic, cursor::Cursor, cursor::Step, feeding,
};
use crate::{Feed, FeedEnded, FeedRequest, PeerError, Service, Unavailable};
use limina_engine::{
    Command, Name, Outcome, Request,
    events::{self, Changes, Reply, StreamInfo, StreamTerms},
};
use std::{pin::Pin, sync::Arc, time::Duration};
use tokio::{sync::watch, time::Instant};

/// How long to wait before an owner that did not answer is asked again.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// The longest time that a follower which is behind waits for the owner. After that it ends, and its client must return.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Receives the updates of a stream, in order. Created by [`Service::follow`].
pub struct Follower {
    service: Service,
    topic: Arc<Topic>,
    news: watch::Receiver<()>,
    cursor: Cursor,
    /// Set while the follower reads pages, to keep them in memory.
    reading: Option<Reading>,
    /// Set if the follower is another node: how many times the shard had left this node when the feed began. When the shard
    /// leaves again, the feed ends.
    feeds_until_move: Option<u64>,
    /// Since when the owner has not answered.
    unanswered_since: Option<Instant>,
}

impl Service {
    /// Follows a stream. With `resume_after`, the follower receives the changes after that clock. Without it, or if these
    /// changes are no longer kept, it first receives a current key frame. If the stream does not exist, it is created with the
    /// terms in `make`.
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

    /// Follows a stream for another node, which feeds its own ring with the updates.
    pub async fn feed_peer(&self, request: FeedRequest) -> Result<Box<dyn Feed>, PeerError> {
        let FeedRequest { shard, namespace, stream, resume_after, make } = request;
        if !self.is_local(shard) {
            return Err(PeerError::NotThere);
        }
        self.begin_serving();
        let mut follower = self.join_topic(namespace, stream, resume_after);
        follower.feeds_until_move = Some(follower.topic.lock().moves);
        match follower.begin(make).await {
            Ok(()) => Ok(Box::new(follower)),
            Err(FollowError::StreamNotFound | FollowError::QuotaExceeded(_)) => Ok(Box::new(NoStream)),
            Err(FollowError::Unavailable(_)) => Err(PeerError::NotThere),
        }
    }

    fn join_topic(&self, namespace: Name, stream: Name, resume_after: Option<u64>) -> Follower {
        let topic = self.streams().join((namespace, stream));
        let news = topic.news.subscribe();
        let cursor = Cursor::new(resume_after);
        Follower {
            service: self.clone(),
            topic,
            news,
            cursor,
            reading: None,
            feeds_until_move: None,
            unanswered_since: None,
        }
    }

    /// The stream as it is now: the question is sent to the shard after this call.
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

    /// A key frame of the stream as it is now, shared by all followers that ask at the same time. If the stream has not changed
    /// since an earlier key frame that is still in memory, that one is shared too.
    async fn current_key_frame(&self, topic: &Arc<Topic>) -> Result<Arc<Message>, FollowError> {
        let question = || {
            let (service, topic) = (self.clone(), topic.clone());
            async move {
                let (address, stream) = (&topic.address, &topic.address.1);
                let in_memory: Vec<_> = topic.lock().key_frames().collect();
                if !in_memory.is_empty()
                    && let Reply::Stream(info) =
                        service.ask(address, events::Command::Get(stream.clone())).await?
                    && let Some(frame) = in_memory.into_iter().find(|frame| frame.clock() == info.clock)
                {
                    return Ok(frame);
                }
                match service.ask(address, events::Command::Snapshot(stream.clone())).await? {
                    Reply::Incubating(frame) => {
                        let frame = Message::key_frame(frame, service.memory())
                            .map_err(|full| FollowError::Unavailable(full.into()))?;
                        topic.lock().sent_key_frame = Arc::downgrade(&frame);
                        Ok(frame)
                    }
                    _ => Err(FollowError::StreamNotFound),
                }
            }
        };
        topic.key_frames.ask(question).await
    }

    /// Has the shard report a key frame, at its position among the changes.
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
        let request = Request::new(address.0.clone(), command);
        match self.submit(request).await {
            Ok(Outcome::Events(Ok(reply))) => Ok(reply),
            Ok(Outcome::Events(Err(events::Refusal::QuotaExceeded(exceeded)))) => {
                Err(FollowError::QuotaExceeded(exceeded))
            }
            Ok(Outcome::Unreadable) => Err(FollowError::Unavailable(Unavailable::ShardUnavailable)),
            // The stream does not exist, or its namespace is being deleted.
            Ok(_) => Err(FollowError::StreamNotFound),
            Err(unavailable) => Err(FollowError::Unavailable(unavailable)),
        }
    }
}

impl Follower {
    /// Finds the clock at which the follower begins. Starts the ring's feeder if there is none. A ring with changes may have none: a shard of
    /// this node puts its changes there, and the first follower may have left before it started the feeder.
    async fn begin(&mut self, make: Option<StreamTerms>) -> Result<(), FollowError> {
        if self.topic.lock().feeder.is_none() {
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

    /// The next messages, in order. Waits until there are any. If the future is dropped, no message is lost.
    pub async fn next(&mut self) -> Result<Vec<Arc<Message>>, Ended> {
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
                    // The sender lives as long as the topic, which this follower holds.
                    let _is_alive = self.news.changed().await;
                    continue;
                }
                (question, None) => question,
            };
            match self.answer(question).await {
                Ok(()) => self.unanswered_since = None,
                Err(FollowError::StreamNotFound | FollowError::QuotaExceeded(_)) => {
                    return Err(Ended::Deleted);
                }
                Err(FollowError::Unavailable(reason)) => {
                    let since = *self.unanswered_since.get_or_insert_with(Instant::now);
                    let is_hopeless = reason == Unavailable::ShuttingDown || since.elapsed() > MAX_WAIT;
                    if is_hopeless || self.feeds_until_move.is_some() {
                        return Err(Ended::Unavailable(reason));
                    }
                    // The shard is opening again, or is moving to another node.
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    /// Asks the owner the cursor's question, and hands the answer to the cursor.
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

    /// Reads a page, unless another follower has read it meanwhile. Followers of a stream read one after the other, so that
    /// many followers do not overload the shard.
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

/// Keeps pages in memory: they are dropped with the last of these.
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
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Result<Vec<StreamUpdate>, FeedEnded>> + Send + '_>> {
        Box::pin(async {
            match Follower::next(self).await {
                Ok(messages) => Ok(messages.iter().map(|message| message.update.clone()).collect()),
                Err(Ended::Deleted) => Err(FeedEnded::NoStream),
                Err(Ended::Unavailable(_)) => Err(FeedEnded::Lost),
            }
        })
    }
}

/// The feed of a stream that does not exist.
struct NoStream;

impl Feed for NoStream {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Result<Vec<StreamUpdate>, FeedEnded>> + Send + '_>> {
        Box::pin(async { Err(FeedEnded::NoStream) })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.service.streams().leave(&self.topic);
    }
}
