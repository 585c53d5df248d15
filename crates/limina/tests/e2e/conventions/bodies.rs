//! Bodies: what is accepted as JSON, how long bodies may be, and input that must not crash a parser.

use serde_json::json;

use crate::harness::Server;
use crate::ledger::{Ledger, encode};
use crate::raw;
use crate::reply::Reply;

const MIB: usize = 1024 * 1024;

/// All requests with a body that either refuse an empty object or are not changed by it.
const CALLS: &[&str] = &[
    "/limits",
    "/hold",
    "/commit",
    "/rollback",
    "/values",
    "/hold/batch",
    "/commit/batch",
    "/rollback/batch",
];

/// `{"name": …}`, padded with spaces to a length.
fn limit_of_length(name: &str, length: usize) -> Vec<u8> {
    let mut body = json!({"name": name}).to_string().into_bytes();
    body.resize(length, b' ');
    body
}

/// Requests of all families with at least one required field in the body.
const EVERY_FAMILY: &[(&str, &str)] = &[
    ("POST", "/v1/ledger/limits"),
    ("POST", "/v1/ledger/hold"),
    ("POST", "/v1/ledger/commit"),
    ("POST", "/v1/ledger/rollback"),
    ("POST", "/v1/ledger/values"),
    ("POST", "/v1/ledger/hold/batch"),
    ("POST", "/v1/ledger/commit/batch"),
    ("POST", "/v1/ledger/rollback/batch"),
    ("POST", "/v1/limiter/rules"),
    ("PUT", "/v1/limiter/rules/r"),
    ("POST", "/v1/limiter/rules/r/overrides"),
    ("PUT", "/v1/limiter/rules/r/overrides/o"),
    ("POST", "/v1/limiter/rules/match"),
    ("POST", "/v1/limiter/check"),
    ("POST", "/v1/limiter/check/batch"),
    ("POST", "/v1/limiter/counters"),
    ("PUT", "/v1/limiter/counters"),
    ("PUT", "/v1/limiter/counters/set"),
    ("POST", "/v1/limiter/leases"),
    ("POST", "/v1/locks"),
    ("POST", "/v1/locks/l/heartbeat"),
    ("PUT", "/v1/events/s"),
    ("POST", "/v1/events/s"),
];

/// All fields of these requests are optional, so an empty body is valid.
const OPTIONAL: &[(&str, &str)] = &[
    ("PATCH", "/v1/ledger/limits/a"),
    ("PATCH", "/v1/limiter/rules/r"),
    ("PATCH", "/v1/limiter/rules/r/overrides/o"),
    ("POST", "/v1/limiter/rules/query"),
    ("POST", "/v1/limiter/counters/query"),
    ("POST", "/v1/limiter/rules/r/overrides/query"),
    ("POST", "/v1/locks/query"),
];

#[test]
fn bodies_that_are_not_json_are_refused() {
    let server = Server::fresh();
    let send = |(method, path): (&str, &str), media: &str, body: Vec<u8>| {
        let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
        let request = server.http().request(method, server.url(path)).header("content-type", media);
        Reply::to(request.body(body))
    };
    let (deep, nested) = ("[".repeat(100_000), "{\"where\":".repeat(10_000));
    let bodies: &[&[u8]] = &[
        b"{",
        b"}",
        b"nul",
        b"null",
        b"5",
        b"\"text\"",
        b"[]",
        b"[{}]",
        b"{\"name\"}",
        b"{name: 1}",
        b"{'name': 'a'}",
        b"{\"name\": \"a\",}",
        b"{\"name\": \"a\"} {}",
        b"{\"name\": NaN}",
        b"{\"name\": \"\\ud800\"}",
        b"{\"name\": \"raw\x01control\"}",
        b"{\"name\": \"bad utf-8 \xff\xfe\"}",
        b"{\"name\": \"over-long \xc0\xaf\"}",
        b"\xff\xfe{\x00}\x00",
        b"\x00",
        b"name=a",
        b"<name>a</name>",
        b"{\"unknown\": 1}",
        deep.as_bytes(),
        nested.as_bytes(),
    ];
    for &call in EVERY_FAMILY.iter().chain(OPTIONAL) {
        for body in bodies {
            let reply = send(call, "application/json", body.to_vec());
            let said = String::from_utf8_lossy(&body[..body.len().min(60)]);
            let said = format!("{call:?} {said:?} → {}", reply.text);
            assert_eq!((reply.status, reply.code()), (400, "InvalidRequest"), "{said}");
            reply.refused(400, "InvalidRequest");
        }
        send(call, "text/plain", b"{}".to_vec()).refused(415, "UnsupportedMediaType");
        let long = send(call, "application/json", vec![b' '; MIB + 1]);
        match call.1.ends_with("/batch") {
            true => long.refused(400, "InvalidRequest"),
            false => long.refused(413, "PayloadTooLarge"),
        };
    }
    for &call in EVERY_FAMILY {
        for empty in ["", " "] {
            send(call, "application/json", empty.into()).refused(400, "InvalidRequest");
        }
    }
    assert_eq!(server.ledger().get("/limits").ok().items().len(), 0);
    assert_eq!(server.limiter().get("/rules").ok().items().len(), 0);
}

