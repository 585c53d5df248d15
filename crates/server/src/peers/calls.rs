//! The asking side of a connection: its open calls, and the task that sends them and hands out the answers.

use super::{
    MAX_CALLS, PING_EVERY,
    frames::{Incoming, Kind, Message},
    link::Link,
    outbox::Outbox,
};
use bytes::{Buf, Bytes};
use limina_node::{
    Budget,
    memory::{Kind as MemoryKind, Reservation},
};
use std::{
    collections::HashMap,
    future::poll_fn,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{mpsc, oneshot},
    time::{Interval, MissedTickBehavior, interval},
};

/// The most bytes of requests that wait to be sent. The other node takes them more slowly than they come.
const MAX_WAITING: usize = 64 << 20;
/// The longest answer: a little more than a key frame of a million events of 1 KiB.
const MAX_ANSWER: usize = 5 << 28;
/// The other node counts as dead after this many signs of life without one of its own.
const MAX_SILENT_PINGS: u32 = 4;
/// The most messages that are read before something is written.
const MESSAGES_AT_ONCE: usize = 256;

/// One connection. Cheap to clone.
#[derive(Clone)]
pub(super) struct Connection(Arc<Shared>);

struct Shared {
    outbox: Arc<Outbox>,
    /// The number of the last call.
    last: AtomicU64,
    calls: Mutex<Calls>,
    memory: Budget,
}

#[derive(Default)]
struct Calls {
    open: HashMap<u64, Replies>,
    /// No more calls are accepted.
    is_closed: bool,
}

/// Where the answers to a call go.
enum Replies {
    One(oneshot::Sender<Reply>),
    Many(mpsc::UnboundedSender<Reply>),
}

/// What becomes of a call.
#[derive(Debug)]
pub(super) enum Reply {
    /// The answer, or one of several, with its memory if it is long.
    Answer(Bytes, Option<Reservation>),
    /// Nothing was done, and this says why.
    Refused(Bytes),
    /// The other node has not received the call, or has not looked at it.
    NotSent,
    /// The other node may have executed the call.
    Lost,
}

/// Why a call was not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotBegun {
    /// The connection accepts no more calls.
    Closed,
    /// Too many calls are open, or too many bytes wait.
    Full,
}

/// An open call. If this is dropped before the last answer, the other node is told that nobody waits.
pub(super) struct OpenCall {
    connection: Connection,
    number: u64,
}

impl OpenCall {
    /// Says that the caller has taken an answer of this many bytes, so that the other node sends more.
    pub(super) fn take(&self, bytes: usize) {
        let body = Bytes::copy_from_slice(&(bytes as u64).to_le_bytes());
        self.connection.0.outbox.push(Kind::Taken, self.number, body, None);
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let Shared { outbox, .. } = &*self.connection.0;
        let is_open = self.connection.lock().open.remove(&self.number).is_some();
        if is_open && outbox.withdraw(self.number) {
            outbox.push(Kind::Cancel, self.number, Bytes::new(), None);
        }
    }
}

