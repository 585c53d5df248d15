//! Namespaces, health, metrics, the reference, HTTP/2 and the end of a server.

use super::*;

#[tokio::test]
async fn namespaces() {
    let server = start().await;
    let check = async |query: &str, items: &[&str], next: Json| {
        let page: Json = server.send("GET", &format!("/v1/ns{query}"), "").await.json().await.unwrap();
        let found: Vec<&str> =
            page["items"].as_array().unwrap().iter().map(|i| i["namespace"].as_str().unwrap()).collect();
        assert_eq!((found.as_slice(), &page["next"]), (items, &next), "{query}");
    };
    check("", &["n0", "n1", "n2", "n3", "n4"], Json::Null).await;
    check("?limit=2", &["n0", "n1"], json!("n1")).await;
    check("?limit=2&after=n1", &["n2", "n3"], json!("n3")).await;
    check("?limit=2&after=n3", &["n4"], Json::Null).await;
    check("?limit=5", &["n0", "n1", "n2", "n3", "n4"], Json::Null).await;
    assert_eq!(server.send("DELETE", "/v1/ns/a%2Fb", "").await.status().as_u16(), 204);
    let asked = server.last_asked();
    assert_eq!((asked.namespace.as_str(), asked.command), ("a/b", Command::DeleteNamespace));
    server.answers(Ok(Outcome::NamespaceNotFound));
    let problem = problem_of(server.send("DELETE", "/v1/ns/x", "").await, 404, "NamespaceNotFound").await;
    assert_eq!(problem["namespace"], "x");
    for path in ["/v1/ns/%FF", "/v1/ns/"] {
        let problem = problem_of(server.send("DELETE", path, "").await, 400, "InvalidRequest").await;
        assert_eq!(problem["field"], "namespace");
    }
}

#[tokio::test]
async fn the_cluster_lists_all_shards_or_that_of_a_namespace() {
    let server = start().await;
    let check = async |query: &str, expect: &[u64]| {
        let seen: Json = server.send("GET", &format!("/v1/cluster{query}"), "").await.json().await.unwrap();
        let shards: Vec<u64> =
            seen["shards"].as_array().unwrap().iter().map(|shard| shard["shard"].as_u64().unwrap()).collect();
        assert_eq!((shards.as_slice(), &seen["nodes"][0]["node"]), (expect, &json!("local")), "{query}");
    };
    check("", &[0, 1]).await;
    check("?namespace=a0", &[0]).await;
    check("?namespace=a1", &[1]).await;
    for query in ["?namespace=", "?namespace=%FF", "?namespace=a&namespace=a", "?shard=0"] {
        let refused = server.send("GET", &format!("/v1/cluster{query}"), "").await;
        problem_of(refused, 400, "InvalidRequest").await;
    }
}

#[tokio::test]
async fn health_and_metrics() {
    let server = start().await;
    assert_eq!(server.send("GET", "/healthz", "").await.text().await.unwrap(), "ok");
    assert_eq!(server.send("GET", "/readyz", "").await.status().as_u16(), 200);
    server.fake.ready.store(false, Ordering::Relaxed);
    problem_of(server.send("GET", "/readyz", "").await, 503, "ShardUnavailable").await;
    assert_eq!(server.send("GET", "/healthz", "").await.status().as_u16(), 200);

    server.send("POST", "/v1/ledger/hold", HOLD).await;
    server.send("POST", "/v1/ns/some-client-text/ledger/hold", HOLD).await;
    server.send("POST", "/v1/ledger/hold", "{}").await;
    server.send("GET", "/some-client-text", "").await;
    server.send("PUT", "/v1/ledger/hold", "").await;
    let response = server.send("GET", "/metrics", "").await;
    let media_type = response.headers()["content-type"].to_str().unwrap().to_owned();
    assert!(media_type.starts_with("application/openmetrics-text"), "{media_type}");
    let text = response.text().await.unwrap();
    for line in [
        r#"limina_http_requests_total{family="ledger",operation="hold",status="200"} 2"#,
        r#"limina_http_requests_total{family="ledger",operation="hold",status="400"} 1"#,
        r#"limina_http_requests_total{family="none",operation="not_found",status="404"} 1"#,
        r#"limina_http_requests_total{family="none",operation="method_not_allowed",status="405"} 1"#,
        r#"limina_http_requests_total{family="server",operation="readyz",status="503"} 1"#,
        r#"limina_http_request_duration_seconds_count{family="ledger",operation="hold"} 3"#,
        "limina_http_requests_in_flight 1",
        "# EOF",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("some-client-text"));
}