/// A struct that can also be read from a list would take this for a limit named `sneaky`.
#[test]
fn a_list_is_not_an_object() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    for (path, body) in [
        ("/limits", json!(["sneaky"])),
        ("/limits", json!(["sneaky", null, null, null])),
        ("/hold", json!(["op", [{"limit_name": "a", "value": 1}]])),
        ("/hold", json!(["op", [{"limit_name": "a", "value": 1}], false, false, null])),
        ("/commit", json!(["op"])),
        ("/commit", json!(["op", null])),
        ("/values", json!([["a"]])),
        ("/values", json!([["a"], null, null])),
        ("/hold/batch", json!([[]])),
    ] {
        let reply = ledger.post(path, body.clone());
        assert_eq!(reply.status, 400, "POST {path} {body} → {}", reply.text);
        reply.refused(400, "InvalidRequest");
    }
    assert_eq!(ledger.limit_names(100), ["a"]);
    ledger.values(&["a"]).ok().value("a", 0, 0);
}

#[test]
fn repeated_fields_are_refused() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    for (path, body) in [
        ("/limits", r#"{"name": "x", "name": "y"}"#),
        (
            "/hold",
            r#"{"operation_id": "x", "operation_id": "y", "changes": [{"limit_name": "a", "value": 1}]}"#,
        ),
        ("/hold", r#"{"operation_id": "x", "changes": [{"limit_name": "a", "value": 1, "value": 2}]}"#),
        ("/commit", r#"{"operation_id": "x", "operation_id": "x"}"#),
        ("/values", r#"{"limit_names": ["a"], "limit_names": ["a"]}"#),
    ] {
        let reply = ledger.post_text(path, body);
        assert_eq!(reply.status, 400, "POST {path} {body} → {}", reply.text);
        reply.refused(400, "InvalidRequest");
    }
    ledger.values(&["a"]).ok().value("a", 0, 0);
}

#[test]
fn deep_nesting_is_refused() {
    let server = Server::fresh();
    let ledger = server.ledger();
    let depth = 200_000;
    for path in CALLS {
        for (open, prefix) in [
            ("[", ""),
            ("{\"a\":", ""),
            ("[", "{\"name\":"),
            ("[", "{\"operations\":"),
            ("{\"a\":", "{\"context\":"),
        ] {
            let body = format!("{prefix}{}", open.repeat(depth / open.len()));
            ledger.post_text(path, body).refused(400, "InvalidRequest");
        }
        let closed = format!("{{\"name\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        ledger.post_text(path, closed).refused(400, "InvalidRequest");
    }
    ledger.create("still alive");
}

#[test]
fn an_empty_body_is_valid_if_all_fields_are_optional() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create_with_ceiling("a", 5);
    Reply::to(ledger.request("PATCH", "/limits/a")).ok().has("ceiling", 5);
    Reply::to(ledger.request("PATCH", "/limits/a").header("content-type", "application/json")).ok();
    for path in CALLS {
        Reply::to(ledger.request("POST", path)).refused(400, "InvalidRequest");
    }
}

#[test]
fn bodies_must_have_the_content_type_of_json() {
    let server = Server::fresh();
    let ledger = server.ledger();
    let send = |name: &str, media: Option<&str>| {
        let request = ledger.request("POST", "/limits").body(json!({"name": name}).to_string());
        Reply::to(match media {
            Some(media) => request.header("content-type", media),
            None => request,
        })
    };
    send("none", None).created();
    for media in [
        "application/json",
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
        "Application/JSON",
        "application/json ; charset=\"utf-8\"",
    ] {
        let reply = send(media, Some(media));
        assert_eq!(reply.status, 201, "Content-Type {media:?} → {}", reply.text);
    }
    for media in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/xml",
        "application/jsonp",
        "application/octet-stream",
        "text/html; charset=application/json",
    ] {
        send("refused", Some(media)).refused(415, "UnsupportedMediaType");
        let patch =
            ledger.request("PATCH", "/limits/none").header("content-type", media).body("{\"ceiling\": 1}");
        Reply::to(patch).refused(415, "UnsupportedMediaType");
    }
    ledger.limit("refused").refused(404, "LimitNotFound");
    assert!(ledger.limit("none").ok().body["ceiling"].is_null());
}

#[test]
fn a_body_has_up_to_1_mib() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.post_text("/limits", limit_of_length("exact", MIB)).created();
    ledger.post_text("/limits", limit_of_length("over", MIB + 1)).refused(413, "PayloadTooLarge");
    for path in ["/limits", "/hold", "/commit", "/rollback", "/values"] {
        ledger.post_text(path, limit_of_length("over", MIB + 1)).refused(413, "PayloadTooLarge");
        ledger.post_text(path, limit_of_length("over", 5 * MIB)).refused(413, "PayloadTooLarge");
    }
    let patch = ledger.request("PATCH", "/limits/exact").body(limit_of_length("over", MIB + 1));
    Reply::to(patch).refused(413, "PayloadTooLarge");
    ledger.limit("over").refused(404, "LimitNotFound");
}

#[test]
fn a_batch_has_up_to_16_mib() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    let batch = |operation: &str, length: usize| {
        let body = crate::ledger::batch(vec![crate::ledger::hold(operation, &[("a", 1)])]);
        let mut body = body.to_string().into_bytes();
        body.resize(length, b' ');
        body
    };
    ledger.post_text("/hold/batch", batch("exact", 16 * MIB)).ok();
    for path in ["hold", "commit", "rollback"] {
        let path = format!("/v1/ledger/{path}/batch");
        let request = raw::request("POST", &path, "", &batch("over", 16 * MIB + 1));
        raw::ask(server.address(), request).refused(413, "PayloadTooLarge");
    }
    ledger.values(&["a"]).ok().value("a", 0, 1);
}

