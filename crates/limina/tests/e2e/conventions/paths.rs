//! Paths and methods that do not exist.

use serde_json::json;

use crate::harness::Server;
use crate::raw;
use crate::reply::Reply;

#[test]
fn unknown_paths_are_not_found() {
    let server = Server::fresh();
    server.ledger().create("a");
    for path in [
        "/nope",
        "/v1",
        "/v1/",
        "/v2/ledger/limits",
        "/v1/ledger",
        "/v1/ledger/",
        "/v1/ledger/nope",
        "/v1/ledger/limits/a/nope",
        "/v1/ledger/limits/a/entries/1",
        "/v1/ledger/holds",
        "/v1/limiter/nowhere",
        "/v1/limiter/rules/r/other",
        "/v1/limiter/leases/x/other",
        "/v1/limiter/check/other",
        "/v1/locks/l/nope",
        "/v1/locks/l/heartbeat/x",
        "/v1/locks/query/x",
        "/v1/events/s/nope",
        "/v1/events/s/incubating/x",
        "/v1/events/s/stream/x",
        "/v1/ns/x/ledger",
        "/v1/ns/x/nope",
        "/V1/ledger/limits",
        "/healthz/x",
        "//v1/ledger/limits",
    ] {
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH"] {
            let reply = raw::ask(server.address(), raw::request(method, path, "", b""));
            assert_eq!((reply.status, reply.code()), (404, "NotFound"), "{method} {path} → {}", reply.text);
            reply.refused(404, "NotFound");
        }
    }
}

/// The paths of every family, each with its methods.
const CALLS: &[(&str, &[&str])] = &[
    ("/ledger/limits", &["GET", "POST"]),
    ("/ledger/limits/a", &["GET", "PATCH", "DELETE"]),
    ("/ledger/limits/a/entries", &["GET"]),
    ("/ledger/hold", &["POST"]),
    ("/ledger/commit", &["POST"]),
    ("/ledger/rollback", &["POST"]),
    ("/ledger/extend", &["POST"]),
    ("/ledger/values", &["POST"]),
    ("/ledger/operations", &["GET"]),
    ("/ledger/operations/op", &["GET"]),
    ("/ledger/hold/batch", &["POST"]),
    ("/ledger/commit/batch", &["POST"]),
    ("/ledger/rollback/batch", &["POST"]),
    ("/limiter/rules", &["GET", "POST"]),
    ("/limiter/rules/r", &["GET", "PUT", "PATCH", "DELETE"]),
    ("/limiter/rules/r/groups", &["GET"]),
    ("/limiter/rules/r/overrides", &["GET", "POST"]),
    ("/limiter/rules/r/overrides/o", &["GET", "PUT", "PATCH", "DELETE"]),
    ("/limiter/check", &["POST"]),
    ("/limiter/check/batch", &["POST"]),
    ("/limiter/counters", &["POST", "PUT"]),
    ("/limiter/counters/set", &["PUT"]),
    ("/limiter/counters/query", &["POST"]),
    ("/limiter/leases", &["GET", "POST"]),
    ("/limiter/leases/x", &["GET", "DELETE"]),
    ("/limiter/leases/x/heartbeat", &["POST"]),
    ("/locks", &["GET", "POST"]),
    ("/locks/l", &["GET", "DELETE"]),
    ("/locks/l/heartbeat", &["POST"]),
    ("/events", &["GET"]),
    ("/events/s", &["GET", "PUT", "POST", "DELETE"]),
    ("/events/s/incubating", &["GET"]),
    ("/events/s/stream", &["GET"]),
    ("/refusals/stream", &["GET"]),
];

#[test]
fn unknown_methods_are_not_allowed() {
    let server = Server::fresh();
    let refused = |path: &str, allowed: &[&str]| {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "TRACE", "BREW"] {
            if allowed.contains(&method) {
                continue;
            }
            let reply = raw::ask(server.address(), raw::request(method, path, "", b"{}"));
            let code = (reply.status, reply.code());
            assert_eq!(code, (405, "MethodNotAllowed"), "{method} {path} → {}", reply.text);
            let reply = reply.refused(405, "MethodNotAllowed");
            let allow = reply.header("allow").to_owned();
            for method in allowed {
                assert!(allow.contains(method), "Allow of {path}: {allow:?}");
            }
        }
    };
    for (path, allowed) in CALLS {
        for prefix in ["/v1", "/v1/ns/x"] {
            refused(&format!("{prefix}{path}"), allowed);
        }
    }
    for path in ["/only-once-event", "/strictly-once-event", "/time-sync"] {
        refused(path, &["POST"]);
    }
    for path in ["/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/v1/ns"] {
        let request = server.http().post(server.url(path)).json(&json!({}));
        Reply::to(request).refused(405, "MethodNotAllowed");
    }
}

/// A request that is not HTTP gets 400 or a closed connection, and the next client is served.
#[test]
fn input_that_is_not_http_does_no_harm() {
    let server = Server::fresh();
    for bytes in [
        &b"\r\n\r\n\r\n"[..],
        b"GARBAGE\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /v1/ledger/limits HTTP/1.1\r\n\r\n",
        b"POST /v1/ledger/limits HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/ledger/limits HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nBad Header\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\ngarbage garbage garbage garbage",
        b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n",
        b"GET http://example.com/v1/ledger/limits HTTP/1.1\r\nHost: example.com\r\n\r\n",
    ] {
        let mut connection = raw::Connection::open(server.address());
        connection.send(bytes);
        drop(connection);
        server.get("/healthz").ok();
    }
    let long = "x".repeat(1 << 20);
    for request in [
        format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {long}\r\n\r\n"),
    ] {
        let connection = raw::Connection::open(server.address());
        let sender = connection.send_aside(request.into_bytes());
        drop(connection);
        server.get("/healthz").ok();
        drop(sender);
    }
    server.ledger().create("served");
}
