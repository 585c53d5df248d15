//! The ids of requests: every answer has one, and it reaches problem documents and the engine.

use super::*;
use limina_engine::{
    Caller,
    limiter::{Checked, Refusal},
};

const CHECK: &str = r#"{"key_values": {"k": 1}}"#;
const SENT: &str = "upstream-7f/42";

/// The values of the header, in an answer as it was sent.
fn ids_of(answer: &str) -> Vec<&str> {
    answer
        .lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|l| l.strip_prefix("x-request-id: "))
        .collect()
}

#[tokio::test]
async fn every_answer_has_the_id_of_its_request() {
    let server = start_app(AppOptions { body_timeout: Duration::from_millis(50), ..anyone() }).await;
    for (line, status) in [
        ("GET /v1/ledger/limits", 200),
        ("HEAD /v1/ledger/limits", 200),
        ("DELETE /v1/ns/n", 204),
        ("GET /healthz", 200),
        ("GET /metrics", 200),
        ("GET /docs", 200),
        ("GET /openapi.json", 200),
        ("GET /console/app.js", 200),
        ("GET /", 307),
        ("POST /v1/ledger/hold", 400),
        ("GET /nowhere", 404),
        ("POST /v1/ns", 405),
        ("GET /ws", 400),
        ("POST /liminator/v1", 400),
        ("POST /json", 400),
        ("POST /v1/ledger/hold HTTP/1.1\r\nContent-Length: 5", 408),
    ] {
        for sent in [Some(SENT), None] {
            let mut request = line.to_owned();
            if !line.contains("HTTP/1.1") {
                request += " HTTP/1.1";
            }
            request += "\r\nHost: x\r\nConnection: close\r\n";
            if let Some(id) = sent {
                request += &format!("X-Request-Id: {id}\r\n");
            }
            let answer = server.raw(format!("{request}\r\n").as_bytes()).await;
            assert_eq!(answer[9..12], status.to_string(), "{line}: {answer}");
            let ids = ids_of(&answer);
            assert_eq!(ids.len(), 1, "{line}: {answer}");
            match sent {
                Some(id) => assert_eq!(ids, [id], "{line}"),
                None => assert!(ids[0].len() == 28 && ids[0] != SENT, "{line}: {answer}"),
            }
            if status >= 400 && line != "POST /liminator/v1" {
                let in_body = format!(r#""request_id":"{}""#, ids[0]);
                assert!(answer.contains(&in_body), "{line}: {answer}");
            }
        }
    }
}

/// A client beyond the maximum is answered before it has sent anything.
#[tokio::test]
async fn a_refused_connection_gets_an_id() {
    let server = start_app(AppOptions { max_connections: 0, ..anyone() }).await;
    let answer = server.raw(b"").await;
    let ids = ids_of(&answer);
    assert!(ids.len() == 1 && answer.contains(&format!(r#""request_id":"{}""#, ids[0])), "{answer}");
}

/// A long answer is encoded on another thread.
#[tokio::test]
async fn refusals_of_checks_have_the_id_however_long_they_are() {
    let server = start().await;
    for limits in [1, 2_000] {
        let limits = (0..limits).map(|n| limiter::limit_status(&format!("r{n}"))).collect();
        let refused = Checked { retry_after: None, ..limiter::decision(limits) };
        server.answers(Ok(Outcome::Limiter(Err(Refusal::LimitReached(refused)))));
        for (method, path, body) in [
            ("POST", "/v1/limiter/check", CHECK),
            ("POST", "/v1/limiter/counters", r#"{"key_values": {"k": 1}, "counters": 1}"#),
        ] {
            let request = server.request(method, path).header("x-request-id", SENT).body(body);
            let response = request.send().await.unwrap();
            assert_eq!(response.headers()["x-request-id"], SENT);
            let problem: Json = response.json().await.unwrap();
            assert_eq!((&problem["code"], &problem["request_id"]), (&json!("LimitReached"), &json!(SENT)));
        }
    }
}

/// The id belongs to the answer as a whole.
#[tokio::test]
async fn the_items_of_a_batch_have_no_id() {
    let server = start().await;
    let response = server.send("POST", "/v1/limiter/check/batch", r#"{"checks": [{"hits": 1}]}"#).await;
    assert!(response.headers().contains_key("x-request-id"));
    let answer: Json = response.json().await.unwrap();
    assert_eq!(answer["results"][0]["code"], "InvalidRequest");
    assert_eq!(answer["results"][0].get("request_id"), None, "{answer}");
}

#[tokio::test]
async fn the_engine_learns_the_id() {
    let server = start().await;
    let request = server.request("POST", "/v1/ledger/hold").header("x-request-id", SENT).body(HOLD);
    assert_eq!(request.send().await.unwrap().status(), 200);
    let Caller { request_id, .. } = server.last_asked().caller;
    assert_eq!(request_id.unwrap().as_str(), SENT);
}
