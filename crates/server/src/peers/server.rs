//! The answering side of a connection: executes the calls of another node.

use super::{
    MAX_CALLS, PING_EVERY,
    frames::{Incoming, Kind, Message},
    link::Link,
    outbox::Outbox,
    wire::{Refusal, decode, encode},
};
use crate::http::{App, REQUEST, Recorder};
use axum::http::StatusCode;
use bytes::{Buf, Bytes};
use futures_util::{
    Stream,
    future::{AbortHandle, Abortable, BoxFuture},
    stream::FuturesUnordered,
};
use limina_engine::{self as engine, Invalid, UncheckedRequest};
use limina_node::{
    Budget, Feed, FeedEnded, FeedRequest, PeerError, RefusalsRequest, ShardId,
    memory::{Kind as MemoryKind, MemoryFull, Priority, Reservation},
};
use serde::de::DeserializeOwned;
use std::{
    collections::HashMap,
    future::poll_fn,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{Notify, watch},
    task::JoinHandle,
    time::{Interval, MissedTickBehavior, interval},
};

/// The longest request: a batch of 16 MiB of JSON, in which small numbers take more bytes here than as text.
const MAX_REQUEST: usize = 24 << 20;
/// The memory of a long request, with the command that is decoded from it, as a multiple of its bytes.
const DECODED: usize = 3;
/// A request that is longer is decoded and answered in a task of its own, so that the other calls do not wait for it.
const LONG_REQUEST: usize = 64 << 10;
/// No more calls are read while so many bytes of answers wait to be sent.
const MAX_UNSENT: usize = 8 << 20;
/// How many bytes of a stream are sent before the follower has taken them. A single message may be longer.
const FEED_WINDOW: usize = 4 << 20;
/// The other node counts as dead after this many intervals without a sign of life, so that its requests for locks do not wait
/// for long.
const MAX_SILENT_CHECKS: u32 = 15;
/// The most messages that are read before something is answered.
const MESSAGES_AT_ONCE: usize = 256;

/// Serves the connection of another node until it ends, or until the process stops and every call is answered.
pub(crate) async fn serve_connection<S>(stream: S, app: App) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let outbox: Arc<Outbox> = Arc::default();
    let mut stopping = app.stopping().subscribe();
    let stopped = Box::pin(async move {
        let _stopped_or_dropped = stopping.wait_for(|is_stopping| *is_stopping).await;
    });
    let mut checks = interval(PING_EVERY);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut server = Server {
        link: Link::new(stream, outbox.clone()),
        outbox,
        recorders: Recorders::new(&app),
        stopped: Some(stopped),
        _not_drained: app.stopping().subscribe(),
        app,
        running: FuturesUnordered::new(),
        open: HashMap::new(),
        arriving: HashMap::new(),
        last_seen: 0,
        checks,
        silent_checks: 0,
    };
    poll_fn(|context| server.poll(context)).await?;
    poll_fn(|context| server.link.poll_shutdown(context)).await
}

struct Server<S> {
    app: App,
    link: Link<S>,
    outbox: Arc<Outbox>,
    recorders: Recorders,
    /// Returns when the process stops; None after that.
    stopped: Option<BoxFuture<'static, ()>>,
    /// While this exists, the stopping process waits for the calls of this connection.
    _not_drained: watch::Receiver<bool>,
    /// The calls that run. Each returns its number.
    running: FuturesUnordered<Abortable<BoxFuture<'static, u64>>>,
    open: HashMap<u64, OpenCall>,
    /// The memory of requests of which only a part has arrived.
    arriving: HashMap<u64, Reservation>,
    /// The highest number of a call so far.
    last_seen: u64,
    checks: Interval,
    /// The checks since the other side has last sent something.
    silent_checks: u32,
}

struct OpenCall {
    abort: AbortHandle,
    /// Only of a stream.
    window: Option<Arc<Window>>,
}

/// The metrics of each kind of call.
struct Recorders {
    ask: Arc<Recorder>,
    who: Arc<Recorder>,
    follow: Arc<Recorder>,
    refusals: Arc<Recorder>,
}

