//! The rest of a request: paths, names, query parameters, methods, idempotency keys, broken HTTP.

use super::*;

#[tokio::test]
async fn names_in_paths() {
    let server = start().await;
    let check = async |path: &str, expect: Result<(&str, &str), &str>| {
        let response = server.send("GET", path, "").await;
        match expect {
            Ok((namespace, limit)) => {
                assert_eq!(response.status().as_u16(), 200, "{path}");
                let asked = server.last_asked();
                assert_eq!(asked.namespace.as_str(), namespace, "{path}");
                assert_eq!(asked.command, Command::Ledger(ledger::Command::GetLimit(name(limit))), "{path}");
            }
            Err(field) => {
                let problem = problem_of(response, 400, "InvalidRequest").await;
                assert_eq!(problem["field"], field, "{path}");
            }
        }
    };
    check("/v1/ledger/limits/a", Ok(("default", "a"))).await;
    check("/v1/ledger/limits/a%2Fb%20c%25", Ok(("default", "a/b c%"))).await;
    check("/v1/ledger/limits/a+b", Ok(("default", "a+b"))).await;
    check("/v1/ledger/limits/%F0%9F%8C%AE", Ok(("default", "🌮"))).await;
    check("/v1/ns/shop%2F1/ledger/limits/a", Ok(("shop/1", "a"))).await;
    check("/v1/ns/ledger/ledger/limits/limits", Ok(("ledger", "limits"))).await;
    check("/v1/ledger/limits/%FF", Err("name")).await;
    check("/v1/ns/%FF/ledger/limits/a", Err("namespace")).await;
    check("/v1/ledger/limits/a%00", Err("name")).await;
    check("/v1/ledger/limits/a%0Ab", Err("name")).await;
    check("/v1/ledger/limits/", Err("name")).await;
    check("/v1/ledger/limits//entries", Err("name")).await;
    check("/v1/ns//ledger/limits/a", Err("namespace")).await;
    check("/v1/ns/n/ledger/limits/", Err("name")).await;
    check(&format!("/v1/ledger/limits/{}", "x".repeat(256)), Ok(("default", &*"x".repeat(256)))).await;
    check(&format!("/v1/ledger/limits/{}", "x".repeat(257)), Err("name")).await;
    check("/v1/ledger/operations/%01", Err("operation_id")).await;
    check("/v1/ledger/operations/", Err("operation_id")).await;
    // Clients resolve dots by themselves, so these are sent by hand.
    for path in ["/v1/ledger/limits/%2E", "/v1/ledger/limits/..", "/v1/ns/%2e%2e/ledger/limits/a"] {
        let answer = server
            .raw(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())
            .await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }
}

#[tokio::test]
async fn query_parameters() {
    let server = start().await;
    let refused = async |path: &str, field: &str| {
        let problem = problem_of(server.send("GET", path, "").await, 400, "InvalidRequest").await;
        assert_eq!(problem["field"], field, "{path}");
        server.nothing_asked();
    };
    refused("/v1/ledger/limits?limit=0", "limit").await;
    refused("/v1/ledger/limits?limit=1001", "limit").await;
    refused("/v1/ledger/limits?limit=-1", "limit").await;
    refused("/v1/ledger/limits?limit=", "limit").await;
    refused("/v1/ledger/limits?limit=1e2", "limit").await;
    refused("/v1/ledger/limits?limit=1&limit=2", "limit").await;
    refused("/v1/ledger/limits?after=", "after").await;
    refused("/v1/ledger/limits?after=%FF", "after").await;
    refused("/v1/ledger/limits?offset=3", "offset").await;
    refused("/v1/ledger/limits?state=held", "state").await;
    refused("/v1/ledger/limits/a?x=1", "x").await;
    refused("/v1/ledger/limits/a/entries?after=x", "after").await;
    refused("/v1/ledger/operations?state=committed", "state").await;
    refused("/v1/ledger/operations?older_than=60", "older_than").await;
    refused("/v1/ledger/operations?older_than=", "older_than").await;
    refused("/v1/ledger/operations?limit_name=", "limit_name").await;
    refused("/v1/ledger/limits?order=name", "order").await;
    refused("/v1/ledger/limits?order=used&after=a", "after").await;
    refused("/v1/ledger/operations/op?state=held", "state").await;
    refused("/v1/ns?limit=0", "limit").await;
    let problem =
        problem_of(server.send("POST", "/v1/ledger/hold?dry_run=1", HOLD).await, 400, "InvalidRequest").await;
    assert_eq!(problem["field"], "dry_run");

    let asked = async |path: &str, expect: ledger::Command| {
        assert_eq!(server.send("GET", path, "").await.status().as_u16(), 200, "{path}");
        assert_eq!(server.last_asked().command, Command::Ledger(expect), "{path}");
    };
    let page = |after: Option<&str>, limit| Page::new(after.map(name), limit).unwrap();
    asked("/v1/ledger/limits", ledger::Command::ListLimits(page(None, 100))).await;
    asked("/v1/ledger/limits?", ledger::Command::ListLimits(page(None, 100))).await;
    asked(
        "/v1/ledger/limits?limit=1000&after=a%26b+c",
        ledger::Command::ListLimits(page(Some("a&b c"), 1000)),
    )
    .await;
    asked("/v1/ledger/limits?order=used&limit=7", ledger::Command::ListLimitsByUse(page(None, 7))).await;
    let operations = |only_held, older_than: Option<u64>, limit_name: Option<&str>| {
        let (older_than, limit_name) = (older_than.map(Millis), limit_name.map(name));
        let filter = ledger::OperationFilter { only_held, older_than, limit_name };
        ledger::Command::ListOperations { filter, page: page(None, 100) }
    };
    asked("/v1/ledger/operations", operations(false, None, None)).await;
    asked("/v1/ledger/operations?state=held", operations(true, None, None)).await;
    asked("/v1/ledger/operations?older_than=0", operations(false, Some(0), None)).await;
    asked(
        "/v1/ledger/operations?older_than=1m30s&limit_name=a%2Fb",
        operations(false, Some(90_000), Some("a/b")),
    )
    .await;
    let entries = Page::new(Some(Position(7)), 1).unwrap();
    let entries = ledger::Command::ListEntries { limit_name: name("a"), page: entries };
    asked("/v1/ledger/limits/a/entries?after=7&limit=1", entries).await;
}

