//! Checks whether every node can be reached at the address that it advertises, and logs a warning if not. Otherwise every
//! request that is forwarded to such a node fails, and no log line names the cause.

use crate::{PeerError, Peers};
use limina_store::NodeId;
use std::{sync::Arc, time::Duration};

/// How many attempts fail before a warning is logged. The node may be starting or stopping.
const ATTEMPTS: usize = 3;
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// How often the warning is repeated.
const WARN_EVERY: Duration = Duration::from_secs(30);

/// Tries until the node is reached at its address.
pub(crate) async fn check(peers: Arc<dyn Peers>, node: NodeId, address: Arc<str>, is_me: bool) {
    let mut was_logged = false;
    loop {
        match try_to_reach(&*peers, node, &address).await {
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
                "another node answers at the address that a node advertises: see its --advertise"
            ),
        }
        was_logged = true;
        tokio::time::sleep(WARN_EVERY).await;
    }
    if was_logged {
        tracing::info!(%address, %node, "a node can be reached at its address now");
    }
}

enum Unreached {
    Nobody,
    Another(String),
}

async fn try_to_reach(peers: &dyn Peers, node: NodeId, address: &str) -> Result<(), Unreached> {
    let mut last = Unreached::Nobody;
    for _ in 0..ATTEMPTS {
        last = match peers.who(address).await {
            Ok(name) if name == node.to_string() => return Ok(()),
            Ok(name) => Unreached::Another(name),
            Err(PeerError::NotThere | PeerError::Lost | PeerError::Unavailable(_)) => Unreached::Nobody,
        };
        tokio::time::sleep(RETRY_PAUSE).await;
    }
    Err(last)
}