/// A client that sends its whole request before it reads can still read the answer.
#[test]
fn chunked_bodies_are_bounded() {
    let server = Server::fresh();
    let chunked = |body: &[u8]| {
        let mut bytes =
            b"POST /v1/ledger/limits HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
                .to_vec();
        for chunk in body.chunks(60_000) {
            bytes.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
            bytes.extend(chunk);
            bytes.extend(b"\r\n");
        }
        bytes.extend(b"0\r\n\r\n");
        bytes
    };
    for (name, length, status) in
        [("small", 100, 201), ("exact", MIB, 201), ("over", MIB + 1, 413), ("far over", 7 * MIB, 413)]
    {
        let mut connection = raw::Connection::open(server.address());
        connection.send(chunked(&limit_of_length(name, length)));
        let reply = connection.receive();
        assert_eq!(reply.status, status, "{name}: {}", reply.text);
        if status == 413 {
            reply.refused(413, "PayloadTooLarge");
        }
    }
    server.ledger().limit("over").refused(404, "LimitNotFound");
}

#[test]
fn text_is_returned_unchanged() {
    let mut server = Server::fresh();
    let texts = [
        "\"quoted\" \\ / back",
        "ünïcödé",
        "日本語",
        "🌮🌯",
        "e\u{301} ≠ é",
        "\u{feff}bom",
        "<b>&amp;</b>",
        "\u{202e}rtl",
    ];
    let context =
        json!(texts.iter().map(|text| ((*text).to_owned(), json!(text))).collect::<serde_json::Map<_, _>>());
    let check = |ledger: &Ledger, text: &str| {
        ledger.limit(text).ok().has("name", text).has("context", context.clone());
        ledger.operation(text).ok().has("operation_id", text);
    };
    for text in texts {
        let ledger = server.ledger();
        ledger.post("/limits", json!({"name": text, "context": context})).created().has("name", text);
        ledger.hold(text, &[(text, 1)]).ok().value(text, 0, 1);
        check(&ledger, text);
    }
    // The same text, escaped in the request.
    let ledger = server.ledger();
    ledger.post_text("/limits", r#"{"name": "\ud83c\udf2e\uD83C\uDF2F"}"#).refused(409, "DuplicateLimitName");
    server.restart();
    for text in texts {
        check(&server.ledger(), text);
        server.ledger().get(&format!("/limits/{}/entries", encode(text))).ok();
    }
}
