//! What all requests of one connection share, and what happens on the connection.

use super::{
    memory::Untaken,
    router::Router,
    socket::{ClientConnection, WriteActivity},
};
use hyper::Version;
use limina_node::Budget;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most watches of the server's health on one connection. A client needs one.
const MAX_WATCHES: usize = 4;

/// What all requests of one connection share.
pub(super) struct Connection {
    pub(super) router: Arc<Router>,
    pub(super) client: ClientConnection,
    pub(super) memory: Budget,
    pub(super) activity: Activity,
    /// Shared by all connections: whether an HTTP/1 connection is closed after its next answer.
    pub(super) is_draining: Arc<AtomicBool>,
}

impl Connection {
    pub(super) fn new(
        router: Arc<Router>,
        client: ClientConnection,
        memory: Budget,
        writes: Arc<WriteActivity>,
        is_draining: Arc<AtomicBool>,
    ) -> Connection {
        Connection { router, client, memory, activity: Activity::new(writes), is_draining }
    }
}

/// What happens on one connection.
pub(super) struct Activity {
    /// The number of requests so far.
    begun: AtomicU64,
    /// The number of requests without an answer.
    open: AtomicU64,
    /// The body of an answer is still written after its request is no longer open.
    writes: Arc<WriteActivity>,
    /// The answers that an HTTP/2 client has not taken.
    untaken: Arc<Untaken>,
    is_http2: AtomicBool,
    /// The connection is never closed as idle: it sends server-sent events, or it is HTTP/2, which has keep-alive pings, and its client
    /// was let in. A client without a token must not keep connections for ever.
    may_be_idle: AtomicBool,
    /// The watches of the server's health that the connection may open. They need no token.
    watches: Arc<Semaphore>,
}

/// The state of a connection at the last check for activity.
#[derive(Default)]
pub(super) struct LastCheck {
    begun: u64,
    writes: u64,
    pieces: u64,
    taken: u64,
}

impl Activity {
    fn new(writes: Arc<WriteActivity>) -> Activity {
        let untaken = Arc::default();
        let watches = Arc::new(Semaphore::new(MAX_WATCHES));
        let (is_http2, may_be_idle) = (false.into(), false.into());
        Activity { begun: 0.into(), open: 0.into(), writes, untaken, is_http2, may_be_idle, watches }
    }

    /// A request has begun.
    pub(super) fn begin(&self, version: Version) {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        self.is_http2.store(version == Version::HTTP_2, Ordering::Relaxed);
    }

    /// A request is no longer open.
    pub(super) fn end(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// From now on the connection is never closed as idle.
    pub(super) fn let_be_idle(&self) {
        self.may_be_idle.store(true, Ordering::Relaxed);
    }

    /// A permit for one more watch of the server's health. None if [`MAX_WATCHES`] are open.
    pub(super) fn take_watch(&self) -> Option<OwnedSemaphorePermit> {
        self.watches.clone().try_acquire_owned().ok()
    }

    pub(super) fn untaken(&self) -> &Arc<Untaken> {
        &self.untaken
    }

    /// Whether no request is open, none has begun and no part of an answer was taken since the last check.
    pub(super) fn is_idle_since(&self, last: &mut LastCheck) -> bool {
        let before = std::mem::replace(&mut last.begun, self.begun.load(Ordering::Relaxed));
        let is_writing = match self.is_http2.load(Ordering::Relaxed) {
            // HTTP/2 also writes pings and their answers.
            true => self.untaken.is_taken_since(&mut last.pieces),
            false => self.writes.is_active_since(&mut last.writes),
        };
        last.begun == before
            && !is_writing
            && self.open.load(Ordering::Relaxed) == 0
            && !self.may_be_idle.load(Ordering::Relaxed)
    }

    /// Whether there are answers, and the client has taken none of them since the last check.
    pub(super) fn is_stalled_since(&self, last: &mut LastCheck) -> bool {
        self.untaken.is_stalled_since(&mut last.taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_http2_connection_is_kept_while_idle_only_for_a_client_that_was_let_in() {
        let writes = Arc::<WriteActivity>::default();
        let activity = Activity::new(writes.clone());
        let mut last = LastCheck::default();
        activity.begin(Version::HTTP_2);
        assert!(!activity.is_idle_since(&mut last), "a request has begun");
        assert!(!activity.is_idle_since(&mut last), "it has no answer");
        activity.end();
        assert!(activity.is_idle_since(&mut last));
        writes.count_write();
        assert!(activity.is_idle_since(&mut last), "it was a ping");
        activity.let_be_idle();
        assert!(!activity.is_idle_since(&mut last));
    }
}
