//! A client's TCP socket with a write timeout, and a handle that tells whether the client has hung up.
//!
//! The write timeout is the one rule for clients that do not read: if a client takes no byte for two minutes although there
//! is something to send, its connection fails; while memory is short, after five seconds. Every byte that it takes restarts the
//! timeout, so a slow reader is never cut off. The rule applies to all protocols, because all of them write to this socket.

use super::stalls::{Patience, StallTimer};
use limina_access::{Exceeded, Permit, Resource, Token};
use limina_node::memory::Reservation;
use rustix::event::{PollFd, PollFlags, poll};
use socket2::SockRef;
use std::{
    io::{self, IoSlice},
    net::IpAddr,
    ops::Deref,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::OwnedSemaphorePermit,
    time::Instant,
};

/// The most unsent bytes in the kernel. The socket accepts more after half of them are sent, so a client must read at least that
/// much within the write timeout.
const MAX_UNSENT: u32 = 128 << 10;

/// The socket that a connection reads from and writes to.
pub(super) struct Socket {
    /// Reads through tokio's own `poll_read`, for two reasons. It does not clear the buffer before. And if a read does not fill
    /// the buffer, it knows that nothing is left, so the next read does not ask the kernel in vain.
    reader: OwnedReadHalf,
    stream: Arc<CountedStream>,
    activity: Arc<WriteActivity>,
    patience: Patience,
    timer: StallTimer,
    /// Since when there is something to send, and the kernel accepts no more bytes.
    stalled_since: Option<Instant>,
}

/// A stream with its permit, which limits the number of connections, and its memory. Both are returned when the socket is
/// closed.
struct CountedStream {
    stream: OwnedWriteHalf,
    address: Option<IpAddr>,
    _permit: OwnedSemaphorePermit,
    _memory: Reservation,
    /// The permit of the token of the last request.
    of_token: Mutex<Option<Permit>>,
}

impl Deref for CountedStream {
    type Target = TcpStream;

    fn deref(&self) -> &TcpStream {
        self.stream.as_ref()
    }
}

/// Tells whether a socket was written to.
#[derive(Default)]
pub(super) struct WriteActivity {
    writes: AtomicU64,
    is_blocked: AtomicBool,
}

impl WriteActivity {
    /// Something was written.
    pub(super) fn count_write(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether something was written since the last call, or waits to be written. `writes` is the state of the last call.
    pub(super) fn is_active_since(&self, writes: &mut u64) -> bool {
        let before = std::mem::replace(writes, self.writes.load(Ordering::Relaxed));
        *writes != before || self.is_blocked.load(Ordering::Relaxed)
    }
}

/// A handle to a client's socket that tells whether the client has hung up.
#[derive(Clone)]
pub(crate) struct ClientConnection(Arc<CountedStream>);

impl Socket {
    pub(super) fn new(
        stream: TcpStream,
        permit: OwnedSemaphorePermit,
        memory: Reservation,
        patience: Patience,
    ) -> (Socket, ClientConnection) {
        // Without this, small answers wait for the client's acknowledgement. A failure only makes them slower.
        let _slower = stream.set_nodelay(true);
        // With few unsent bytes in the kernel, a slow reader makes the socket writable often, not once in megabytes. If this
        // fails, such a reader may run into the write timeout.
        let _less_tolerant = SockRef::from(&stream).set_tcp_notsent_lowat(MAX_UNSENT);
        let address = stream.peer_addr().ok().map(|address| address.ip().to_canonical());
        let of_token = Mutex::new(None);
        let (reader, stream) = stream.into_split();
        let stream = Arc::new(CountedStream { stream, address, _permit: permit, _memory: memory, of_token });
        let client = ClientConnection(stream.clone());
        let (activity, timer) = (Arc::default(), StallTimer::default());
        (Socket { reader, stream, activity, patience, timer, stalled_since: None }, client)
    }

    pub(super) fn activity(&self) -> &Arc<WriteActivity> {
        &self.activity
    }

    /// The kernel has accepted bytes.
    fn has_written(&mut self) {
        self.activity.count_write();
        if self.stalled_since.take().is_some() {
            self.activity.is_blocked.store(false, Ordering::Relaxed);
        }
    }

    /// The kernel accepts no bytes. Returns an error if that lasts for too long.
    fn poll_stalled(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        let since = *self.stalled_since.get_or_insert_with(|| {
            self.activity.is_blocked.store(true, Ordering::Relaxed);
            Instant::now()
        });
        ready!(self.timer.poll(since, &self.patience, context));
        let detail = "the client read nothing within the write timeout";
        Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, detail))
    }
}

impl ClientConnection {
    /// The address from which the client's connection came.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.0.address
    }

    /// Counts the connection as one of the token, until it is closed or carries a request of another token. Fails if the token
    /// has its maximum.
    pub(crate) fn count_for(&self, token: &Token) -> Result<(), Exceeded> {
        let mut held = self.0.of_token.lock().unwrap_or_else(PoisonError::into_inner);
        if !held.as_ref().is_some_and(|permit| token.has(permit)) {
            *held = Some(token.take(Resource::Connections, 1)?);
        }
        Ok(())
    }

    /// Returns when the client has hung up. It works also if the client sent more bytes before, which the connection has not read
    /// yet and behind which it would not see the end.
    pub(super) async fn hung_up(&self) {
        // The socket has no urgent data, so this interest waits only for the end of what the client sends.
        if self.0.ready(Interest::PRIORITY).await.is_err() {
            // The runtime is shutting down.
            std::future::pending().await
        }
    }

    /// Whether the client has hung up, asked from the kernel: the runtime may not have noticed yet.
    pub(super) fn has_hung_up(&self) -> bool {
        let stream: &TcpStream = &self.0;
        let mut polled = [PollFd::new(stream, PollFlags::RDHUP)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        // `poll` always reports errors and hang-ups, besides the requested event.
        poll(&mut polled, Some(&now)).is_ok() && !polled[0].revents().is_empty()
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().reader).poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        while let Poll::Ready(ready) = this.stream.poll_write_ready(context) {
            ready?;
            match this.stream.try_write_vectored(slices) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok(count) => {
                    this.has_written();
                    return Poll::Ready(Ok(count));
                }
            }
        }
        this.poll_stalled(context).map(Err)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream: &TcpStream = &self.stream;
        Poll::Ready(Ok(rustix::net::shutdown(stream, rustix::net::Shutdown::Write)?))
    }
}
