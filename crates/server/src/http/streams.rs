//! The tasks of HTTP/2 streams, and a write timeout for each.
//!
//! A stream begins in the task of its connection, and gets a task of its own only if it has to wait ([`StreamStarter`]). So
//! connections take turns: one with hundreds of new streams does not make all others wait for all of them.
//!
//! A client may read one stream of a connection and ignore another. Then the socket accepts bytes, and only the flow-control
//! window of the ignored stream is closed. The rule is the same as for a socket: if a client takes no byte of a stream for two
//! minutes although there is something to send, the stream is reset. Its connection and its other streams go on.

use super::stalls::{Patience, StallTimer};
use hyper::rt::Executor;
use pin_project_lite::pin_project;
use std::{
    cell::RefCell,
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker, ready},
    time::Duration,
};
use tokio::time::Instant;

/// How long a connection begins new streams before other connections have their turn.
const MAX_TURN: Duration = Duration::from_micros(500);

tokio::task_local! {
    /// The stream that this task serves.
    static STREAM: WaitsSince;
    /// The streams of this task's connection that are not begun.
    static NEW_STREAMS: RefCell<VecDeque<NewStream>>;
}

type NewStream = Pin<Box<dyn Future<Output = ()> + Send>>;

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

/// Gives the new streams of an HTTP/2 connection to its [`StreamStarter`].
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
        let stream = Box::pin(StreamTask { future, waits_since, patience, timer: StallTimer::default() });
        NEW_STREAMS.with(|streams| streams.borrow_mut().push_back(stream));
    }
}

pin_project! {
    /// Polls an HTTP connection, and begins its new streams, some in each turn.
    pub(super) struct StreamStarter<F> {
        #[pin]
        serving: F,
        new_streams: VecDeque<NewStream>,
    }
}

impl<F> StreamStarter<F> {
    pub(super) fn new(serving: F) -> StreamStarter<F> {
        StreamStarter { serving, new_streams: VecDeque::new() }
    }
}

impl<F: Future> Future for StreamStarter<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let streams = RefCell::new(std::mem::take(this.new_streams));
        let (polled, mut streams) = NEW_STREAMS.sync_scope(streams, || {
            let polled = this.serving.poll(context);
            (polled, NEW_STREAMS.with(RefCell::take))
        });
        // By now the connection has read what has arrived, so a small body is complete.
        let until = Instant::now() + MAX_TURN;
        while let Some(mut stream) = streams.pop_front() {
            if polled.is_ready() || !is_done_at_once(&mut stream) {
                tokio::spawn(stream);
            }
            if !streams.is_empty() && polled.is_pending() && Instant::now() >= until {
                context.waker().wake_by_ref();
                break;
            }
        }
        *this.new_streams = streams;
        polled
    }
}

/// Polls a stream for the first time. If it has to wait, its task polls it again, and is woken from then on. A panic ends the
/// stream, as it would end its task.
fn is_done_at_once(stream: &mut NewStream) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    let polled = catch_unwind(AssertUnwindSafe(|| stream.as_mut().poll(&mut context)));
    polled.is_err() || polled.is_ok_and(|polled| polled.is_ready())
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

#[cfg(test)]
mod tests {
    use super::*;
    use limina_node::{Budget, Metrics};
    use std::future::poll_fn;
    use tokio::sync::{mpsc, oneshot};

    fn executor() -> StreamExecutor {
        let memory = Budget::new(1 << 20, &Metrics::new());
        StreamExecutor { patience: Patience { timeout: Duration::from_secs(60), memory } }
    }

    /// A connection with these streams, which goes on for ever.
    fn connection(streams: Vec<NewStream>) -> StreamStarter<impl Future<Output = ()>> {
        let (executor, mut streams) = (executor(), streams.into_iter());
        StreamStarter::new(poll_fn(move |_| {
            streams.by_ref().for_each(|stream| executor.execute(stream));
            Poll::Pending
        }))
    }

    #[tokio::test]
    async fn a_stream_that_has_to_wait_gets_a_task_of_its_own() {
        let (ended, mut task_of) = mpsc::unbounded_channel();
        let (wake, waits) = oneshot::channel::<()>();
        let at_once = ended.clone();
        let streams: Vec<NewStream> = vec![
            Box::pin(async { panic!("a stream that panics ends alone") }),
            Box::pin(async move { at_once.send(tokio::task::try_id()).unwrap() }),
            Box::pin(async move {
                waits.await.unwrap();
                ended.send(tokio::task::try_id()).unwrap();
            }),
        ];
        let running = tokio::spawn(connection(streams));
        assert_eq!(task_of.recv().await, Some(Some(running.id())), "it was done in the connection's task");
        wake.send(()).unwrap();
        let later = task_of.recv().await.flatten().expect("it ends in a task");
        assert_ne!(later, running.id());
        running.abort();
    }

    #[tokio::test]
    async fn new_streams_are_begun_in_turns() {
        let begun = Arc::new(Mutex::new(0));
        let stream = || -> NewStream {
            let begun = begun.clone();
            Box::pin(async move {
                let begin = Instant::now();
                while begin.elapsed() <= MAX_TURN {}
                *begun.lock().unwrap() += 1;
            })
        };
        let mut connection = Box::pin(connection((0..3).map(|_| stream()).collect()));
        for turn in 1..=3 {
            assert!(connection.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            assert_eq!(*begun.lock().unwrap(), turn);
        }
    }
}
