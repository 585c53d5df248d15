//! HTTP/2 streams whose client takes nothing.
//!
//! A client may read one stream of a connection and leave another alone: then the socket has room, and only the stream's
//! window is closed. The rule is the same as for a socket: a stream of which the client takes no byte for two minutes,
//! while there is something to send, is reset. Its connection and its other streams go on.
//!
//! An answer that fits into one frame is left to the library, which has it already.

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

/// A body is handed over in pieces of this many bytes, the size of a frame. The next piece is asked for when the client
/// has made room for all before it, so each piece is a sign that it reads.
const PIECE: usize = 16 << 10;

tokio::task_local! {
    /// The stream whose task this is.
    static STREAM: Stream;
}

/// Since when a stream has something to send for which its client makes no room.
#[derive(Clone, Default)]
struct Stream(Arc<Mutex<Option<Instant>>>);

impl Stream {
    fn set(&self, waits_since: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = waits_since;
    }

    fn waits_since(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs the streams of HTTP/2 connections, each in a task of its own.
#[derive(Clone)]
pub(super) struct Streams {
    /// How long a client may take nothing.
    pub(super) patience: Duration,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, future: F) {
        let stream = Stream::default();
        let future = STREAM.scope(stream.clone(), future);
        tokio::spawn(Running { future, stream, patience: self.patience, timer: None });
    }
}

pin_project! {
    /// A stream, until it ends or its client takes nothing for too long. Dropping it resets it.
    struct Running<F> {
        #[pin]
        future: F,
        stream: Stream,
        patience: Duration,
        timer: Option<(Instant, Pin<Box<Sleep>>)>,
    }
}

impl<F: Future<Output = ()>> Future for Running<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if this.future.poll(context).is_ready() {
            return Poll::Ready(());
        }
        let Some(since) = this.stream.waits_since() else { return Poll::Pending };
        let until = since + *this.patience;
        let (armed, timer) = this.timer.get_or_insert_with(|| (since, Box::pin(sleep_until(until))));
        if *armed != since {
            *armed = since;
            timer.as_mut().reset(until);
        }
        ready!(timer.as_mut().poll(context));
        tracing::debug!("a stream was reset: its client has taken nothing for too long");
        Poll::Ready(())
    }
}

/// The body of an answer. On a stream of HTTP/2 it is handed over in pieces, unless it is one.
pub(super) fn watched(body: Body) -> Body {
    let is_one_piece = body.size_hint().upper().is_some_and(|bytes| bytes <= PIECE as u64);
    match STREAM.try_with(Stream::clone) {
        Ok(stream) if !is_one_piece => Body::new(Pieces { body, rest: Bytes::new(), stream }),
        _ => body,
    }
}

pin_project! {
    struct Pieces {
        #[pin]
        body: Body,
        rest: Bytes,
        stream: Stream,
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
        this.stream.set(None);
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
        this.stream.set(Some(Instant::now()));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    /// Never said beforehand: that the end is asked for shows that the last piece was taken.
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
