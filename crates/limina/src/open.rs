//! From the configuration to a running instance, on a directory or on a shared database.

use crate::{config::Config, descriptors::Descriptors, memory::MemoryLimit};
use limina_embed::{Limina, Metrics, Service};
use limina_server::PeerClient;
use std::{error::Error, net::SocketAddr, sync::Arc};

const MIB: u64 = 1 << 20;

/// How this node and the others reach each other.
pub(crate) struct Joining {
    /// The address that this node gives to the others.
    pub(crate) advertised: String,
    pub(crate) peers: Arc<PeerClient>,
}

/// Opens the store and serves on `service`. On a shared store the node joins the others.
pub(crate) async fn open(
    config: &Config,
    joining: Option<Joining>,
    descriptors: &Descriptors,
    memory: MemoryLimit,
    service: Service,
    metrics: Metrics,
) -> Result<Limina, Box<dyn Error>> {
    let mut builder = Limina::builder()
        .service(service, metrics)
        .quotas(config.quotas.clone())
        .audit_kept(config.audit_kept)
        .journal_bytes(config.journal_mib * MIB)
        .checkpoint_bytes(usize::try_from(memory.checkpoint_bytes(config))?)
        .table_cache_bytes(memory.cache_bytes())
        .journal_segment_bytes(config.journal_segment_mib * MIB)
        .cached_table_files(descriptors.table_files)
        .max_wait(config.max_wait)
        .tenure(config.tenure);
    if let Some(shards) = config.shards {
        builder = builder.shards(u16::try_from(shards)?);
    }
    if let Some(mib) = config.storage_reserve_mib {
        builder = builder.storage_reserve_bytes(mib * MIB);
    }
    match (&config.store, joining) {
        (Some(url), Some(Joining { advertised, peers })) => {
            let builder = builder.cluster(advertised, peers).host(host_name());
            Ok(builder.wait_for_database().postgres(url).await?)
        }
        _ => Ok(builder.open(&config.data).await?),
    }
}

/// The address at which other nodes reach this one, which listens for them at `listening`.
pub(crate) fn advertised(config: &Config, listening: SocketAddr) -> Result<String, Box<dyn Error>> {
    match &config.advertise {
        Some(address) => Ok(address.clone()),
        None if listening.ip().is_unspecified() => {
            Err(format!("other nodes cannot reach this one at {listening}: set an address with --advertise")
                .into())
        }
        None => Ok(listening.to_string()),
    }
}

/// The name of this machine, for operators; empty if the system has none.
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
