//! What concerns the whole server, and not one namespace.

use crate::{
    Pages, Refusals, Reply,
    error::Result,
    transport::Scope,
    types::{AuditRecord, Cluster, Namespace},
};

/// `client.server()`
///
/// ```no_run
/// # async fn example(client: limina_client::Limina) -> Result<(), limina_client::Error> {
/// for node in &client.server().cluster().await?.nodes {
///     println!("{} {}", node.node, if node.ready { "ready" } else { "not ready" });
/// }
/// # Ok(())
/// # }
/// ```
pub struct Server<'c> {
    pub(crate) scope: &'c Scope,
}

impl Server<'_> {
    /// Succeeds if the server serves requests. Fails with `Unavailable` while it starts or stops.
    pub async fn ready(&self) -> Result<()> {
        self.scope.get("/readyz").text().await.map(drop)
    }

    /// The nodes, the shards, and which node owns each shard.
    pub async fn cluster(&self) -> Result<Reply<Cluster>> {
        self.scope.get("/v1/cluster").send().await
    }

    /// As [`Server::cluster`], with only the shard of this namespace.
    pub async fn cluster_of(&self, namespace: &str) -> Result<Reply<Cluster>> {
        self.scope.get("/v1/cluster").query("namespace", namespace).send().await
    }

    /// The metrics of the node that answers, in the text format of Prometheus.
    pub async fn metrics(&self) -> Result<String> {
        self.scope.get("/metrics").text().await
    }

    /// The namespaces that the token may read.
    pub fn namespaces(&self) -> Pages<Namespace> {
        Pages::get(self.scope, "/v1/ns")
    }

    /// The management actions in all namespaces that the token may manage, by time.
    pub fn audit(&self) -> Pages<AuditRecord> {
        Pages::get(self.scope, "/v1/audit")
    }

    /// What is being refused in all namespaces that the token may read, as it happens.
    pub fn refusals(&self) -> Refusals {
        Refusals::new(self.scope, "/v1/refusals/stream")
    }
}
