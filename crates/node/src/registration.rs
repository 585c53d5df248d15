//! Registers a node that joins others, under an address that no other node has.

use crate::{
    Joining,
    tenure_renewal::{announcement, interval},
};
use limina_store::{Member, NodeId, StoreError, Tenure};
use std::{error::Error, time::Duration};
use tokio::time::{Instant, sleep, timeout};

/// Another live node has the address of this one.
#[derive(Debug, thiserror::Error)]
#[error(
    "the address {address} is that of another node, {node}, which {} {} s ago and renews its tenure: every node needs an address \
     of its own, see --advertise",
    started(host),
    age.as_secs()
)]
pub struct AddressTaken {
    /// The address of both nodes.
    pub address: String,
    /// The other node's name.
    pub node: NodeId,
    /// The name of the other node's machine. Empty if it is unknown.
    pub host: String,
    /// How long ago the other one started.
    pub age: Duration,
}

fn started(host: &str) -> String {
    if host.is_empty() { "started".to_owned() } else { format!("started on {host}") }
}

/// Registers a node. Retries while the store does not answer.
///
/// If another node has this address, it may be this process before a crash. Then its tenure expires, and the address is free.
/// A node that leaves is waited for as well. If the other node goes on renewing its tenure, it is another process with the
/// same address, and this fails.
pub(crate) async fn register<S: Tenure>(store: &S, joining: &Joining) -> Result<(), AddressTaken> {
    let tenure = joining.tenure;
    let mut until = None;
    let mut is_failing = false;
    loop {
        let mut pause = interval(tenure);
        match timeout(tenure, store.renew(announcement(joining, false, Vec::new()))).await {
            Ok(Ok(view)) => {
                is_failing = false;
                let Some(other) = view.occupant(&joining.address, store.me()) else { return Ok(()) };
                // This process listens at the address, so the process that lost its session is no longer there.
                if !other.is_connected && store.end_tenure(other.id).await.unwrap_or(false) {
                    continue;
                }
                let now = Instant::now();
                let until = *until.get_or_insert_with(|| {
                    let (address, node, host) = (&joining.address, other.id, &other.host);
                    tracing::warn!(
                        address, %node, host,
                        "another node has this node's address; waiting to see whether its tenure expires"
                    );
                    now + tenure.max(other.expires_in) + pause
                });
                if now >= until && !other.is_leaving {
                    let Member { id, host, age, .. } = other.clone();
                    return Err(AddressTaken { address: joining.address.clone(), node: id, host, age });
                }
                pause = pause.min(other.expires_in + Duration::from_millis(10));
            }
            failed => {
                let error =
                    failed.unwrap_or_else(|_| Err(StoreError::Unavailable("it does not answer".to_owned())));
                if let (Err(error), false) = (error, std::mem::replace(&mut is_failing, true)) {
                    tracing::error!(
                        error = &error as &dyn Error,
                        "this node could not be registered; trying again"
                    );
                }
            }
        }
        sleep(pause).await;
    }
}
