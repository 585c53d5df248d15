//! A node on its store, which is a directory of its own or a database that it shares.

use crate::{config::Config, descriptors::Descriptors};
use limina_node::{Joining, Metrics, Node, NodeOptions, Service};
use limina_server::{App, HttpPeers, Secret};
use limina_store::{
    NodeId, ShardStoreOptions, StoreError,
    embedded::{Embedded, EmbeddedOptions},
    postgres::{Postgres, PostgresOptions},
};
use std::{error::Error, net::SocketAddr, sync::Arc, time::Duration};

const MIB: u64 = 1 << 20;
/// How long a stop may take: longer than requests in flight have to end, and shorter than supervisors usually wait.
const STOP_WITHIN: Duration = Duration::from_secs(25);
/// How long to wait before a database that does not answer is tried again: at first, and at most.
const CONNECT_AGAIN: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(5)];

/// A node that runs.
pub(crate) enum Running {
    /// On a directory of its own.
    Alone(Node, Arc<Embedded>),
    /// On a database that others may share.
    Shared(Node, Arc<Postgres>),
}

impl Running {
    /// Opens the store and starts a node on it, which listens at `listening`. Where the store is shared, `app` lets
    /// other nodes in.
    pub(crate) async fn start(
        config: &Config,
        listening: SocketAddr,
        descriptors: &Descriptors,
        service: Service,
        metrics: Metrics,
        app: &App,
    ) -> Result<Running, Box<dyn Error>> {
        match &config.store {
            None => Running::alone(config, descriptors, service, metrics).await,
            Some(url) => {
                let address = advertised(config, listening)?;
                Running::shared(config, url, address, service, metrics, app).await
            }
        }
    }

    async fn alone(
        config: &Config,
        descriptors: &Descriptors,
        service: Service,
        metrics: Metrics,
    ) -> Result<Running, Box<dyn Error>> {
        let options = EmbeddedOptions {
            shards: config.shards,
            segment_bytes: config.journal_segment_mib * MIB,
            reserve_bytes: config.storage_reserve_mib.map(|mib| mib * MIB),
            cached_files: descriptors.table_files,
            ..EmbeddedOptions::default()
        };
        let data = config.data.clone();
        let store = Arc::new(tokio::task::spawn_blocking(move || Embedded::open(&data, options)).await??);
        let shards = store.shards();
        let node = Node::start(service, metrics, store.clone(), store.clone(), shards, node_options(config)?)
            .await?;
        Ok(Running::Alone(node, store))
    }

    async fn shared(
        config: &Config,
        url: &str,
        address: String,
        service: Service,
        metrics: Metrics,
        app: &App,
    ) -> Result<Running, Box<dyn Error>> {
        let options =
            PostgresOptions { node: draw_node_id()?, shards: config.shards, patience: config.tenure };
        let store = Arc::new(connect(url, options).await?);
        let secret = Secret::new(store.secret())?;
        app.accept_peers(secret.clone());
        let peers = Arc::new(HttpPeers::new(secret));
        let joining = Joining { address, host: host_name(), tenure: config.tenure, peers };
        let shards = store.shards();
        let node =
            Node::join(service, metrics, store.clone(), shards, joining, node_options(config)?).await?;
        Ok(Running::Shared(node, store))
    }

    /// Returns when the store cannot be used any more, with the reason. Until then tells `service` whether it can be read.
    pub(crate) async fn lost(&self, service: &Service) -> StoreError {
        match self {
            Running::Alone(_, store) => store.watch_table(|is_open| service.set_store_open(is_open)).await,
            Running::Shared(..) => std::future::pending().await,
        }
    }

    /// Answers what was taken, and ends.
    pub(crate) async fn stop(self, end_front: impl AsyncFnOnce()) -> Result<(), StoreError> {
        match self {
            Running::Alone(node, store) => {
                end_in_any_case();
                node.stop().await;
                end_front().await;
                store.close().await
            }
            Running::Shared(node, store) => {
                node.stop().await;
                end_front().await;
                store.close().await;
                Ok(())
            }
        }
    }
}

/// A disk that hangs must not keep the process from ending. Everything that was acknowledged is durable, so the process may
/// end at any moment; the next start only has more to read.
fn end_in_any_case() {
    let end = || {
        std::thread::sleep(STOP_WITHIN);
        tracing::error!(
            "the store did not end within {} s; the process ends without it",
            STOP_WITHIN.as_secs()
        );
        std::process::exit(1);
    };
    if let Err(error) = std::thread::Builder::new().name("limina-stop".to_string()).spawn(end) {
        tracing::warn!(%error, "nothing bounds how long stopping takes");
    }
}

fn node_options(config: &Config) -> Result<NodeOptions, Box<dyn Error>> {
    let checkpoint_bytes = usize::try_from(config.checkpoint_mib * MIB)?;
    Ok(NodeOptions {
        store: ShardStoreOptions {
            soft_bytes: checkpoint_bytes,
            hard_bytes: checkpoint_bytes.saturating_mul(4),
        },
        journal_bytes: config.journal_mib * MIB,
        ..NodeOptions::default()
    })
}

/// Where other nodes reach this one.
fn advertised(config: &Config, listening: SocketAddr) -> Result<String, Box<dyn Error>> {
    match &config.advertise {
        Some(address) => Ok(address.clone()),
        None if listening.ip().is_unspecified() => {
            Err(format!("other nodes cannot reach this one at {listening}: say where with --advertise")
                .into())
        }
        None => Ok(listening.to_string()),
    }
}

fn draw_node_id() -> Result<NodeId, Box<dyn Error>> {
    Ok(NodeId(getrandom::u64()? >> 1))
}

/// The name of this machine, for operators; empty if the system does not say.
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// A database that does not answer is waited for; one that cannot be used, or refuses this node, is not.
async fn connect(url: &str, options: PostgresOptions) -> Result<Postgres, StoreError> {
    let [mut pause, longest] = CONNECT_AGAIN;
    loop {
        match Postgres::connect(url, options.clone()).await {
            Ok(store) => return Ok(store),
            Err(error @ StoreError::Unusable(_)) => return Err(error),
            Err(error) => {
                tracing::warn!(error = &error as &dyn Error, "the database cannot be reached; trying again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(longest);
            }
        }
    }
}