impl Connection {
    /// A connection, and the task that runs it. `memory` counts long answers.
    pub(super) fn new<S>(stream: S, memory: Budget) -> (Connection, Runner<S>)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let outbox: Arc<Outbox> = Arc::default();
        let link = Link::new(stream, outbox.clone());
        let shared = Shared { outbox, last: AtomicU64::new(0), calls: Mutex::default(), memory };
        let connection = Connection(Arc::new(shared));
        let mut pings = interval(PING_EVERY);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        pings.reset();
        let runner =
            Runner { connection: connection.clone(), link, arriving: HashMap::new(), pings, silent_pings: 0 };
        (connection, runner)
    }

    /// Begins a call that has one answer.
    pub(super) fn ask(
        &self,
        kind: Kind,
        body: Bytes,
    ) -> Result<(OpenCall, oneshot::Receiver<Reply>), NotBegun> {
        let (sender, reply) = oneshot::channel();
        Ok((self.begin(kind, body, Replies::One(sender))?, reply))
    }

    /// Begins a call that has any number of answers.
    pub(super) fn follow(
        &self,
        kind: Kind,
        body: Bytes,
    ) -> Result<(OpenCall, mpsc::UnboundedReceiver<Reply>), NotBegun> {
        // The other side sends no more than a window before the follower has taken it.
        let (sender, replies) = mpsc::unbounded_channel();
        Ok((self.begin(kind, body, Replies::Many(sender))?, replies))
    }

    fn begin(&self, kind: Kind, body: Bytes, replies: Replies) -> Result<OpenCall, NotBegun> {
        let Shared { outbox, last, .. } = &*self.0;
        if outbox.bytes() > MAX_WAITING {
            return Err(NotBegun::Full);
        }
        let number = {
            let mut calls = self.lock();
            if calls.is_closed {
                return Err(NotBegun::Closed);
            }
            if calls.open.len() >= MAX_CALLS {
                return Err(NotBegun::Full);
            }
            let number = last.fetch_add(1, Ordering::Relaxed) + 1;
            calls.open.insert(number, replies);
            number
        };
        outbox.push(kind, number, body, None);
        Ok(OpenCall { connection: self.clone(), number })
    }

    /// Whether the connection accepts no more calls.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Whether the connection accepts no more calls, and every call is answered.
    fn is_done(&self) -> bool {
        let calls = self.lock();
        calls.is_closed && calls.open.is_empty()
    }

    pub(super) fn is_same(&self, other: &Connection) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Accepts no more calls. Those that the other side has not looked at are not sent; it answers the others.
    fn go_away(&self, last_seen: u64) {
        let mut calls = self.lock();
        calls.is_closed = true;
        let unseen: Vec<u64> = calls.open.keys().copied().filter(|number| *number > last_seen).collect();
        let unseen: Vec<Replies> = unseen.iter().filter_map(|number| calls.open.remove(number)).collect();
        drop(calls);
        unseen.into_iter().for_each(|replies| replies.send(Reply::NotSent));
    }

    /// The connection has ended: the open calls have no answer.
    fn end(&self) {
        let Shared { outbox, .. } = &*self.0;
        let open = {
            let mut calls = self.lock();
            calls.is_closed = true;
            std::mem::take(&mut calls.open)
        };
        outbox.close();
        for (number, replies) in open {
            replies.send(if outbox.may_be_sent(number) { Reply::Lost } else { Reply::NotSent });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.0.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Replies {
    fn send(self, reply: Reply) {
        // The caller may be gone.
        match self {
            Replies::One(sender) => drop(sender.send(reply)),
            Replies::Many(sender) => drop(sender.send(reply)),
        }
    }
}

/// Runs a connection.
pub(super) struct Runner<S> {
    connection: Connection,
    link: Link<S>,
    /// The memory of answers of which only a part has arrived.
    arriving: HashMap<u64, Reservation>,
    pings: Interval,
    /// The pings since the other side has last sent something.
    silent_pings: u32,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Runner<S> {
    /// Returns when the connection has ended. Then each open call has got its reply.
    pub(super) async fn run(mut self) -> io::Result<()> {
        let ended = poll_fn(|context| self.poll(context)).await;
        self.connection.end();
        ended?;
        // The other side may be gone, which no longer matters.
        let _ = poll_fn(|context| self.link.poll_shutdown(context)).await;
        Ok(())
    }

    /// Returns when the connection is broken, or when the other node is stopping and has answered every call.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        for message in 0.. {
            if message == MESSAGES_AT_ONCE {
                context.waker().wake_by_ref();
                break;
            }
            match self.link.poll_next(context)? {
                Poll::Ready(incoming) => self.handle(incoming),
                Poll::Pending => break,
            }
        }
        while self.pings.poll_tick(context).is_ready() {
            if self.silent_pings >= MAX_SILENT_PINGS {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            // If the last one is not answered, it may not even be sent.
            if self.silent_pings == 0 {
                self.connection.0.outbox.push(Kind::Ping, 0, Bytes::new(), None);
            }
            self.silent_pings += 1;
        }
        let _unsent = self.link.poll_send(context)?;
        if self.connection.is_done() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn handle(&mut self, incoming: Incoming) {
        self.silent_pings = 0;
        let Message { kind, call, body } = match incoming {
            Incoming::Message(message) => message,
            Incoming::Unfinished { call, bytes, .. } => return self.handle_unfinished(call, bytes),
        };
        let memory = self.arriving.remove(&call);
        match kind {
            Kind::Answer | Kind::Part | Kind::Refused => {
                let mut calls = self.connection.lock();
                if kind == Kind::Part {
                    if let Some(Replies::Many(sender)) = calls.open.get(&call) {
                        // The caller may be gone.
                        let _ = sender.send(Reply::Answer(body, memory));
                    }
                    return;
                }
                let replies = calls.open.remove(&call);
                drop(calls);
                if kind == Kind::Refused {
                    // The other side skips the rest of a long request.
                    self.connection.0.outbox.withdraw(call);
                }
                // Nobody waits for the answer to a call that was cancelled.
                if let Some(replies) = replies {
                    replies.send(match kind {
                        Kind::Refused => Reply::Refused(body),
                        _ => Reply::Answer(body, memory),
                    });
                }
            }
            Kind::GoAway => self.connection.go_away(body.clone().try_get_u64_le().unwrap_or(0)),
            // Only the other direction uses the other kinds.
            _ => {}
        }
    }

    /// Counts a long answer. It is accepted even if there is no room, because the call may have changed something.
    fn handle_unfinished(&mut self, call: u64, bytes: usize) {
        if !self.connection.lock().open.contains_key(&call) {
            self.link.discard(call);
            self.arriving.remove(&call);
            return;
        }
        if bytes > MAX_ANSWER {
            self.link.discard(call);
            self.arriving.remove(&call);
            let replies = self.connection.lock().open.remove(&call);
            replies.into_iter().for_each(|replies| replies.send(Reply::Lost));
            return;
        }
        let memory = &self.connection.0.memory;
        self.arriving.insert(call, memory.reserve_anyway(MemoryKind::Answers, bytes));
    }
}

impl<S> Drop for Runner<S> {
    /// Also if the task is cancelled, no call waits for ever.
    fn drop(&mut self) {
        self.connection.end();
    }
}
