//! Bodies that no node sends.

use super::*;
use reqwest::{Client, StatusCode};

const PATHS: [&str; 2] = ["/peer/v1/ask", "/peer/v2/follow"];

async fn post(node: &Node, path: &str, shard: &str, secret: &str, body: Vec<u8>) -> StatusCode {
    let client = Client::builder().http2_prior_knowledge().build().unwrap();
    let request = client.post(format!("http://{}{path}", node.address())).body(body);
    let request = request.header("x-limina-shard", shard).header("authorization", format!("Bearer {secret}"));
    request.send().await.unwrap().status()
}

#[tokio::test]
async fn what_is_no_request_is_refused() {
    let node = Node::start().await;
    let secret = "0123456789abcdef";
    // A simple generator, so that every run sends the same.
    let mut state = 1_u64;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    for length in 0..200 {
        let body: Vec<u8> = (0..length).map(|_| byte()).collect();
        for path in PATHS {
            let status = post(&node, path, "0", secret, body.clone()).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{path} with {body:?}");
        }
    }
    // A whole request: the namespace `n`, no key, and that it is to be deleted.
    let whole = vec![1, b'n', 0, 4];
    assert_eq!(post(&node, PATHS[0], "0", secret, whole.clone()).await, StatusCode::OK);
    for shard in ["", "-1", "65536", "one"] {
        assert_eq!(post(&node, PATHS[0], shard, secret, whole.clone()).await, StatusCode::BAD_REQUEST);
    }
    let long = [whole, vec![0]].concat();
    assert_eq!(post(&node, PATHS[0], "0", secret, long).await, StatusCode::BAD_REQUEST);
    for path in PATHS {
        let status = post(&node, path, "0", secret, vec![0; (24 << 20) + 1]).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    }
    assert_eq!(node.fake.asked.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn strangers_are_turned_away() {
    let node = Node::start().await;
    for path in PATHS {
        assert_eq!(post(&node, path, "0", "fedcba9876543210", vec![]).await, StatusCode::UNAUTHORIZED);
        assert_eq!(post(&node, path, "0", "", vec![]).await, StatusCode::UNAUTHORIZED);
    }
    let alone = Node::start_with(None).await;
    for path in PATHS {
        assert_eq!(post(&alone, path, "0", "0123456789abcdef", vec![]).await, StatusCode::NOT_FOUND);
    }
}