#[tokio::test]
async fn methods_and_paths() {
    let server = start().await;
    let check = async |method: &str, path: &str, allow: &[&str]| {
        let response = server.send(method, path, "").await;
        if allow.is_empty() {
            problem_of(response, 404, "NotFound").await;
        } else {
            let found = response.headers()["allow"].to_str().unwrap().to_owned();
            let found: BTreeSet<&str> = found.split(',').map(str::trim).collect();
            assert_eq!(found, allow.iter().copied().collect(), "{method} {path}");
            problem_of(response, 405, "MethodNotAllowed").await;
        }
    };
    check("POST", "/", &["GET", "HEAD"]).await;
    check("GET", "/v1", &[]).await;
    check("GET", "/v1/ledger", &[]).await;
    check("POST", "/v1/ledger/holds", &[]).await;
    check("POST", "/v1/ledger/hold/", &[]).await;
    check("GET", "/v2/ledger/limits", &[]).await;
    check("GET", "/v1/ns/n/ledger", &[]).await;
    check("GET", "/v1/ledger/hold", &["POST"]).await;
    check("DELETE", "/v1/ledger/limits", &["GET", "HEAD", "POST"]).await;
    check("PUT", "/v1/ns/n/ledger/limits/a", &["DELETE", "GET", "HEAD", "PATCH"]).await;
    check("OPTIONS", "/v1/ledger/operations", &["GET", "HEAD"]).await;
    check("BREW", "/healthz", &["GET", "HEAD"]).await;
    check("GET", "/v1/ns/n", &["DELETE"]).await;
    for path in ["/v1/ledger/limits", "/v1/ledger/limits/a", "/v1/ns", "/healthz", "/docs", "/openapi.json"] {
        let response = server.send("HEAD", path, "").await;
        assert_eq!(response.status().as_u16(), 200, "{path}");
        assert_eq!(response.bytes().await.unwrap().len(), 0, "{path}");
    }
    let head = server.send("HEAD", "/v1/ledger/hold", "").await;
    assert_eq!(head.status().as_u16(), 405);
}

