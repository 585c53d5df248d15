//! The tower layer.

use crate::servers::{Server, closed_port};
use http::{Request, Response, StatusCode};
use limina_client::{
    Error, Limina, key_values,
    tower::{LimitLayer, OnUnavailable},
};
use serde_json::{Value, json};
use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};
use tower::{Layer, Service, ServiceExt};

/// Sends a request of this tenant through the layer.
async fn ask(client: &Limina, on_unavailable: OnUnavailable, tenant: &str) -> Response<String> {
    let layer = LimitLayer::new(client.clone(), |request: &Request<String>| {
        let tenant = request.headers()["x-tenant"].to_str().unwrap().to_owned();
        (tenant != "free").then(|| key_values! {"tenant": tenant})
    });
    let answer =
        tower::service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new("done".to_owned())));
    let mut service = layer.on_unavailable(on_unavailable).layer(answer);
    let request = Request::builder().header("x-tenant", tenant).body(String::new()).unwrap();
    service.ready().await.unwrap().call(request).await.unwrap()
}

#[tokio::test]
async fn requests_are_limited() {
    let Some(server) = Server::start() else { return };
    let client = Limina::new(&server.url).unwrap();
    let bucket = json!({"type": "bucket", "per": "1h", "burst": 5});
    let rule = json!({"name": "rate", "group_by": ["tenant"], "limit": 60, "window": bucket});
    client.rules().create(&rule).await.unwrap();
    let window = json!({"type": "fixed", "per": "1d"});
    let rule = json!({"name": "per \"tenant\"", "group_by": ["tenant"], "limit": 1, "window": window});
    client.rules().create(&rule).await.unwrap();
    let passed = ask(&client, OnUnavailable::Allow, "a").await;
    assert_eq!((passed.status(), passed.body().as_str()), (StatusCode::OK, "done"));
    let policies = r#""per %22tenant%22";q=1;w=86400, "rate";q=60;w=3600;burst=5"#;
    assert_eq!(passed.headers()["ratelimit-policy"], policies);
    assert!(passed.headers()["ratelimit"].to_str().unwrap().starts_with("\"per %22tenant%22\";r=0;t="));
    let refused = ask(&client, OnUnavailable::Allow, "a").await;
    let problem: Value = serde_json::from_str(refused.body()).unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers()["content-type"], "application/problem+json");
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(problem["violated-policies"], json!(["per %22tenant%22"]));
    assert_eq!(ask(&client, OnUnavailable::Refuse, "free").await.status(), StatusCode::OK);
    // A mistake does not switch the limit off.
    let mistake = ask(&client.with_namespace("\u{7}"), OnUnavailable::Allow, "a").await;
    assert_eq!(mistake.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert!(matches!(mistake.extensions().get::<Error>(), Some(Error::Invalid(_))));
}

#[tokio::test]
async fn requests_without_a_decision_are_reported_and_counted_and_the_breaker_opens() {
    let client = Limina::new(closed_port()).unwrap();
    let messages = Arc::new(Mutex::new(Vec::new()));
    let callback = messages.clone();
    let layer = LimitLayer::new(client.clone(), |_: &Request<String>| Some(key_values! {"tenant": "a"}))
        .on_undecided(move |error| {
            callback.lock().unwrap().push(error.to_string().contains("circuit breaker"))
        });
    let answer =
        tower::service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new(String::new())));
    let mut service = layer.layer(answer);
    for _ in 0..7 {
        let answer = service.ready().await.unwrap().call(Request::new(String::new())).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
    }
    assert_eq!(*messages.lock().unwrap(), [false, false, false, false, false, true, true]);
    assert_eq!((client.undecided().passed(), client.undecided().refused()), (7, 0));
    assert!(client.check([("tenant", "a")]).await.unwrap_err().to_string().contains("circuit breaker"));
    // A lock is asked for all the same.
    let error = client.with_retries(0).lock([("tenant", "a")], Duration::from_secs(1)).await.err().unwrap();
    assert!(!error.to_string().contains("circuit breaker"), "{error}");
}

#[tokio::test]
async fn on_unavailable_decides_without_the_limiter() {
    let client = Limina::new(closed_port()).unwrap();
    assert_eq!(ask(&client, OnUnavailable::Allow, "a").await.status(), StatusCode::OK);
    let refused = ask(&client, OnUnavailable::Refuse, "a").await;
    assert_eq!(
        (refused.status(), &refused.headers()["retry-after"]),
        (StatusCode::SERVICE_UNAVAILABLE, &"1".parse().unwrap())
    );
}
