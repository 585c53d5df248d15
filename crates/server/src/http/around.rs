//! What operators and readers ask for: health, metrics, the reference.

use super::{
    App, json, openapi,
    problem::{Code, Failure},
};
use axum::{
    extract::State,
    http::{
        StatusCode,
        header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
    },
    response::{IntoResponse, Response},
};
use limina_wire::cluster::{Cluster, Node, Shard};
use prometheus_client::encoding::text;
use std::{fmt::Write, sync::LazyLock};

/// Nothing from elsewhere, and nobody may frame it.
const DOCS_POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
    connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

static OPENAPI: LazyLock<String> = LazyLock::new(openapi::openapi_json);
static DOCS: LazyLock<String> = LazyLock::new(docs_page);

/// Whether the process is alive.
#[utoipa::path(
    get, path = "/healthz", tag = "around",
    responses((status = 200, description = "It is.", body = String, content_type = "text/plain")),
)]
pub(super) async fn healthz() -> Response {
    ([(CONTENT_TYPE, "text/plain; charset=utf-8"), (CACHE_CONTROL, "no-store")], "ok").into_response()
}

/// Whether requests are served.
#[utoipa::path(
    get, path = "/readyz", tag = "around",
    responses((status = 200, description = "They are.", body = String, content_type = "text/plain")),
)]
pub(super) async fn readyz(State(app): State<App>) -> Result<Response, Failure> {
    if app.backend().is_ready() {
        Ok(healthz().await)
    } else {
        Err(Failure::new(Code::ShardUnavailable, "the server is starting or stopping"))
    }
}

/// The nodes, the shards, and which node owns each shard.
#[utoipa::path(
    get, path = "/v1/cluster", tag = "around",
    responses((status = 200, description = "All of them.", body = Cluster)),
)]
pub(super) async fn cluster(State(app): State<App>) -> Response {
    let seen = app.backend().cluster();
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
    json(StatusCode::OK, &Cluster { node: seen.me, nodes: nodes.collect(), shards: shards.collect() })
}

/// The metrics, as OpenMetrics text.
#[utoipa::path(
    get, path = "/metrics", tag = "around",
    responses((status = 200, description = "The metrics.", body = String, content_type = "application/openmetrics-text")),
)]
pub(super) async fn metrics(State(app): State<App>) -> Result<Response, Failure> {
    let mut encoded = String::new();
    text::encode(&mut encoded, app.registry())
        .map_err(|_| Failure::new(Code::ShardUnavailable, "the metrics could not be written"))?;
    let media_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(CONTENT_TYPE, media_type), (CACHE_CONTROL, "no-store")], encoded).into_response())
}

/// This reference, as OpenAPI.
#[utoipa::path(
    get, path = "/openapi.json", tag = "around",
    responses((status = 200, description = "The reference.", body = Object)),
)]
pub(super) async fn openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], OPENAPI.as_str()).into_response()
}

/// This reference, to browse.
#[utoipa::path(
    get, path = "/docs", tag = "around",
    responses((status = 200, description = "A page.", body = String, content_type = "text/html")),
)]
pub(super) async fn docs() -> Response {
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, DOCS_POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, DOCS.as_str()).into_response()
}

/// The page, with one section per error code where it says so; a problem's `type` points there.
fn docs_page() -> String {
    let mut errors = String::new();
    for code in Code::ALL {
        let (word, status) = (code.word(), code.status().as_u16());
        writeln!(
            errors,
            "<section class=\"error\" id=\"{word}\"><h3><code>{word}</code> <small>{status}</small></h3>\
             <p><b>{}.</b> {}</p></section>",
            code.title(),
            code.help()
        )
        .expect("writing to a string succeeds");
    }
    include_str!("../../assets/docs.html").replace("<!-- errors -->", &errors)
}
