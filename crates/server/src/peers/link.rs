//! The bytes of one connection, on either side: reads messages, and writes what is in the outbox.

use super::{
    frames::{Decoder, Incoming},
    gathering::Gathering,
    outbox::{Outbox, Write},
};
use bytes::Buf;
use std::{
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

/// The size of a buffer for reading. It is used until less than [`MIN_READ`] bytes of it are left.
const READ: usize = 64 << 10;
const MIN_READ: usize = 8 << 10;

pub(super) struct Link<S> {
    stream: S,
    decoder: Decoder,
    outbox: Arc<Outbox>,
    write: Write,
    gathering: Gathering,
    is_flushed: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Link<S> {
    pub(super) fn new(stream: S, outbox: Arc<Outbox>) -> Link<S> {
        Link {
            stream,
            decoder: Decoder::default(),
            outbox,
            write: Write::default(),
            gathering: Gathering::default(),
            is_flushed: true,
        }
    }

    /// The next message, or part of one. The end of the connection is an error.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Incoming>> {
        loop {
            match self.decoder.next() {
                Ok(Some(incoming)) => return Poll::Ready(Ok(incoming)),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error))),
            }
            let input = &mut self.decoder.input;
            if input.capacity() - input.len() < MIN_READ {
                input.reserve(READ);
            }
            if ready!(pin!(self.stream.read_buf(input)).poll(context))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Drops what has arrived of a message.
    pub(super) fn discard(&mut self, call: u64) {
        self.decoder.discard(call);
    }

    /// Writes what waits. Returns when all of it is written; the task is woken when there is more.
    pub(super) fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.outbox.register(context.waker());
        loop {
            while self.write.bytes.has_remaining() {
                let written = ready!(Pin::new(&mut self.stream).poll_write(context, &self.write.bytes))?;
                if written == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.write.bytes.advance(written);
                self.is_flushed = false;
            }
            self.write.finish();
            if self.outbox.bytes() > 0 {
                ready!(self.gathering.poll(context));
                self.outbox.take(&mut self.write);
                continue;
            }
            if !self.is_flushed {
                ready!(Pin::new(&mut self.stream).poll_flush(context))?;
                self.is_flushed = true;
            }
            return Poll::Ready(Ok(()));
        }
    }

    /// Closes the connection in order: the other side sees that nothing was cut off.
    pub(super) fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
