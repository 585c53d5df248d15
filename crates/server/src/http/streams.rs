//! A write timeout for each HTTP/2 stream.
//!
//! A client may read one stream of a connection and ignore another. Then the socket accepts bytes, and only the flow-control
//! window of the ignored stream is closed. The rule is the same as for a socket: if a client takes no byte of a stream for two
//! minutes although there is something to send, the stream is reset. Its connection and its other streams go on.
//!
//! An answer that fits into one frame is not watched: hyper has taken it over already, and it costs little memory.

use axum::body::{Body, Bytes, HttpBody};
use hyper::{
    body::{Frame, SizeHint},
    rt::Executor,
};
use pin_project_lite::pin_project;
use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::time::{Instant, Sleep, sleep_until};

/// The size of the pieces in which a body is handed to hyper: one frame. hyper requests the next piece when the client's window
/// has room for it, so each request shows that the client reads.
const PIECE: usize = 16 << 10;

tokio::task_local! {
    /// The stream that this task serves.
    static STREAM: WaitsSince;
}

/// Since when a stream has waited for its client to make room for a piece; `None` if it does not wait.
#[derive(Clone, Default)]
struct WaitsSince(Arc<Mutex<Option<Instant>>>);

impl WaitsSince {
    fn set(&self, since: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    fn get(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs each stream of HTTP/2 connections in a task of its own.
#[derive(Clone)]
pub(super) struct StreamExecutor {
    /// How long a client may take no byte of a stream.
    pub(super) write_timeout: Duration,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for StreamExecutor {
    fn execute(&self, future: F) {
        let waits_since = WaitsSince::default();
        let future = STREAM.scope(waits_since.clone(), future);
        tokio::spawn(StreamTask { future, waits_since, write_timeout: self.write_timeout, timer: None });
    }
}

pin_project! {
    /// Runs a stream until it ends or the write timeout expires. Dropping the future resets the stream.
    struct StreamTask<F> {
        #[pin]
        future: F,
        waits_since: WaitsSince,
        write_timeout: Duration,
        // The start of the wait for which the timer is set, and the timer.
        timer: Option<(Instant, Pin<Box<Sleep>>)>,
    }
}

impl<F: Future<Output = ()>> Future for StreamTask<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if this.future.poll(context).is_ready() {
            return Poll::Ready(());
        }
        let Some(since) = this.waits_since.get() else { return Poll::Pending };
        let until = since + *this.write_timeout;
        let (armed, timer) = this.timer.get_or_insert_with(|| (since, Box::pin(sleep_until(until))));
        if *armed != since {
            *armed = since;
            timer.as_mut().reset(until);
        }
        ready!(timer.as_mut().poll(context));
        tracing::debug!("an HTTP/2 stream was reset: the client read nothing within the write timeout");
        Poll::Ready(())
    }
}

/// Splits the body of an answer on an HTTP/2 stream into pieces, unless it fits into one.
pub(super) fn in_pieces(body: Body) -> Body {
    let is_one_piece = body.size_hint().upper().is_some_and(|bytes| bytes <= PIECE as u64);
    match STREAM.try_with(WaitsSince::clone) {
        Ok(waits_since) if !is_one_piece => Body::new(Pieces { body, rest: Bytes::new(), waits_since }),
        _ => body,
    }
}

pin_project! {
    struct Pieces {
        #[pin]
        body: Body,
        rest: Bytes,
        waits_since: WaitsSince,
    }
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.project();
        this.waits_since.set(None);
        if this.rest.is_empty() {
            match ready!(this.body.poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => *this.rest = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                other => return Poll::Ready(other),
            }
        }
        let piece = this.rest.split_to(PIECE.min(this.rest.len()));
        this.waits_since.set(Some(Instant::now()));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    /// Always `false`, so that hyper asks for the end: that shows that the client has taken the last piece.
    fn is_end_stream(&self) -> bool {
        false
    }

    fn size_hint(&self) -> SizeHint {
        let (mut hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}
