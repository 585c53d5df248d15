//! Requests with large bodies leave the runtime's workers. To parse and convert megabytes and to write their answer takes tens
//! of milliseconds, in which a worker would serve no other connection.

use hyper::{
    Request,
    body::{Body, Incoming},
    header::CONTENT_TYPE,
};
use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    thread::available_parallelism,
};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::Semaphore,
    task::block_in_place,
};
use tokio_util::sync::PollSemaphore;

/// A request with a longer body is large. A body of this length is parsed in about half a millisecond.
const LARGE_BYTES: u64 = 64 << 10;

/// The large requests of a server. As many as there are processors are worked on at a time: they compete with the workers for
/// the processors, and so leave them at least half of the time. The others wait, first come, first served.
#[derive(Clone)]
pub(super) struct LargeRequests(Arc<Semaphore>);

impl LargeRequests {
    pub(super) fn new() -> LargeRequests {
        LargeRequests(Arc::new(Semaphore::new(available_parallelism().map_or(1, usize::from))))
    }

    /// For a request that is large; None for others.
    pub(super) fn admit(&self, request: &Request<Incoming>) -> Option<LargeRequest> {
        let length = request.body().size_hint();
        let is_large = match length.upper() {
            Some(bytes) => bytes > LARGE_BYTES,
            // Calls of gRPC never state their length, and are small.
            None => !request
                .headers()
                .get(CONTENT_TYPE)
                .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc")),
        };
        // A runtime of one thread has no other worker that could go on meanwhile.
        let has_workers = || Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
        (is_large && has_workers()).then(|| LargeRequest(PollSemaphore::new(self.0.clone())))
    }
}

/// Lets a large request be worked on, one poll at a time.
pub(super) struct LargeRequest(PollSemaphore);

impl LargeRequest {
    /// Polls the future of the answer on this thread, after the thread's other tasks were handed to another one.
    pub(super) fn poll<F: Future + ?Sized>(
        &mut self,
        answer: Pin<&mut F>,
        context: &mut Context<'_>,
    ) -> Poll<F::Output> {
        let _permit = ready!(self.0.poll_acquire(context));
        block_in_place(|| answer.poll(context))
    }
}
