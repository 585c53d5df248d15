//! The paths for operators: health, readiness, the cluster, metrics.

use super::{
    App,
    extract::ClusterQuery,
    json::json,
    problem::{Code, Failure},
};
use axum::{
    extract::State,
    http::{
        StatusCode,
        header::{CACHE_CONTROL, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
};
use limina_api::cluster::{Cluster, Node, Shard};
use prometheus_client::encoding::text;

/// Is the process alive?
///
/// Always 200 while the process runs, also before it is ready.
#[utoipa::path(
    get, path = "/healthz", tag = "server",
    responses((status = 200, description = "The process is alive; the body is `ok`.", body = String, content_type = "text/plain")),
)]
pub(super) async fn healthz() -> Response {
    ([(CONTENT_TYPE, "text/plain; charset=utf-8"), (CACHE_CONTROL, "no-store")], "ok").into_response()
}

/// Does the server serve requests?
///
/// 503 while it recovers its data after the start, while it drains before it stops, and while a node of a cluster does not reach the
/// database.
#[utoipa::path(
    get, path = "/readyz", tag = "server",
    responses((status = 200, description = "The server serves requests; the body is `ok`.", body = String, content_type = "text/plain")),
)]
pub(super) async fn readyz(State(app): State<App>) -> Result<Response, Failure> {
    if app.backend().is_ready() {
        Ok(healthz().await)
    } else {
        Err(Failure::new(
            Code::ShardUnavailable,
            "The server is starting or stopping, or does not reach its database.",
        ))
    }
}

/// List the nodes, the shards, and which node owns each shard.
///
/// With `namespace`, only the shard of that namespace is listed, whether the namespace exists or not.
#[utoipa::path(
    get, path = "/v1/cluster", tag = "server",
    params(("namespace" = Option<String>, Query, description = "Only the shard of this namespace, whether the namespace exists or not.")),
    responses((status = 200, description = "All nodes and all shards, as the answering node sees them.", body = Cluster)),
)]
pub(super) async fn cluster(
    State(app): State<App>,
    ClusterQuery(namespace): ClusterQuery,
) -> Result<Response, Failure> {
    let mut seen = app.backend().cluster();
    if let Some(namespace) = namespace {
        let shard = app.backend().shard_of(&namespace);
        seen.shards.retain(|listed| shard.is_some_and(|shard| shard.0 == listed.shard));
    }
    let nodes = seen.nodes.into_iter().map(|node| Node {
        node: node.node,
        address: node.address,
        ready: node.is_ready,
        leaving: node.is_leaving,
    });
    let shards = seen.shards.into_iter().map(|shard| Shard {
        shard: shard.shard,
        owner: shard.owner,
        open: shard.is_open,
        epoch: shard.epoch,
    });
    let cluster = Cluster { node: seen.me, nodes: nodes.collect(), shards: shards.collect() };
    Ok(json(StatusCode::OK, &cluster))
}

/// Read the metrics for Prometheus.
#[utoipa::path(
    get, path = "/metrics", tag = "server",
    responses((status = 200, description = "The metrics, in the OpenMetrics text format.", body = String, content_type = "application/openmetrics-text")),
)]
pub(super) async fn metrics(State(app): State<App>) -> Result<Response, Failure> {
    let mut encoded = String::new();
    text::encode(&mut encoded, app.registry())
        .map_err(|_| Failure::new(Code::ShardUnavailable, "The metrics could not be written."))?;
    let media_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(CONTENT_TYPE, media_type), (CACHE_CONTROL, "no-store")], encoded).into_response())
}
