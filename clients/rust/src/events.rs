//! Streams of events: submit to them, and follow them without missing a change.

use crate::{
    Pages, Reply,
    body::Body,
    call::segment,
    error::Result,
    sse::EventStream,
    transport::Scope,
    types::{Incubating, Message, Refusal, Stream, Submitted},
};
use futures_util::stream;
use serde::Serialize;

/// `client.events()`
pub struct Events<'c> {
    pub(crate) scope: &'c Scope,
}

impl Events<'_> {
    /// Creates the stream, or changes its settings: `{"mode": "only_once", "duration": "10s"}`.
    pub async fn put(&self, stream: &str, settings: &impl Serialize) -> Result<Reply<Stream>> {
        self.scope.put(path(stream)).body(settings).send().await
    }

    /// All streams.
    pub fn list(&self) -> Pages<Stream> {
        Pages::get(self.scope, "/events")
    }

    /// One stream.
    pub async fn get(&self, stream: &str) -> Result<Reply<Stream>> {
        self.scope.get(path(stream)).send().await
    }

    /// Deletes the stream with its events.
    pub async fn delete(&self, stream: &str) -> Result<()> {
        self.scope.delete(path(stream)).await
    }

    /// Submits an event. Fails with `Refused` (`EventConflict`) if the same event happened within the stream's duration.
    pub async fn submit(&self, stream: &str, event: &str) -> Result<Reply<Submitted>> {
        self.scope.post(path(stream)).with_body(Body::default().with("event", event)).send().await
    }

    /// The events that are accepted and not yet published.
    pub async fn incubating(&self, stream: &str) -> Result<Reply<Incubating>> {
        self.scope.get(format!("{}/incubating", path(stream))).send().await
    }

    /// Follows the stream for ever, with the first [`Follow::next`].
    pub fn follow(&self, stream: &str) -> Follow {
        let path = format!("{}/stream", path(stream));
        Follow { events: EventStream::new(self.scope, path), clock: None }
    }
}

fn path(stream: &str) -> String {
    format!("/events/{}", segment(stream))
}

/// A stream that is followed: after any interruption it connects again, and continues after the last message.
///
/// ```no_run
/// # async fn example(client: limina_client::Limina) -> Result<(), limina_client::Error> {
/// let mut mails = client.events().follow("mails");
/// loop {
///     println!("{}", mails.next().await?.json());
/// }
/// # }
/// ```
pub struct Follow {
    events: EventStream,
    clock: Option<u64>,
}

impl Follow {
    /// Begins after this clock, which is that of the last message that the caller has. Without it, a key frame comes first.
    pub fn after(mut self, clock: u64) -> Follow {
        self.clock = Some(clock);
        self
    }

    /// The next message: a change, or a key frame. Key frames come first, from time to time, and in place of changes that the
    /// server no longer keeps. If the future is dropped before it is ready, no message is lost.
    pub async fn next(&mut self) -> Result<Reply<Message>> {
        loop {
            let message: Reply<Message> = self.events.next(self.clock).await?;
            let (clock, key_frame) = match *message {
                Message::KeyFrame { clock, .. } => (clock, true),
                Message::Submitted { clock, .. }
                | Message::Invalidated { clock, .. }
                | Message::Published { clock, .. } => (clock, false),
            };
            if key_frame || self.clock.is_none_or(|known| known < clock) {
                self.clock = Some(clock);
                return Ok(message);
            }
        }
    }

    /// The messages as a stream, which ends after its first error.
    pub fn into_stream(self) -> impl stream::Stream<Item = Result<Reply<Message>>> + Send {
        stream::try_unfold(self, |mut follow| async move { Ok(Some((follow.next().await?, follow))) })
    }
}

/// What is being refused, as it happens.
pub struct Refusals {
    events: EventStream,
}

impl Refusals {
    pub(crate) fn new(scope: &Scope, path: &str) -> Refusals {
        Refusals { events: EventStream::new(scope, path) }
    }

    /// The next refusal. After an interruption the server repeats what it still remembers, so a refusal may come twice.
    pub async fn next(&mut self) -> Result<Reply<Refusal>> {
        self.events.next(None).await
    }
}