#[tokio::test]
async fn the_reference() {
    let server = start().await;
    let document: Json = server.send("GET", "/openapi.json", "").await.json().await.unwrap();
    assert_eq!(document, serde_json::from_str::<Json>(OPENAPI_JSON).unwrap());
    let paths = document["paths"].as_object().unwrap();
    let families = ["/v1/ledger", "/v1/limiter", "/v1/locks", "/v1/events", "/v1/decisions"];
    let of_family = |path: &&String| families.iter().any(|family| path.starts_with(family));
    for path in paths.keys().filter(of_family) {
        assert!(paths.contains_key(&path.replace("/v1/", "/v1/ns/{namespace}/")), "{path}");
    }
    assert_eq!(paths.len(), 2 * (13 + 18 + 4 + 4 + 8 + 1) + 4 + 4 + 6);
    let mut ids = BTreeSet::new();
    for (path, item) in paths {
        for (method, operation) in item.as_object().unwrap() {
            assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{operation}");
            // What is documented is there: each path answers its methods with something else than 404 or 405.
            let path = path.replace(['{', '}'], "");
            let status = server.send(&method.to_uppercase(), &path, "").await.status().as_u16();
            assert!(![404, 405].contains(&status), "{method} {path} gave {status}");
        }
    }
    // Every reference within the document leads somewhere.
    let text = document.to_string();
    for reference in text.split("\"$ref\":\"#").skip(1) {
        let pointer = reference.split('"').next().unwrap();
        assert!(document.pointer(pointer).is_some(), "{pointer}");
    }
    let response = server.send("GET", "/docs", "").await;
    let policy = response.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    let page = response.text().await.unwrap();
    for code in ["InvalidRequest", "LimitExceeded", "LimitReached", "OutcomeUnknown", "IdempotencyKeyReused"]
    {
        assert!(page.contains(&format!("id=\"{code}\"")), "{code}");
    }
}

#[tokio::test]
async fn console() {
    let server = start().await;
    let root = server.send("GET", "/", "").await;
    assert_eq!((root.status().as_u16(), root.url().path()), (200, "/console"));
    for (path, media_type) in [
        ("/console", "text/html"),
        ("/console/", "text/html"),
        ("/console/rules?rule=a", "text/html"),
        ("/console/a/b", "text/html"),
        ("/console/app.js", "text/javascript"),
        ("/console/app.css", "text/css"),
        ("/console/icon.svg", "image/svg+xml"),
    ] {
        let response = server.send("GET", path, "").await;
        assert_eq!(response.status().as_u16(), 200, "{path}");
        let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
        assert!(header("content-type").starts_with(media_type), "{path}");
        let policy = header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        // A browser that has the file is told so.
        let etag = header("etag");
        let again =
            Client::new().get(format!("http://{}{path}", server.address)).header("if-none-match", &etag);
        assert_eq!(again.send().await.unwrap().status().as_u16(), 304, "{path}");
    }
    // The large files are compressed for clients that accept it.
    for (accepted, expected) in [
        ("gzip, deflate, br", Some("gzip")),
        ("br, GZIP;q=0.5", Some("gzip")),
        ("gzip;q=0", None),
        ("identity", None),
    ] {
        let request = Client::new().get(format!("http://{}/console/app.js", server.address));
        let response = request.header("accept-encoding", accepted).send().await.unwrap();
        let encoding =
            response.headers().get("content-encoding").map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(encoding.as_deref(), expected, "{accepted}");
        let bytes = response.bytes().await.unwrap();
        let is_gzip = bytes.starts_with(&[0x1f, 0x8b]);
        assert_eq!(is_gzip, expected.is_some(), "{accepted}");
    }
}

#[tokio::test]
async fn http2_by_prior_knowledge() {
    let server = start().await;
    let client = Client::builder().http2_prior_knowledge().build().unwrap();
    let url = format!("http://{}/v1/ledger/hold", server.address);
    let response = client.post(&url).body(HOLD).send().await.unwrap();
    assert_eq!(response.version(), reqwest::Version::HTTP_2);
    assert_eq!(response.status().as_u16(), 200);
    let response = client.post(&url).body(" ".repeat(5 * MIB)).send().await.unwrap();
    assert!(!response.headers().contains_key("connection"));
    problem_of(response, 413, "PayloadTooLarge").await;
}

#[tokio::test]
async fn a_stop_lets_requests_in_flight_end() {
    let mut server = start().await;
    let closed = server.fake.gate.lock().await;
    let pending = tokio::spawn(server.request("POST", "/v1/ledger/hold").body(HOLD).send());
    // The request has arrived when it is counted as in flight beside the one that asks.
    loop {
        let text = server.send("GET", "/metrics", "").await.text().await.unwrap();
        if text.contains("limina_http_requests_in_flight 2") {
            break;
        }
        tokio::task::yield_now().await;
    }
    server.stop.take().unwrap().send(()).unwrap();
    // New connections are refused while the old request is still open.
    while TcpStream::connect(server.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(!server.serving.is_finished());
    drop(closed);
    let response = pending.await.unwrap().unwrap();
    assert_eq!(response.status().as_u16(), 200);
    tokio::time::timeout(Duration::from_secs(5), server.serving).await.expect("it ends").unwrap();
}

/// A stream has no end of its own. Its client should go elsewhere, and not wait until it is cut off.
#[tokio::test]
async fn a_stop_ends_streams() {
    let mut server = start().await;
    let response = server.send("GET", "/v1/refusals/stream", "").await;
    assert_eq!(response.status().as_u16(), 200);
    server.stop.take().unwrap().send(()).unwrap();
    let body = tokio::time::timeout(Duration::from_secs(5), response.bytes()).await.expect("it ends");
    assert_eq!(body.expect("it is not cut off"), "");
    tokio::time::timeout(Duration::from_secs(5), server.serving).await.expect("it ends").unwrap();
}
