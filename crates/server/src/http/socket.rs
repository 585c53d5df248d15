//! A client's socket, which others than the connection can look at.
//!
//! Here is the one rule about clients that do not read: if a client takes no byte for two minutes while there is
//! something to send, its connection fails. Every byte that it takes starts the two minutes anew, so a slow reader is
//! never cut off. The rule holds for all protocols, since all of them write to this socket.

use rustix::event::{PollFd, PollFlags, poll};
use socket2::SockRef;
use std::{
    io::{self, IoSlice},
    ops::Deref,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
    sync::OwnedSemaphorePermit,
    time::{Instant, Sleep, sleep_until},
};

/// How many bytes wait in the kernel to be sent, at most. Half of them must be sent before the socket takes more, so a
/// client of the slowest kind takes so much in two minutes.
const MAX_UNSENT: u32 = 128 << 10;

/// The socket as the connection uses it.
pub(super) struct Socket {
    stream: Arc<Stream>,
    sending: Arc<Sending>,
    /// How long the client may take nothing.
    patience: Duration,
    /// Runs while there is something to send and no room for it.
    stalled: Option<Pin<Box<Sleep>>>,
    is_stalled: bool,
}

/// A stream, and its place among the connections. The place is free again when the descriptor is closed.
struct Stream {
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
}

impl Deref for Stream {
    type Target = TcpStream;

    fn deref(&self) -> &TcpStream {
        &self.stream
    }
}

/// What was written to a socket, for those who only need to know that something was.
#[derive(Default)]
pub(super) struct Sending {
    writes: AtomicU64,
    is_blocked: AtomicBool,
}

impl Sending {
    /// Whether something was written since this was last asked, or is still to be.
    pub(super) fn is_active_since(&self, writes: &mut u64) -> bool {
        let before = std::mem::replace(writes, self.writes.load(Ordering::Relaxed));
        *writes != before || self.is_blocked.load(Ordering::Relaxed)
    }
}

/// The client at the other end, of whom one can ask whether it is still there.
#[derive(Clone)]
pub(super) struct Peer(Arc<Stream>);

impl Socket {
    pub(super) fn new(stream: TcpStream, place: OwnedSemaphorePermit, patience: Duration) -> (Socket, Peer) {
        // Without it small answers wait for the client's acknowledgement; a failure costs only time.
        let _ = stream.set_nodelay(true);
        // Of what is not sent yet, the kernel keeps little: so that a slow reader shows in the socket often, and not once
        // in megabytes. A failure costs such a reader its patience.
        let _ = SockRef::from(&stream).set_tcp_notsent_lowat(MAX_UNSENT);
        let stream = Arc::new(Stream { stream, _place: place });
        let peer = Peer(stream.clone());
        (Socket { stream, sending: Arc::default(), patience, stalled: None, is_stalled: false }, peer)
    }

    pub(super) fn sending(&self) -> &Arc<Sending> {
        &self.sending
    }

    /// The client took something, or the socket did on its behalf.
    fn has_sent(&mut self) {
        self.sending.writes.fetch_add(1, Ordering::Relaxed);
        if std::mem::take(&mut self.is_stalled) {
            self.sending.is_blocked.store(false, Ordering::Relaxed);
        }
    }

    /// There is no room. An error if there was none for too long.
    fn poll_stalled(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        let until = Instant::now() + self.patience;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep_until(until)));
        if !self.is_stalled {
            self.is_stalled = true;
            self.sending.is_blocked.store(true, Ordering::Relaxed);
            stalled.as_mut().reset(until);
        }
        ready!(stalled.as_mut().poll(context));
        let detail = "the client has taken nothing for too long";
        Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, detail))
    }
}

impl Peer {
    /// Returns when the client has hung up, also if it sent more bytes before that nobody has read yet: a connection that
    /// has such bytes does not look for the end behind them.
    pub(super) async fn hung_up(&self) {
        // Nobody asks the kernel for urgent data, so this waits for the end of what the client sends alone.
        if self.0.ready(Interest::PRIORITY).await.is_err() {
            // The runtime ends.
            std::future::pending().await
        }
    }

    /// Whether it has hung up by now, also if the connection has not noticed yet.
    pub(super) fn is_gone(&self) -> bool {
        let mut polled = [PollFd::new(&self.0.stream, PollFlags::RDHUP)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        // Errors and the end of both ways are always told.
        poll(&mut polled, Some(&now)).is_ok() && !polled[0].revents().is_empty()
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(context))?;
            match self.stream.try_read(buffer.initialize_unfilled()) {
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
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
                    this.has_sent();
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
        Poll::Ready(Ok(rustix::net::shutdown(&self.stream.stream, rustix::net::Shutdown::Write)?))
    }
}
