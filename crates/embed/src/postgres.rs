//! Instances on a PostgreSQL database: alone on it, or as one node of a cluster.

use crate::{Builder, OpenError};
use limina_engine::{Outcome, Request};
use limina_node::{
    Feed, FeedRequest, Joining, Metrics, Node, NodeOptions, PeerError, Peers, Service, ShardId, draw_node_id,
    peers::PeerFuture,
};
use limina_store::{
    Announcement, StoreError, Tenure,
    postgres::{Postgres, PostgresOptions},
};
use std::{error::Error, sync::Arc, time::Duration};

/// The pauses between two attempts to connect: the first one, and the longest.
const CONNECT_AGAIN: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(5)];
/// The address of an instance that other nodes cannot reach. All such instances have the same address, and an address has
/// one live owner, so there is one such instance for each database.
const ALONE: &str = "embedded";

/// How the database is used.
pub(crate) struct DatabaseOptions {
    tenure: Duration,
    host: String,
    waits: bool,
    cluster: Option<(String, Arc<dyn Peers>)>,
}

impl Default for DatabaseOptions {
    fn default() -> DatabaseOptions {
        DatabaseOptions { tenure: Duration::from_secs(5), host: String::new(), waits: false, cluster: None }
    }
}

impl Builder {
    /// The time without a renewal after which this process counts as dead, so that another one may take over its shards.
    /// The default is 5 seconds. Only [`Builder::postgres`] uses it.
    pub fn tenure(mut self, tenure: Duration) -> Builder {
        self.database.tenure = tenure;
        self
    }

    /// The name of this machine, for operators who look at the cluster. Only [`Builder::postgres`] uses it.
    pub fn host(mut self, host: impl Into<String>) -> Builder {
        self.database.host = host.into();
        self
    }

    /// If the database cannot be reached, keep trying to connect. Without this, opening fails.
    pub fn wait_for_database(mut self) -> Builder {
        self.database.waits = true;
        self
    }

    /// Makes this instance one node of a cluster on the same database. Other nodes reach it at `address`. `peers` sends
    /// requests to other nodes, and knows by their certificates, which the database lists, who they are. The program must also
    /// serve the requests of other nodes, with [`Service::answer_peer`] and [`Service::feed_peer`].
    ///
    /// In a cluster, [`Builder::postgres`] returns when the node is registered. [`Service::until_served`] returns when every
    /// shard has an owner.
    pub fn cluster(mut self, address: impl Into<String>, peers: Arc<dyn Peers>) -> Builder {
        self.database.cluster = Some((address.into(), peers));
        self
    }
}

impl DatabaseOptions {
    pub(crate) async fn open(
        self,
        url: &str,
        shards: Option<u16>,
        service: Service,
        metrics: Metrics,
        options: NodeOptions,
    ) -> Result<(Node, Arc<Postgres>), OpenError> {
        let DatabaseOptions { tenure, host, waits, cluster } = self;
        let store = PostgresOptions { node: draw_node_id()?, shards, patience: tenure };
        let store = Arc::new(connect(url, store, waits).await?);
        let sharding = store.sharding();
        match cluster {
            Some((address, peers)) => {
                let joining = Joining { address, host, tenure, peers };
                let node = Node::join(service, metrics, store.clone(), sharding, joining, options).await?;
                Ok((node, store))
            }
            None => {
                check_alone(&store, &host, tenure).await?;
                let joining = Joining { address: ALONE.to_owned(), host, tenure, peers: Arc::new(NoPeers) };
                let joined =
                    Node::join(service.clone(), metrics, store.clone(), sharding, joining, options).await;
                let node = joined.map_err(|taken| {
                    OpenError::DatabaseInUse(format!(
                        "node {}, started {} s ago",
                        taken.node,
                        taken.age.as_secs()
                    ))
                })?;
                service.until_served().await;
                Ok((node, store))
            }
        }
    }
}

/// Fails if nodes of a cluster use the database: they would get a part of the shards, and this instance could not reach
/// them. An earlier instance of this kind has the same address, and [`Node::join`] waits until its tenure has run out.
async fn check_alone(store: &Postgres, host: &str, tenure: Duration) -> Result<(), OpenError> {
    // A node that says it is leaving is given no shards.
    let (address, host) = (ALONE.to_owned(), host.to_owned());
    let announcement =
        Announcement { address, host, is_leaving: true, tenure, certificate: None, prepared: Vec::new() };
    let view = store.renew(announcement).await?;
    let others = |member: &&limina_store::Member| member.is_live && member.address != ALONE;
    let Some(other) = view.members.iter().find(others) else { return Ok(()) };
    let found = format!("node {} at {}", other.id, other.address);
    store.leave().await?;
    Err(OpenError::DatabaseInUse(found))
}

/// Retries only if the database cannot be reached. A database that cannot be used, or rejects this node, is an error.
async fn connect(url: &str, options: PostgresOptions, waits: bool) -> Result<Postgres, StoreError> {
    let [mut pause, longest] = CONNECT_AGAIN;
    loop {
        match Postgres::connect(url, options.clone()).await {
            Ok(store) => return Ok(store),
            Err(error) if !waits || matches!(error, StoreError::Unusable(_)) => return Err(error),
            Err(error) => {
                tracing::warn!(error = &error as &dyn Error, "cannot reach the database; retrying");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(longest);
            }
        }
    }
}

/// The peers of an instance that is alone on its database.
struct NoPeers;

impl Peers for NoPeers {
    fn who<'a>(&'a self, _: &'a str) -> PeerFuture<'a, String> {
        Box::pin(async { Err(PeerError::NotThere) })
    }

    fn ask<'a>(&'a self, _: &'a str, _: ShardId, _: &'a Request) -> PeerFuture<'a, Outcome> {
        Box::pin(async { Err(PeerError::NotThere) })
    }

    fn follow<'a>(&'a self, _: &'a str, _: &'a FeedRequest) -> PeerFuture<'a, Box<dyn Feed>> {
        Box::pin(async { Err(PeerError::NotThere) })
    }
}
