//! Who may connect to a listener: clients, with TLS or without, or other nodes.

use super::{
    App,
    handshakes::{HandshakeError, Handshakes, TLS_CONNECTION},
    memory::CONNECTION,
    socket::Socket,
    transport::Transport,
};
use crate::{Tls, peers::Identity};
use limina_node::{
    Budget,
    memory::{Kind, MemoryFull, Priority, Reservation},
};
use std::{net::SocketAddr, sync::Arc};
use tokio_rustls::server::TlsStream;

/// Who may connect to a listener. Cheap to clone.
#[derive(Clone)]
pub(super) enum Acceptor {
    /// Every client.
    Plain,
    /// Clients over TLS.
    Tls(Tls),
    /// Nodes of the same cluster.
    Peers(Arc<Identity>),
}

impl Acceptor {
    /// The memory of a connection. Clients get a part of the budget. Nodes are always reached, because the clients of other nodes
    /// must be able to release what they hold; nodes are few.
    pub(super) fn reserve(&self, memory: &Budget) -> Result<Reservation, MemoryFull> {
        let reserve = |bytes| memory.reserve(Kind::Connections, bytes, Priority::Reachable);
        match self {
            Acceptor::Plain => reserve(CONNECTION),
            Acceptor::Tls(_) => reserve(CONNECTION + TLS_CONNECTION),
            Acceptor::Peers(_) => Ok(memory.reserve_anyway(Kind::Connections, CONNECTION + TLS_CONNECTION)),
        }
    }

    /// Accepts a connection, after the TLS handshake if there is one. None if it is refused.
    pub(super) async fn accept(
        self,
        socket: Socket,
        address: SocketAddr,
        handshakes: Arc<Handshakes>,
        app: &App,
    ) -> Option<Transport> {
        let stopping = app.stopping().subscribe();
        let accepted = match &self {
            Acceptor::Plain => return Some(Transport::Plain(socket)),
            Acceptor::Tls(tls) => {
                handshakes.run(socket, tls.config(), stopping, async |stream| Ok(stream)).await
            }
            Acceptor::Peers(identity) => {
                let admit = async |stream: TlsStream<Socket>| {
                    identity.welcome(stream).await?.ok_or(HandshakeError::Stranger)
                };
                handshakes.run(socket, identity.server_config(), stopping, admit).await
            }
        };
        match accepted {
            Ok(stream) => Some(Transport::Tls(Box::new(stream))),
            Err(error) => {
                let listener = self.listener_label();
                if let Some(reason) = error.reason() {
                    app.metrics().handshake_failed(listener, reason);
                }
                tracing::debug!(listener, %address, %error, "a TLS handshake led to no connection");
                None
            }
        }
    }

    /// The value of the label `listener`.
    pub(super) fn listener_label(&self) -> &'static str {
        match self {
            Acceptor::Plain | Acceptor::Tls(_) => "clients",
            Acceptor::Peers(_) => "peers",
        }
    }
}
