//! Streams of events that happen once.
//!
//! An event is a text. A stream accepts each text once within its duration: a duplicate is refused. An accepted event
//! incubates for the duration of the stream and is then *published*. In a strictly-once stream, a duplicate also
//! *invalidates* an event that still incubates. Followers of a stream see every change in order.
//!
//! ```
//! use limina_embed::{Limina, events::{ChangeKind, Message, Mode, Stream}};
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let events = Limina::in_memory().await?.namespace("shop")?.events();
//! events.put_stream("mails", Stream::new(Mode::OnlyOnce, Duration::from_secs(60))).await?;
//!
//! let mut follower = events.follow("mails").await?;
//! assert!(matches!(follower.next().await?, Message::KeyFrame(frame) if frame.events.is_empty()));
//!
//! events.submit("mails", "welcome ann").await?;
//! assert!(events.submit("mails", "welcome ann").await.is_err(), "a duplicate");
//! match follower.next().await? {
//!     Message::Change(change) => assert_eq!((change.kind, &*change.event), (ChangeKind::Submitted, "welcome ann")),
//!     other => panic!("{other:?}"),
//! }
//! # Ok(())
//! # }
//! ```

use crate::{
    Error, Failure, Invalid, Listed, Name,
    call::{Caller, failure, millis, page, reply},
    error::name,
};
pub use limina_engine::events::{
    Change, ChangeKind, Changes, Event, EventInfo, KeyFrame, Mode, Refusal, StreamInfo, Submitted,
};
use limina_engine::{
    Command as AnyCommand, Outcome,
    events::{self as engine, Command, Reply, StreamTerms},
};
use limina_node::{Ended, FollowError, StreamUpdate};
use std::{collections::VecDeque, fmt, sync::Arc, time::Duration};

type Result<T> = std::result::Result<T, Error<Refusal>>;

/// The events of a namespace. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Events {
    caller: Caller,
}

/// The settings of a stream.
#[derive(Debug, Clone)]
pub struct Stream {
    mode: Mode,
    duration: Duration,
    max_events: u32,
    key_frame_every: Duration,
}

impl Stream {
    /// A stream in which an event closes its text for this duration, from 10 ms to 30 days. It remembers at most 10,000 events, and sends a key
    /// frame every 10 seconds.
    pub fn new(mode: Mode, duration: Duration) -> Stream {
        Stream { mode, duration, max_events: 10_000, key_frame_every: Duration::from_secs(10) }
    }

    /// The most events that the stream remembers. When it is full, new events are refused ([`Refusal::StreamFull`]).
    #[must_use]
    pub fn max_events(mut self, events: u32) -> Stream {
        self.max_events = events;
        self
    }

    /// How often followers receive a key frame.
    #[must_use]
    pub fn key_frame_every(mut self, interval: Duration) -> Stream {
        self.key_frame_every = interval;
        self
    }

    fn build(self) -> std::result::Result<StreamTerms, Invalid> {
        StreamTerms::new(self.mode, millis(self.duration))?
            .with_max_events(self.max_events)?
            .with_key_frame_every(millis(self.key_frame_every))
    }
}

impl Events {
    pub(crate) fn new(caller: Caller) -> Events {
        Events { caller }
    }

    /// A handle whose next write is done once, however often it is repeated under this key within a day: see
    /// [`Ledger::idempotency_key`](crate::Ledger::idempotency_key).
    pub fn idempotency_key(&self, key: &str) -> std::result::Result<Events, Invalid> {
        Ok(Events { caller: self.caller.with_idempotency_key(key)? })
    }

    /// Creates a stream, or changes its settings. The mode of a stream cannot change ([`Refusal::StreamModeConflict`]).
    pub async fn put_stream(&self, stream: &str, settings: Stream) -> Result<StreamInfo> {
        let command = Command::Put { name: name("stream", stream)?, terms: settings.build()? };
        reply!(self.call(command).await, Reply::StreamCreated(info) | Reply::Stream(info) => info)
    }

    /// Deletes a stream with everything that it remembers. Its followers end.
    pub async fn delete_stream(&self, stream: &str) -> Result<()> {
        let command = Command::Delete(name("stream", stream)?);
        reply!(self.call(command).await, Reply::StreamDeleted => ())
    }

    /// Submits an event. A duplicate is refused with [`Refusal::EventConflict`].
    pub async fn submit(&self, stream: &str, event: &str) -> Result<Submitted> {
        let command = Command::Submit(engine::Submit::new(name("stream", stream)?, event.into())?);
        reply!(self.call(command).await, Reply::Submitted(submitted) => submitted)
    }