#[tokio::test]
async fn malformed_http() {
    let server = start().await;
    let check = async |bytes: &[u8], start: &str| {
        let answer = server.raw(bytes).await;
        assert!(answer.starts_with(start), "{:?} gave {answer:?}", String::from_utf8_lossy(bytes));
    };
    check(b"hello\r\n\r\n", "HTTP/1.1 400 ").await;
    check(b"GET /healthz HTTP/1.1\r\nbad header\r\n\r\n", "HTTP/1.1 400 ").await;
    check(b"POST /v1/ledger/hold HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n", "HTTP/1.1 400 ").await;
    let chunked = b"POST /v1/ledger/hold HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
    check(chunked, "HTTP/1.1 400 ").await;
    let long = format!("GET /healthz HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(MIB));
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    // The server may answer and close before all of it is sent.
    let _ = stream.write_all(long.as_bytes()).await;
    let mut answer = [0; 12];
    if stream.read_exact(&mut answer).await.is_ok() {
        assert_eq!(&answer, b"HTTP/1.1 431");
    }
    // The old protocol still works.
    check(b"GET /healthz HTTP/1.0\r\n\r\n", "HTTP/1.0 200 ").await;
    // And after all of it, so does the server.
    assert_eq!(server.send("GET", "/healthz", "").await.text().await.unwrap(), "ok");
}

/// A proxy and the server could otherwise take one request for requests to two different hosts.
#[tokio::test]
async fn a_request_has_one_host() {
    let server = start().await;
    let check = async |line: &str, hosts: &[&str], status: u16| {
        let hosts: String = hosts.iter().map(|host| format!("Host:{host}\r\n")).collect();
        let answer = server.raw(format!("{line}\r\n{hosts}Connection: close\r\n\r\n").as_bytes()).await;
        assert_eq!(answer[9..12], status.to_string(), "{line} {hosts:?} gave {answer}");
        if status == 400 {
            assert!(answer.contains(r#""code":"InvalidRequest""#), "{answer}");
            assert!(answer.contains(r#""field":"Host""#), "{answer}");
        }
    };
    for line in
        ["GET /v1/ns HTTP/1.1", "GET /healthz HTTP/1.1", "GET /nowhere HTTP/1.1", "OPTIONS * HTTP/1.1"]
    {
        check(line, &[], 400).await;
        check(line, &["a", "b"], 400).await;
        check(line, &["a", "a"], 400).await;
    }
    // The line may name the host too. That replaces no header.
    check("GET http://a/v1/ns HTTP/1.1", &[], 400).await;
    check("GET http://a/v1/ns HTTP/1.1", &["a"], 200).await;
    for host in [" a", "", " a:80", " [::1]:7070", " xn--caf-dma.example", " a_b.c~d"] {
        check("GET /v1/ns HTTP/1.1", &[host], 200).await;
    }
    for host in [" a b", " a/b", " user@a", " a?b", " \u{e9}"] {
        check("GET /v1/ns HTTP/1.1", &[host], 400).await;
    }
    // The old protocol has no such header, but a request that has it has it once.
    check("GET /v1/ns HTTP/1.0", &[], 200).await;
    check("GET /v1/ns HTTP/1.0", &["a"], 200).await;
    check("GET /v1/ns HTTP/1.0", &["a", "b"], 400).await;
    server.nothing_asked();
}

#[tokio::test]
async fn idempotency_keys() {
    let server = start().await;
    let send = async |path: &str, keys: &[&[u8]], body: &str| {
        let mut request = server.request("POST", path).body(body.to_owned());
        for key in keys {
            request =
                request.header("Idempotency-Key", reqwest::header::HeaderValue::from_bytes(key).unwrap());
        }
        request.send().await.unwrap()
    };
    let check = async |key: &[u8], expect: Option<&str>| {
        let response = send("/v1/ledger/hold", &[key], HOLD).await;
        match expect {
            Some(expect) => {
                assert_eq!(response.status().as_u16(), 200);
                assert_eq!(server.last_asked().idempotency.unwrap().key.as_str(), expect);
            }
            None => {
                let problem = problem_of(response, 400, "InvalidRequest").await;
                assert_eq!(problem["field"], "Idempotency-Key");
            }
        }
    };
    check(b"k", Some("k")).await;
    check(b"\"k\"", Some("k")).await;
    check(b"\"\"k\"\"", Some("\"k\"")).await;
    check(b"\"k", Some("\"k")).await;
    check(b"\"", Some("\"")).await;
    check("ключ".as_bytes(), Some("ключ")).await;
    check("x".repeat(256).as_bytes(), Some(&"x".repeat(256))).await;
    check(format!("\"{}\"", "x".repeat(256)).as_bytes(), Some(&"x".repeat(256))).await;
    check("x".repeat(257).as_bytes(), None).await;
    check(b"", None).await;
    check(b"\"\"", None).await;
    check(b"\xff", None).await;
    check(b"a\tb", None).await;
    let problem = problem_of(send("/v1/ledger/hold", &[b"a", b"b"], HOLD).await, 400, "InvalidRequest").await;
    assert_eq!(problem["field"], "Idempotency-Key");

    // A key belongs to namespace, method, path and body; both forms of the default namespace are one.
    let fingerprint = async |path: &str, body: &str| {
        assert!(send(path, &[b"k"], body).await.status().is_success(), "{path} {body}");
        server.last_asked().idempotency.unwrap().fingerprint
    };
    let first = fingerprint("/v1/ledger/hold", HOLD).await;
    assert_eq!(fingerprint("/v1/ledger/hold", HOLD).await, first);
    assert_eq!(fingerprint("/v1/ns/default/ledger/hold", HOLD).await, first);
    assert_ne!(fingerprint("/v1/ns/other/ledger/hold", HOLD).await, first);
    assert_ne!(fingerprint("/v1/ledger/hold", &format!("{HOLD} ")).await, first);
    let finish = r#"{"operation_id": "op"}"#;
    let commit = fingerprint("/v1/ledger/commit", finish).await;
    assert_ne!(fingerprint("/v1/ledger/rollback", finish).await, commit);
    // Reads take none, not even a wrong one.
    assert_eq!(
        send("/v1/ledger/values", &[b"\xff"], r#"{"limit_names": ["a"]}"#).await.status().as_u16(),
        200
    );
    assert_eq!(server.last_asked().idempotency, None);

    server.answers(Ok(Outcome::IdempotencyKeyReused));
    problem_of(send("/v1/ledger/hold", &[b"k"], HOLD).await, 422, "IdempotencyKeyReused").await;
}
