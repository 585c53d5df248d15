//! Compares the answers of several nodes, which must be the same.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::cluster::Cluster;
use crate::harness::Server;
use crate::reply::Reply;

/// Requires the same status, headers and body from every node, except for values that change with time, and the request's id.
#[track_caller]
pub(crate) fn same_everywhere(cluster: &Cluster, ask: impl Fn(&Server) -> Reply) {
    let first = timeless(ask(&cluster[0]));
    for node in 1..cluster.len() {
        assert_eq!(timeless(ask(&cluster[node])), first, "node {node} and node 0");
    }
}

/// The whole answer, except for values that change with time, and the request's id.
pub(crate) fn timeless(reply: Reply) -> (u16, BTreeMap<String, String>, Value) {
    let mut headers = BTreeMap::new();
    for (name, value) in &reply.headers {
        let value = match name.as_str() {
            "date" | "content-length" | "x-request-id" => continue,
            "ratelimit" | "retry-after" => "some",
            _ => value.to_str().expect("text"),
        };
        headers.insert(name.to_string(), value.to_owned());
    }
    let mut body = reply.body;
    forget_times(&mut body);
    (reply.status, headers, body)
}

/// Fields that differ from request to request: times that are left, and the request's id.
const FORGOTTEN: [&str; 5] = ["retry_after_ms", "reset_ms", "expires_in_ms", "held_ms", "request_id"];

fn forget_times(body: &mut Value) {
    match body {
        Value::Object(fields) => {
            fields.retain(|name, _| !FORGOTTEN.contains(&name.as_str()));
            fields.values_mut().for_each(forget_times);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_times),
        _ => {}
    }
}