    /// Reads a stream.
    pub async fn stream(&self, stream: &str) -> Result<StreamInfo> {
        let command = Command::Get(name("stream", stream)?);
        reply!(self.call(command).await, Reply::Stream(info) => info)
    }

    /// The streams by name: at most `limit` of those that follow `after`.
    pub async fn streams(&self, after: Option<&Name>, limit: usize) -> Result<Listed<StreamInfo, Name>> {
        let command = Command::List(page(after, limit)?);
        reply!(self.call(command).await, Reply::Streams(streams) => streams)
    }

    /// The events of a stream that incubate now.
    pub async fn incubating(&self, stream: &str) -> Result<KeyFrame> {
        let command = Command::Incubating(name("stream", stream)?);
        reply!(self.call(command).await, Reply::Incubating(frame) => frame)
    }

    /// The changes of a stream that follow this clock, the oldest first, at most `limit`.
    pub async fn changes(&self, stream: &str, after: u64, limit: usize) -> Result<Changes> {
        let command = Command::Changes(engine::ChangesAfter::new(name("stream", stream)?, after, limit)?);
        reply!(self.call(command).await, Reply::Changes(changes) => changes)
    }

    /// Follows a stream. The first message is a key frame with everything that incubates; then every change follows, in
    /// order and without gaps.
    pub async fn follow(&self, stream: &str) -> Result<Follower> {
        self.follow_from(stream, None).await
    }

    /// Follows a stream after a clock that this caller has seen. If the changes since then are no longer kept, the first
    /// message is a key frame.
    pub async fn follow_after(&self, stream: &str, clock: u64) -> Result<Follower> {
        self.follow_from(stream, Some(clock)).await
    }

    async fn follow_from(&self, stream: &str, resume_after: Option<u64>) -> Result<Follower> {
        let stream = name("stream", stream)?;
        let (caller, namespace) = (self.caller.clone(), self.caller.namespace().clone());
        match caller.service().follow(namespace, stream.clone(), resume_after, None).await {
            Ok(inner) => Ok(Follower { inner, received: VecDeque::new(), _caller: caller }),
            Err(FollowError::StreamNotFound) => Err(Error::Refused(Refusal::StreamNotFound { stream })),
            Err(FollowError::QuotaExceeded(exceeded)) => Err(Error::Refused(exceeded.into())),
            Err(FollowError::Unavailable(unavailable)) => Err(Error::Failed(unavailable.into())),
        }
    }

    async fn call(&self, command: Command) -> Result<Reply> {
        match self.caller.call(AnyCommand::Events(command)).await? {
            Outcome::Events(Ok(reply)) => Ok(reply),
            Outcome::Events(Err(refusal)) => Err(Error::Refused(refusal)),
            outcome => Err(Error::Failed(failure(&outcome))),
        }
    }
}

/// Receives the messages of a stream, in order. Dropping it ends the following.
pub struct Follower {
    inner: limina_node::Follower,
    received: VecDeque<Arc<limina_node::Message>>,
    /// Keeps the instance alive.
    _caller: Caller,
}

/// A message to a follower.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Everything that incubates, as of a clock. It comes first, at the interval of the stream, and after changes that
    /// are no longer kept.
    KeyFrame(KeyFrame),
    /// One change. Its clock is one more than that of the change before it.
    Change(Change),
}

/// Why a follower receives nothing more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FollowEnded {
    /// The stream was deleted.
    #[error("the stream was deleted")]
    Deleted,
    /// The stream cannot be read. Follow it again with [`Events::follow_after`].
    #[error("the stream cannot be followed any more")]
    Failed(#[source] Failure),
}

impl Follower {
    /// The next message; waits until there is one. The returned future may be dropped: no message is lost.
    pub async fn next(&mut self) -> std::result::Result<Message, FollowEnded> {
        loop {
            if let Some(message) = self.received.pop_front() {
                return Ok(match &message.update {
                    StreamUpdate::Change(change) => Message::Change(change.clone()),
                    StreamUpdate::KeyFrame(frame) => Message::KeyFrame(frame.clone()),
                });
            }
            match self.inner.next().await {
                Ok(messages) => self.received.extend(messages),
                Err(Ended::Deleted) => return Err(FollowEnded::Deleted),
                Err(Ended::Unavailable(unavailable)) => return Err(FollowEnded::Failed(unavailable.into())),
            }
        }
    }
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower").finish_non_exhaustive()
    }
}
