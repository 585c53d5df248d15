//! Bodies that no node sends.

use super::*;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{StatusCode, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use limina_engine::{KeyValues, key_values::Value};
use tokio::io::AsyncReadExt;

const PATHS: [&str; 2] = ["/peer/v1/ask", "/peer/v1/follow"];

/// Sends a body as a node would, and returns the status and the body of the answer.
async fn post(node: &Node, path: &str, shard: &str, body: Vec<u8>) -> (StatusCode, Bytes) {
    let certificate = Certificate::new();
    introduce_to(&node.server.peers, &[&certificate]);
    let mut stream = certificate.connect(node.address()).await.unwrap();
    stream.read_u8().await.expect("a welcome");
    let (mut sender, driver) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(driver);
    let request = hyper::Request::post(format!("https://node{path}")).header("x-limina-shard", shard);
    let answer = sender.send_request(request.body(Full::new(Bytes::from(body))).unwrap()).await.unwrap();
    (answer.status(), answer.into_body().collect().await.unwrap().to_bytes())
}

#[tokio::test]
async fn what_is_no_request_is_refused() {
    let node = Node::start().await;
    // A simple generator, so that every run sends the same.
    let mut state = 1_u64;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    for length in 0..200 {
        let body: Vec<u8> = (0..length).map(|_| byte()).collect();
        for path in PATHS {
            let status = post(&node, path, "0", body.clone()).await.0;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{path} with {body:?}");
        }
    }
    // A whole request: the namespace `n`, no key, nobody who asks, and that it is to be deleted.
    let whole = vec![1, b'n', 0, 0, 0, 5];
    assert_eq!(post(&node, PATHS[0], "0", whole.clone()).await.0, StatusCode::OK);
    for shard in ["", "-1", "65536", "one"] {
        assert_eq!(post(&node, PATHS[0], shard, whole.clone()).await.0, StatusCode::BAD_REQUEST);
    }
    let long = [whole, vec![0]].concat();
    assert_eq!(post(&node, PATHS[0], "0", long).await.0, StatusCode::BAD_REQUEST);
    for path in PATHS {
        let status = post(&node, path, "0", vec![0; (24 << 20) + 1]).await.0;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    }
    assert_eq!(node.fake.asked.lock().unwrap().len(), 1);
}

/// Bytes that decode, but to a command that no constructor builds. `crates/engine/tests/limits.rs` has all the limits; here
/// the door is shown for each family.
#[tokio::test]
async fn an_invalid_command_is_refused() {
    let node = Node::start().await;
    let key_values = KeyValues::new(vec![("k", Value::<&str>::Integer(1))]).unwrap();
    let none = None::<()>;
    let check = async |body: Vec<u8>, path: &str, field: &str| {
        let (status, problem) = post(&node, path, "0", body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{field}");
        let problem: serde_json::Value = serde_json::from_slice(&problem).unwrap();
        assert_eq!((&problem["code"], &problem["field"]), (&"InvalidRequest".into(), &field.into()));
    };
    // The namespace, no key, the numbers of the variants, and the fields.
    let ask = async |body: Vec<u8>, field: &str| check(body, PATHS[0], field).await;
    let change = || ("a", 1_i64, none, 0_u8, none);
    let hold =
        ("n", none, (none, none), (0_u8, 6_u8, 0_u8), "op", vec![change(), change()], false, true, none);
    ask(bytes(&hold), "changes[1].limit_name").await;
    let window = Some((0_u8, 0_u64));
    let rule = (
        "n",
        none,
        (none, none),
        (1_u8, 0_u8, 0_u8),
        "r",
        0_u8,
        0_u8,
        (1_u8, 5_u64),
        window,
        false,
        none,
        none,
    );
    ask(bytes(&rule), "window.per").await;
    let locks = vec![(key_values.clone(), 0_u8), (key_values, 0_u8)];
    let acquire = ("n", none, (none, none), (2_u8, 0_u8), "id", "session", locks, 1_000_u64, 0_u64, none);
    ask(bytes(&acquire), "locks[1].key_values").await;
    ask(bytes(&("n", none, (none, none), (3_u8, 2_u8), "s", "", none)), "event").await;
    // A decision without parts.
    let parts = (0_u8, 0_u8, false, 0_u8, none);
    let decide =
        ("n", none, (none, none), (4_u8, 0_u8), "op", none, 60_000_u64, parts, (false, false), 0_u64, none);
    ask(bytes(&decide), "checks").await;
    ask(bytes(&("n", none, (none, none), 6_u8, none, 0_usize)), "limit").await;
    let wanted = (0_u16, "n", "s", none, Some((0_u8, 10_u64, 0_u32, 10_000_u64)));
    check(bytes(&wanted), PATHS[1], "make.max_events").await;
    assert!(node.fake.asked.lock().unwrap().is_empty());
    assert!(node.fake.wanted.lock().unwrap().is_none());
}

fn bytes(value: &impl serde::Serialize) -> Vec<u8> {
    postcard::to_allocvec(value).unwrap()
}
