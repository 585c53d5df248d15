//! A web API that limits each of its callers: ten requests a second, by their API key.
//!
//! ```console
//! $ limina &
//! $ cargo run -p limina-client --example web_api
//! $ curl -i -H 'x-api-key: ann' localhost:8000/
//! ```

use axum::{Router, body::Body, routing::get};
use http::Request;
use limina_client::{
    Limina, key_values,
    tower::{LimitLayer, OnUnavailable},
};
use serde_json::json;
use std::{env, error::Error, time::Duration};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("LIMINA_URL").unwrap_or_else(|_| "http://localhost:7070".to_owned());
    // A user waits for the answer, so the limiter has little time for its own.
    let timeout = env::var("TIMEOUT_MS").map_or(Ok(250), |ms| ms.parse())?;
    let client = Limina::builder(url).namespace("web-api").timeout(Duration::from_millis(timeout)).build()?;
    // PUT creates the rule or replaces it, so every start of every replica may do it.
    let window = json!({"type": "bucket", "per": "1s", "burst": 20});
    client.rules().put("per-caller", &json!({"group_by": ["caller"], "limit": 10, "window": window})).await?;

    // Requests without a key are not limited: let the service behind the layer refuse them.
    let limit = LimitLayer::new(client, |request: &Request<Body>| {
        let caller = request.headers().get("x-api-key")?.to_str().ok()?.to_owned();
        Some(key_values! {"caller": caller})
    })
    // If Limina is away, requests pass: an hour without limits costs less than an hour without service.
    .on_unavailable(OnUnavailable::Allow);
    let service = Router::new().route("/", get(async || "hello, world\n")).layer(limit);

    let port = env::var("PORT").map_or(Ok(8000), |port| port.parse())?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, service).await?;
    Ok(())
}
