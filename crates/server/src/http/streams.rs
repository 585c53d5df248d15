//! A write timeout for each HTTP/2 stream.
//!
//! A client may read one stream of a connection and ignore another. Then the socket accepts bytes, and only the flow-control
//! window of the ignored stream is closed. The rule is the same as for a socket: if a client takes no byte of a stream for two
//! minutes although there is something to send, the stream is reset. Its connection and its other streams go on.

use super::stalls::{Patience, StallTimer};
use hyper::rt::Executor;
use pin_project_lite::pin_project;
use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};
use tokio::time::Instant;

tokio::task_local! {
    /// The stream that this task serves.
    static STREAM: WaitsSince;
}

/// Since when a stream has waited for its client to make room for a piece; `None` if it does not wait.
#[derive(Clone, Default)]
pub(super) struct WaitsSince(Arc<Mutex<Option<Instant>>>);

impl WaitsSince {
    /// The stream of the present task. None on an HTTP/1 connection.
    pub(super) fn current() -> Option<WaitsSince> {
        STREAM.try_with(WaitsSince::clone).ok()
    }

    /// A piece is ready for the client.
    pub(super) fn begin(&self) {
        self.set(Some(Instant::now()));
    }

    /// The client has made room.
    pub(super) fn end(&self) {
        self.set(None);
    }

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
    pub(super) patience: Patience,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for StreamExecutor {
    fn execute(&self, future: F) {
        let waits_since = WaitsSince::default();
        let future = STREAM.scope(waits_since.clone(), future);
        let patience = self.patience.clone();
        tokio::spawn(StreamTask { future, waits_since, patience, timer: StallTimer::default() });
    }
}

pin_project! {
    /// Runs a stream until it ends or its client has taken nothing for too long. Dropping the future resets the stream.
    struct StreamTask<F> {
        #[pin]
        future: F,
        waits_since: WaitsSince,
        patience: Patience,
        timer: StallTimer,
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
        ready!(this.timer.poll(since, this.patience, context));
        tracing::debug!("an HTTP/2 stream was reset: the client read nothing for too long");
        Poll::Ready(())
    }
}
