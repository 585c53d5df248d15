//! A client's socket, which others than the connection can look at.

use rustix::event::{PollFd, PollFlags, poll};
use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
};

/// The socket as the connection uses it.
pub(super) struct Socket(Arc<TcpStream>);

/// The client at the other end, of whom one can ask whether it is still there.
#[derive(Clone)]
pub(super) struct Peer(Arc<TcpStream>);

impl Socket {
    pub(super) fn new(stream: TcpStream) -> (Socket, Peer) {
        // Without it small answers wait for the client's acknowledgement; a failure costs only time.
        let _ = stream.set_nodelay(true);
        let stream = Arc::new(stream);
        (Socket(stream.clone()), Peer(stream))
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
        let mut polled = [PollFd::new(&*self.0, PollFlags::RDHUP)];
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
            ready!(self.0.poll_read_ready(context))?;
            match self.0.try_read(buffer.initialize_unfilled()) {
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
        loop {
            ready!(self.0.poll_write_ready(context))?;
            match self.0.try_write_vectored(slices) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(rustix::net::shutdown(&*self.0, rustix::net::Shutdown::Write)?))
    }
}
