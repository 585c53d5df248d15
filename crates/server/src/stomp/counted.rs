//! The bytes of a WebSocket connection, with the memory of what the client has sent and the server still holds.

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use limina_node::{
    Budget,
    memory::{Kind, MemoryFull, Priority, Reservation},
};
use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What the reservation of the connection itself covers. Most clients send less.
const COVERED: usize = 8 << 10;

/// A connection that counts what the client sends. Without memory for it, reading fails.
pub(super) struct CountedIo {
    io: TokioIo<Upgraded>,
    memory: Reservation,
    /// The bytes of a message that is not complete.
    unfinished: usize,
    /// What the STOMP session holds.
    session: usize,
}

impl CountedIo {
    pub(super) fn new(io: TokioIo<Upgraded>, budget: &Budget) -> CountedIo {
        CountedIo { io, memory: budget.reserve_anyway(Kind::Bodies, 0), unfinished: 0, session: 0 }
    }

    /// A message is complete.
    pub(super) fn end_message(&mut self) {
        self.unfinished = 0;
        self.memory.shrink_to(self.session.saturating_sub(COVERED));
    }

    /// A ping or pong with this many bytes was received. A message around it is not complete yet.
    pub(super) fn end_control_frame(&mut self, bytes: usize) {
        // A client's frame begins with two bytes, and a mask of four.
        self.unfinished = self.unfinished.saturating_sub(bytes + 6);
    }

    /// The session holds this many bytes: its subscriptions, and a frame that is not complete.
    pub(super) fn hold_session(&mut self, bytes: usize) -> Result<(), MemoryFull> {
        self.session = bytes;
        self.reserve()
    }

    fn reserve(&mut self) -> Result<(), MemoryFull> {
        let needed = (self.unfinished + self.session).saturating_sub(COVERED);
        self.memory.shrink_to(needed);
        self.memory.grow_to(needed, Priority::Buffer)
    }
}

impl AsyncRead for CountedIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(context, buffer))?;
        self.unfinished += buffer.filled().len() - before;
        Poll::Ready(self.reserve().map_err(|full| io::Error::new(io::ErrorKind::OutOfMemory, full)))
    }
}

impl AsyncWrite for CountedIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
