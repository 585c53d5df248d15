//! TLS handshakes, bounded in time and number, so that clients which begin one and stall take nothing from others.
//!
//! A handshake that is still running after ten seconds fails. If too many run, the oldest one fails to make room for the new
//! one: an honest handshake takes some round trips, so the oldest ones are those of clients that stall. The memory of a
//! handshake is reserved with its connection.

use super::socket::Socket;
use rustls::ServerConfig;
use std::{
    collections::BTreeMap,
    convert::Infallible,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{oneshot, watch},
    time::sleep,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// The longest time from the accepted connection to the end of its handshake.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The most handshakes at once, however many connections there may be.
const MOST: usize = 512;
/// The most bytes that a connection keeps encrypted while its socket takes no more: two TLS records.
const MAX_ENCRYPTED: usize = 32 << 10;

/// What a TLS connection reserves in addition to what every connection does: a record of each direction, and its keys.
pub(super) const TLS_CONNECTION: usize = 32 << 10;

/// The handshakes that run on one listener.
pub(super) struct Handshakes {
    most: usize,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    begun: u64,
    /// By age. Dropping a sender ends its handshake.
    slots: BTreeMap<u64, oneshot::Sender<Infallible>>,
}

/// Why a handshake led to no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    #[error(transparent)]
    Failed(#[from] io::Error),
    #[error("it took longer than {} s", TIMEOUT.as_secs())]
    TooSlow,
    #[error("it was the oldest of too many handshakes")]
    Crowded,
    #[error("the certificate is not one of a node that the store lists")]
    Stranger,
    #[error("the server is stopping")]
    Stopping,
}

impl HandshakeError {
    /// The value of the label `reason`. None if the handshake did not fail, but the server stopped.
    pub(super) fn reason(&self) -> Option<&'static str> {
        match self {
            HandshakeError::Failed(_) => Some("failed"),
            HandshakeError::TooSlow => Some("too_slow"),
            HandshakeError::Crowded => Some("crowded"),
            HandshakeError::Stranger => Some("stranger"),
            HandshakeError::Stopping => None,
        }
    }
}

impl Handshakes {
    /// At most half of the connections of a listener may be in their handshake.
    pub(super) fn new(max_connections: usize) -> Arc<Handshakes> {
        let most = (max_connections / 2).clamp(1, MOST);
        Arc::new(Handshakes { most, running: Mutex::default() })
    }

    /// Runs a handshake, and then `admit`, which decides whether the connection is wanted; both have the same time.
    pub(super) async fn run<F>(
        self: Arc<Handshakes>,
        socket: Socket,
        config: Arc<ServerConfig>,
        mut stopping: watch::Receiver<bool>,
        admit: impl FnOnce(TlsStream<Socket>) -> F,
    ) -> Result<TlsStream<Socket>, HandshakeError>
    where
        F: Future<Output = Result<TlsStream<Socket>, HandshakeError>>,
    {
        let mut slot = self.begin();
        let handshake = async {
            let limit = |connection: &mut rustls::ServerConnection| {
                connection.set_buffer_limit(Some(MAX_ENCRYPTED));
            };
            let stream = TlsAcceptor::from(config).accept_with(socket, limit).await?;
            admit(stream).await
        };
        tokio::select! {
            done = handshake => done,
            _ = &mut slot.evicted => Err(HandshakeError::Crowded),
            () = sleep(TIMEOUT) => Err(HandshakeError::TooSlow),
            // A connection that was accepted after the stop has begun is served like others until the end.
            _ = stopping.changed() => Err(HandshakeError::Stopping),
        }
    }

    fn begin(self: Arc<Handshakes>) -> Slot {
        let (sender, evicted) = oneshot::channel();
        let number = {
            let mut running = self.lock();
            if running.slots.len() >= self.most {
                running.slots.pop_first();
            }
            running.begun += 1;
            let number = running.begun;
            running.slots.insert(number, sender);
            number
        };
        Slot { handshakes: self, number, evicted }
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one handshake among those that run. It is free again when this is dropped.
struct Slot {
    handshakes: Arc<Handshakes>,
    number: u64,
    /// Resolves when the handshake must make room for another one.
    evicted: oneshot::Receiver<Infallible>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.handshakes.lock().slots.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::{super::stalls::Patience, *};
    use limina_node::{Budget, memory::Kind};
    use rustls::server::ResolvesServerCertUsingSni;
    use tokio::{
        net::{TcpListener, TcpStream},
        sync::Semaphore,
    };

    #[tokio::test(start_paused = true)]
    async fn a_client_that_says_nothing_loses_its_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (_client, accepted) =
            tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let memory = Budget::unlimited();
        let reserved = memory.reserve_anyway(Kind::Connections, TLS_CONNECTION);
        let patience = Patience { timeout: Duration::from_secs(120), memory: memory.clone() };
        let (socket, client) = Socket::new(accepted.unwrap().0, permit, reserved, patience);
        drop(client);
        let config = ServerConfig::builder_with_provider(crate::tls::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(ResolvesServerCertUsingSni::new()));
        let (_sender, stopping) = watch::channel(false);
        let begin = tokio::time::Instant::now();
        let done =
            Handshakes::new(2).run(socket, Arc::new(config), stopping, async |stream| Ok(stream)).await;
        assert!(matches!(done, Err(HandshakeError::TooSlow)), "{:?}", done.err());
        assert_eq!(begin.elapsed().as_secs(), TIMEOUT.as_secs());
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn the_oldest_handshake_makes_room() {
        let handshakes = Handshakes::new(4);
        let mut slots: Vec<Slot> = (0..2).map(|_| handshakes.clone().begin()).collect();
        let is_evicted =
            |slot: &mut Slot| matches!(slot.evicted.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        assert!(!slots.iter_mut().any(is_evicted));
        // The first has ended, so that there is room for a third.
        drop(slots.remove(0));
        slots.push(handshakes.clone().begin());
        assert!(!slots.iter_mut().any(is_evicted));
        slots.push(handshakes.clone().begin());
        assert_eq!(slots.iter_mut().map(is_evicted).collect::<Vec<_>>(), [true, false, false]);
        drop(slots);
        assert!(handshakes.lock().slots.is_empty());
    }
}