impl Recorders {
    fn new(app: &App) -> Recorders {
        let recorder = |operation| app.metrics().operation("peers", operation);
        Recorders {
            ask: recorder("ask"),
            who: recorder("who"),
            follow: recorder("follow"),
            refusals: recorder("refusals"),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Server<S> {
    /// Returns when the connection is broken, or when the process stops and every call is answered.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        for message in 0.. {
            if self.outbox.bytes() > MAX_UNSENT {
                break;
            }
            if message == MESSAGES_AT_ONCE {
                context.waker().wake_by_ref();
                break;
            }
            match self.link.poll_next(context)? {
                Poll::Ready(incoming) => self.handle(incoming)?,
                Poll::Pending => break,
            }
        }
        while self.checks.poll_tick(context).is_ready() {
            self.silent_checks += 1;
            if self.silent_checks > MAX_SILENT_CHECKS {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        if self.stopped.as_mut().is_some_and(|stopped| stopped.as_mut().poll(context).is_ready()) {
            self.stopped = None;
            let last_seen = Bytes::copy_from_slice(&self.last_seen.to_le_bytes());
            self.outbox.push(Kind::GoAway, 0, last_seen, None);
        }
        while let Poll::Ready(Some(ended)) = Pin::new(&mut self.running).poll_next(context) {
            // A call that was cancelled is not open any more.
            if let Ok(call) = ended {
                self.open.remove(&call);
            }
        }
        let was_full = self.outbox.bytes() > MAX_UNSENT;
        let is_sent = self.link.poll_send(context)?.is_ready();
        if was_full && self.outbox.bytes() <= MAX_UNSENT {
            context.waker().wake_by_ref();
        }
        let is_drained = self.stopped.is_none() && self.open.is_empty() && self.arriving.is_empty();
        if is_drained && is_sent { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn handle(&mut self, incoming: Incoming) -> io::Result<()> {
        self.silent_checks = 0;
        let message = match incoming {
            Incoming::Message(message) => message,
            Incoming::Unfinished { call, bytes, .. } => {
                self.handle_unfinished(call, bytes);
                return Ok(());
            }
        };
        match message.kind {
            Kind::Ask | Kind::Who | Kind::Follow | Kind::Refusals => self.begin(message)?,
            Kind::Cancel => {
                self.drop_arriving(message.call);
                if let Some(open) = self.open.remove(&message.call) {
                    open.abort.abort();
                }
            }
            Kind::Taken => {
                let window = self.open.get(&message.call).and_then(|open| open.window.as_ref());
                if let (Some(window), Ok(bytes)) = (window, message.body.clone().try_get_u64_le()) {
                    window.handle_taken(bytes as usize);
                }
            }
            Kind::Ping => self.outbox.push(Kind::Pong, 0, Bytes::new(), None),
            // Only the other direction uses the other kinds.
            _ => {}
        }
        Ok(())
    }

    /// Reserves the memory of a long request while it arrives, or refuses it.
    fn handle_unfinished(&mut self, call: u64, bytes: usize) {
        if !self.see(call) {
            return self.drop_arriving(call);
        }
        if bytes > MAX_REQUEST {
            self.drop_arriving(call);
            return self.refuse(call, &too_long());
        }
        let needed = bytes.saturating_mul(DECODED);
        let reserved = match self.arriving.get_mut(&call) {
            Some(memory) => memory.grow_to(needed, Priority::Buffer),
            None => reserve_body(self.app.memory(), needed).map(|memory| {
                self.arriving.insert(call, memory);
            }),
        };
        if let Err(MemoryFull) = reserved {
            self.drop_arriving(call);
            self.refuse(call, &Refusal::Overloaded);
        }
    }

    /// Whether the call is looked at. If the process stops, the other side knows which calls are not, and sends them elsewhere.
    fn see(&mut self, call: u64) -> bool {
        let is_seen = call <= self.last_seen || self.stopped.is_some();
        if is_seen {
            self.last_seen = self.last_seen.max(call);
        }
        is_seen
    }

    fn drop_arriving(&mut self, call: u64) {
        self.link.discard(call);
        self.arriving.remove(&call);
    }

    fn begin(&mut self, message: Message) -> io::Result<()> {
        let Message { kind, call, body } = message;
        let arrived = self.arriving.remove(&call);
        if !self.see(call) {
            return Ok(());
        }
        if body.len() > MAX_REQUEST {
            self.refuse(call, &too_long());
            return Ok(());
        }
        if self.open.contains_key(&call) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "two calls of the same number"));
        }
        let memory = match self.reserve(&body, arrived) {
            Ok(memory) if self.open.len() < MAX_CALLS => memory,
            _ => {
                self.refuse(call, &Refusal::Overloaded);
                return Ok(());
            }
        };
        let (abort, registration) = AbortHandle::new_pair();
        let begun = Call { app: self.app.clone(), outbox: self.outbox.clone(), number: call, memory };
        let window = (kind == Kind::Follow).then(Arc::<Window>::default);
        let running = begun.run(kind, body, window.clone(), &self.recorders);
        self.running.push(Abortable::new(running, registration));
        self.open.insert(call, OpenCall { abort, window });
        Ok(())
    }

    /// The memory of a call. `arrived` is what was reserved while it arrived.
    fn reserve(&self, body: &Bytes, arrived: Option<Reservation>) -> Result<CallMemory, MemoryFull> {
        let memory = self.app.memory();
        let request = memory.reserve(MemoryKind::Requests, REQUEST, Priority::Request)?;
        let needed = body.len().saturating_mul(DECODED);
        let body = match arrived {
            Some(mut arrived) => {
                arrived.grow_to(needed, Priority::Buffer)?;
                Some(arrived)
            }
            None if body.len() > REQUEST => Some(reserve_body(memory, needed)?),
            None => None,
        };
        Ok(CallMemory { request, body })
    }

    fn refuse(&self, call: u64, refusal: &Refusal) {
        self.outbox.push(Kind::Refused, call, encode(refusal), None);
    }
}

fn reserve_body(memory: &Budget, bytes: usize) -> Result<Reservation, MemoryFull> {
    memory.reserve(MemoryKind::Bodies, bytes, Priority::Buffer)
}

fn too_long() -> Refusal {
    invalid("body", "is longer than a request can be")
}

fn invalid(field: &str, reason: impl ToString) -> Refusal {
    Refusal::Invalid { field: field.to_owned(), reason: reason.to_string() }
}

impl From<Invalid> for Refusal {
    fn from(error: Invalid) -> Refusal {
        invalid(error.field(), error.reason())
    }
}

/// The memory of a call until it is answered.
struct CallMemory {
    request: Reservation,
    /// Of a long request.
    body: Option<Reservation>,
}

/// A call that runs.
struct Call {
    app: App,
    outbox: Arc<Outbox>,
    number: u64,
    memory: CallMemory,
}

/// What is sent for a call.
enum Answer {
    Done(Bytes),
    /// The answer to a request that has changed nothing: if there is no memory for it, it is refused instead.
    Read(Bytes),
    Refused(Refusal),
}

impl Answer {
    fn status(&self) -> StatusCode {
        match self {
            Answer::Done(_) | Answer::Read(_) => StatusCode::OK,
            Answer::Refused(Refusal::Overloaded) => StatusCode::SERVICE_UNAVAILABLE,
            Answer::Refused(Refusal::Invalid { .. }) => StatusCode::BAD_REQUEST,
        }
    }
}

impl From<Result<Answer, Refusal>> for Answer {
    fn from(answer: Result<Answer, Refusal>) -> Answer {
        answer.unwrap_or_else(Answer::Refused)
    }
}

impl Call {
    /// Runs the call. If the future is dropped, the work for the call is dropped.
    fn run(
        self,
        kind: Kind,
        body: Bytes,
        window: Option<Arc<Window>>,
        recorders: &Recorders,
    ) -> BoxFuture<'static, u64> {
        let (app, number) = (self.app.clone(), self.number);
        match kind {
            Kind::Ask if body.len() <= LONG_REQUEST => {
                let recorder = recorders.ask.clone();
                Box::pin(async move { self.answer(&recorder, ask(&app, body)).await })
            }
            Kind::Ask => {
                let recorder = recorders.ask.clone();
                apart(number, async move { self.answer(&recorder, ask(&app, body)).await })
            }
            Kind::Follow => {
                let recorder = recorders.follow.clone();
                apart(number, async move {
                    self.follow(&recorder, body, &window.unwrap_or_default()).await;
                    number
                })
            }
            Kind::Refusals => {
                let recorder = recorders.refusals.clone();
                Box::pin(async move { self.answer(&recorder, refusals(&app, body)).await })
            }
            _ => {
                let recorder = recorders.who.clone();
                Box::pin(async move { self.answer(&recorder, who(&app, body)).await })
            }
        }
    }

    /// Sends the answer, with the memory that it needs until it is written.
    async fn answer(
        self,
        recorder: &Arc<Recorder>,
        answer: impl Future<Output = Result<Answer, Refusal>>,
    ) -> u64 {
        let answer = recorder.record_as(async { Answer::from(answer.await) }, Answer::status).await;
        let Call { app, outbox, number, memory } = self;
        let CallMemory { request, body } = memory;
        drop(body);
        let (bytes, is_read) = match answer {
            Answer::Done(bytes) => (bytes, false),
            Answer::Read(bytes) => (bytes, true),
            Answer::Refused(refusal) => {
                outbox.push(Kind::Refused, number, encode(&refusal), Some(request));
                return number;
            }
        };
        let held = match bytes.len() {
            0..=REQUEST => Ok(request),
            length => match app.memory().reserve(MemoryKind::Answers, length, Priority::Buffer) {
                Err(MemoryFull) if !is_read => Ok(app.memory().reserve_anyway(MemoryKind::Answers, length)),
                reserved => reserved,
            },
        };
        match held {
            Ok(held) => outbox.push(Kind::Answer, number, bytes, Some(held)),
            Err(MemoryFull) => outbox.push(Kind::Refused, number, encode(&Refusal::Overloaded), None),
        }
        number
    }

    /// Sends the changes of a stream until it ends, or the process stops. The first message says whether the stream can be
    /// followed here.
    async fn follow(self, recorder: &Arc<Recorder>, body: Bytes, window: &Window) {
        let Call { app, outbox, number, memory: _held } = self;
        let begun = recorder.record_as(begin_feed(&app, &body), |begun| match begun {
            Ok(_) => StatusCode::OK,
            Err(_) => StatusCode::BAD_REQUEST,
        });
        let send = |kind: Kind, bytes: Bytes| {
            let held = app.memory().reserve_anyway(MemoryKind::Streams, bytes.len());
            window.handle_sent(bytes.len());
            outbox.push(kind, number, bytes, Some(held));
        };
        let mut feed = match begun.await {
            Ok(Ok(feed)) => feed,
            Ok(Err(not_there)) => return send(Kind::Answer, encode(&Err::<(), PeerError>(not_there))),
            Err(refusal) => return outbox.push(Kind::Refused, number, encode(&refusal), None),
        };
        send(Kind::Part, encode(&Ok::<(), PeerError>(())));
        let mut stopping = app.stopping().subscribe();
        loop {
            let told = tokio::select! {
                told = async {
                    window.has_room().await;
                    feed.next().await
                } => told,
                _ = stopping.wait_for(|is_stopping| *is_stopping) => Err(FeedEnded::Lost),
            };
            match &told {
                Ok(_) => send(Kind::Part, encode(&told)),
                Err(_) => return send(Kind::Answer, encode(&told)),
            }
        }
    }
}

/// Runs a call in a task of its own, which is aborted if the future is dropped.
fn apart(number: u64, call: impl Future<Output = u64> + Send + 'static) -> BoxFuture<'static, u64> {
    let mut task = AbortOnDrop(tokio::spawn(call));
    Box::pin(async move {
        // If the task panics, the other node gets no answer, until it or its client no longer waits.
        (&mut task.0).await.unwrap_or(number)
    })
}

struct AbortOnDrop(JoinHandle<u64>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Executes a request. Another node has checked the request already, but it may be of another version, or broken: a command
/// that is out of the engine's limits is refused here too.
async fn ask(app: &App, mut body: Bytes) -> Result<Answer, Refusal> {
    let shard = body.try_get_u16_le().map_err(|_| invalid("shard", "is missing"))?;
    let request = engine::Request::try_from(read::<UncheckedRequest>(&body)?)?;
    drop(body);
    let is_write = request.is_write();
    let answer = encode(&app.backend().answer_peer(ShardId(shard), request).await);
    Ok(if is_write { Answer::Done(answer) } else { Answer::Read(answer) })
}

/// Returns this node's name.
async fn who(app: &App, body: Bytes) -> Result<Answer, Refusal> {
    let _address: String = read(&body)?;
    Ok(Answer::Read(encode(&app.backend().cluster().me)))
}

/// Returns what this node has refused. If there is nothing new, the answer takes a while.
async fn refusals(app: &App, body: Bytes) -> Result<Answer, Refusal> {
    let wanted: RefusalsRequest = read(&body)?;
    let mut stopping = app.stopping().subscribe();
    let page = tokio::select! {
        page = app.backend().refusals_for_peer(wanted) => page,
        _ = stopping.wait_for(|is_stopping| *is_stopping) => Err(PeerError::NotThere),
    };
    Ok(Answer::Read(encode(&page)))
}

async fn begin_feed(app: &App, body: &Bytes) -> Result<Result<Box<dyn Feed>, PeerError>, Refusal> {
    let wanted: FeedRequest = read(body)?;
    if let Some(terms) = &wanted.make {
        terms.validate().map_err(|invalid| invalid.within("make"))?;
    }
    Ok(app.backend().feed_peer(wanted).await)
}

/// Decodes a request. What it contains is not checked yet.
fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, Refusal> {
    decode(body).ok_or_else(|| invalid("body", "does not decode as a request of another node"))
}

/// How much of a stream is sent and not taken yet.
#[derive(Default)]
struct Window {
    untaken: AtomicUsize,
    taken: Notify,
}

impl Window {
    fn handle_sent(&self, bytes: usize) {
        self.untaken.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The other side may say nonsense, so it never takes more than was sent.
    fn handle_taken(&self, bytes: usize) {
        let less = |untaken: usize| Some(untaken.saturating_sub(bytes));
        let _always_some = self.untaken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        self.taken.notify_one();
    }

    async fn has_room(&self) {
        while self.untaken.load(Ordering::Relaxed) >= FEED_WINDOW {
            self.taken.notified().await;
        }
    }
}
