//! Finds out whether nodes are reached where they say, and warns if they are not: otherwise every request that is passed on to
//! such a node fails, and nothing names the cause.

use crate::{PeerError, Peers};
use limina_store::NodeId;
use std::{sync::Arc, time::Duration};

/// How often a node that was not reached is tried before that is told; it may just be starting, or be about to go.
const ATTEMPTS: usize = 3;
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// How often that is told again while it is so.
const TELL_AGAIN: Duration = Duration::from_secs(30);

/// Looks until the node is reached at its address. Whoever drops this no longer cares.
pub(crate) async fn look(peers: Arc<dyn Peers>, node: NodeId, address: Arc<str>, is_me: bool) {
    let mut was_told = false;
    loop {
        match reached(&*peers, node, &address).await {
            Ok(()) => break,
            Err(Unreached::Nobody) if is_me => tracing::warn!(
                %address,
                "this node cannot reach itself at the address that it gives to other nodes: see --advertise"
            ),
            Err(Unreached::Nobody) => tracing::warn!(
                %address,
                %node,
                "another node cannot be reached at the address that it gives: see its --advertise, and the network between the nodes"
            ),
            Err(Unreached::Another(other)) => tracing::warn!(
                %address,
                %node,
                other,
                "at the address that a node gives, another one answers: see its --advertise"
            ),
        }
        was_told = true;
        tokio::time::sleep(TELL_AGAIN).await;
    }
    if was_told {
        tracing::info!(%address, %node, "a node is reached at its address now");
    }
}

enum Unreached {
    Nobody,
    Another(String),
}

async fn reached(peers: &dyn Peers, node: NodeId, address: &str) -> Result<(), Unreached> {
    let mut last = Unreached::Nobody;
    for _ in 0..ATTEMPTS {
        last = match peers.who(address).await {
            Ok(name) if name == node.to_string() => return Ok(()),
            Ok(name) => Unreached::Another(name),
            Err(PeerError::NotThere | PeerError::Lost | PeerError::Unavailable(_)) => Unreached::Nobody,
        };
        tokio::time::sleep(TRY_AGAIN).await;
    }
    Err(last)
}
