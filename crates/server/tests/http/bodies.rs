//! What is read as a body: JSON, its fields, types, sizes and pace.

use super::*;

#[tokio::test]
async fn bodies_that_do_not_parse_or_validate_name_the_field() {
    let server = start().await;
    let check = async |path: &str, body: &str, field: &str| {
        let problem = problem_of(server.send("POST", path, body).await, 400, "InvalidRequest").await;
        assert_eq!(problem["field"], field, "{body:.300} gave {problem}");
        server.nothing_asked();
    };
    // Not JSON, or not an object.
    check("/v1/ledger/hold", "", "body").await;
    check("/v1/ledger/hold", " ", "body").await;
    check("/v1/ledger/hold", "hello", "body").await;
    check("/v1/ledger/hold", "null", "body").await;
    check("/v1/ledger/hold", "[]", "body").await;
    check("/v1/ledger/hold", r#"["op", [{"limit_name": "a", "value": 1}]]"#, "body").await;
    check("/v1/ledger/hold", "\u{feff}{}", "body").await;
    check("/v1/ledger/hold", r#"{"operation_id": "op", "changes": [}"#, "body").await;
    check("/v1/ledger/hold", r#"{"operation_id": "op""#, "body").await;
    check("/v1/ledger/hold", &format!("{HOLD} x"), "body").await;
    check("/v1/ledger/hold", &format!("{HOLD}{HOLD}"), "body").await;
    check("/v1/ledger/hold", &"[".repeat(100_000), "body").await;
    check("/v1/ledger/hold", &r#"{"changes":"#.repeat(50_000), "changes").await;
    check("/v1/ledger/limits", &format!(r#"{{"name": "a", "context": {}"#, "[".repeat(500)), "context").await;
    // Unknown, missing, repeated.
    check("/v1/ledger/hold", "{}", "operation_id").await;
    check("/v1/ledger/hold", r#"{"operation_id": "op"}"#, "changes").await;
    check("/v1/ledger/hold", r#"{"operation": "op"}"#, "operation").await;
    check(
        "/v1/ledger/hold",
        r#"{"operation_id": "op", "changes": [{"limit_nam": "a"}]}"#,
        "changes[0].limit_nam",
    )
    .await;
    check(
        "/v1/ledger/hold",
        r#"{"operation_id": "op", "changes": [{"limit_name": "a"}]}"#,
        "changes[0].value",
    )
    .await;
    check("/v1/ledger/hold", r#"{"operation_id": "a", "operation_id": "b"}"#, "operation_id").await;
    let twice = r#"{"operation_id": "op", "changes": [{"limit_name": "a", "value": 1, "value": 2}]}"#;
    check("/v1/ledger/hold", twice, "changes[0].value").await;
    check("/v1/ledger/limits", r#"{"name": "a", "context": {"k": "1", "k": "2"}}"#, "context.k").await;
    // Types.
    check("/v1/ledger/hold", r#"{"operation_id": 5}"#, "operation_id").await;
    check("/v1/ledger/hold", r#"{"operation_id": null}"#, "operation_id").await;
    check("/v1/ledger/hold", r#"{"operation_id": "op", "changes": {}}"#, "changes").await;
    check("/v1/ledger/hold", r#"{"operation_id": "op", "changes": [["a", 1]]}"#, "changes[0]").await;
    check("/v1/ledger/hold", r#"{"operation_id": "op", "skip_existing_holds": 1}"#, "skip_existing_holds")
        .await;
    for wrong in
        ["1.0", "1e3", "\"1\"", "9223372036854775808", "-9223372036854775809", "1e999", "true", "null"]
    {
        let body =
            format!(r#"{{"operation_id": "op", "changes": [{{"limit_name": "a", "value": {wrong}}}]}}"#);
        check("/v1/ledger/hold", &body, "changes[0].value").await;
    }
    check("/v1/ledger/limits", r#"{"name": "a", "ceiling": 1.5}"#, "ceiling").await;
    check("/v1/ledger/limits", r#"{"name": "a", "context": {"k": 1}}"#, "context.k").await;
    check("/v1/ledger/values", r#"{"limit_names": ["a"], "position": -1}"#, "position").await;
    for wrong in ["\"10\"", "\"\"", "\"1.5s\"", "-1", "1.5", "true", "\"0ms\"", "0", "\"367d\"", "60"] {
        let body = HOLD.replacen('{', &format!(r#"{{"expires_after": {wrong}, "#), 1);
        check("/v1/ledger/hold", &body, "expires_after").await;
    }
    for wrong in ["\"10s\"", "-1", "1.5", "0", "31622400001"] {
        let body = HOLD.replacen('{', &format!(r#"{{"expires_after_ms": {wrong}, "#), 1);
        check("/v1/ledger/hold", &body, "expires_after_ms").await;
    }
    for millis in ["null", "1"] {
        let body =
            format!(r#"{{"operation_id": "op", "expires_after": null, "expires_after_ms": {millis}}}"#);
        check("/v1/ledger/extend", &body, "expires_after_ms").await;
    }
    // Names and lists.
    check("/v1/ledger/limits", r#"{"name": ""}"#, "name").await;
    check("/v1/ledger/limits", r#"{"name": ".."}"#, "name").await;
    check("/v1/ledger/limits", r#"{"name": "a\n"}"#, "name").await;
    check("/v1/ledger/limits", &json!({"name": "x".repeat(257)}).to_string(), "name").await;
    check("/v1/ledger/limits", r#"{"name": "a", "limit_id": ""}"#, "limit_id").await;
    check("/v1/ledger/limits", r#"{"name": "a", "context": {"": "v"}}"#, "context.").await;
    check(
        "/v1/ledger/limits",
        &json!({"name": "a", "context": {"k": "v".repeat(1025)}}).to_string(),
        "context.k",
    )
    .await;
    let context: serde_json::Map<_, _> = (0..65).map(|n| (n.to_string(), json!("v"))).collect();
    check("/v1/ledger/limits", &json!({"name": "a", "context": context}).to_string(), "context").await;
    check(
        "/v1/ledger/hold",
        r#"{"operation_id": "", "changes": [{"limit_name": "a", "value": 1}]}"#,
        "operation_id",
    )
    .await;
    check("/v1/ledger/hold", r#"{"operation_id": "op", "changes": []}"#, "changes").await;
    let many: Vec<Json> = (0..65).map(|n| json!({"limit_name": format!("l{n}"), "value": 1})).collect();
    check("/v1/ledger/hold", &json!({"operation_id": "op", "changes": many}).to_string(), "changes").await;
    let twice = json!({"operation_id": "op", "changes": [{"limit_name": "a", "value": 1}, {"limit_name": "a", "value": 2}]});
    check("/v1/ledger/hold", &twice.to_string(), "changes[1].limit_name").await;
    check("/v1/ledger/commit", &twice.to_string(), "changes[1].limit_name").await;
    check("/v1/ledger/rollback", r#"{"operation_id": "op", "changes": []}"#, "changes").await;
    check("/v1/ledger/values", r#"{"limit_names": []}"#, "limit_names").await;
    check("/v1/ledger/values", r#"{"limit_names": ["a", "b", "a"]}"#, "limit_names[2]").await;
    check("/v1/ledger/values", r#"{"limit_names": ["a", ""]}"#, "limit_names[1]").await;
    check("/v1/ledger/values", r#"{"limit_names": ["a"], "operation_id": "op", "position": 1}"#, "position")
        .await;
    // Batches as a whole.
    check("/v1/ledger/hold/batch", r#"{"operations": []}"#, "operations").await;
    check("/v1/ledger/hold/batch", r#"{"operation": []}"#, "operation").await;
    check("/v1/ledger/hold/batch", r#"{"operations": {}}"#, "operations").await;
    let item = json!({"operation_id": "op"});
    check("/v1/ledger/commit/batch", &json!({"operations": vec![item; 8193]}).to_string(), "operations")
        .await;
    // What a client sends is not repeated at any length.
    let long = json!({"x".repeat(MIB / 2): 1}).to_string();
    let answer = server.send("POST", "/v1/ledger/hold", &long).await.text().await.unwrap();
    assert!(answer.len() < 4096);
}

#[tokio::test]
async fn invalid_utf8_in_a_body() {
    let server = start().await;
    let body = b"{\"operation_id\": \"\xff\"}".to_vec();
    let response = server.request("POST", "/v1/ledger/hold").body(body).send().await.unwrap();
    assert_eq!(problem_of(response, 400, "InvalidRequest").await["field"], "body");
}

#[tokio::test]
async fn bodies_become_commands() {
    let server = start().await;
    let check = async |method: &str, path: &str, body: &str, status: u16, expect: ledger::Command| {
        let response = server.send(method, path, body).await;
        assert_eq!(response.status().as_u16(), status, "{body}");
        assert_eq!(response.headers()["content-type"], "application/json");
        let asked = server.last_asked();
        assert_eq!(asked.command, Command::Ledger(expect), "{body}");
        assert_eq!((asked.namespace.as_str(), asked.idempotency), ("default", None));
    };
    let new = |limit_id, context, ceiling| {
        ledger::Command::CreateLimit(ledger::NewLimit {
            limit_id,
            context,
            ceiling,
            ..ledger::NewLimit::new(name("a"))
        })
    };
    check("POST", "/v1/ledger/limits", r#"{"name": "a"}"#, 201, new(None, Default::default(), None)).await;
    let full = r#"{"name": "a", "limit_id": "7", "context": {"k": "v"}, "ceiling": -9223372036854775808}"#;
    let context = || ledger::Context::new([("k", "v")]).unwrap();
    check("POST", "/v1/ledger/limits", full, 201, new(Some(name("7")), context(), Some(i64::MIN))).await;
    let patched = |ceiling, context| {
        let patch = ledger::LimitPatch { ceiling, context };
        ledger::Command::PatchLimit { name: name("a"), patch }
    };
    check("PATCH", "/v1/ledger/limits/a", "", 200, patched(Patch::Keep, Patch::Keep)).await;
    check("PATCH", "/v1/ledger/limits/a", "{}", 200, patched(Patch::Keep, Patch::Keep)).await;
    let body = r#"{"ceiling": null, "context": {"k": "v"}}"#;
    check("PATCH", "/v1/ledger/limits/a", body, 200, patched(Patch::Remove, Patch::Set(context()))).await;
    let body = r#"{"ceiling": 0, "context": null}"#;
    check("PATCH", "/v1/ledger/limits/a", body, 200, patched(Patch::Set(0), Patch::Remove)).await;
    let change = ledger::Change {
        limit_name: name("a"),
        value: i64::MAX,
        limit_id: Some(name("7")),
        context: context(),
        ceiling: Some(-1),
    };
    let hold = ledger::Hold::new(name("op"), vec![change])
        .unwrap()
        .with_skip_existing_holds(true)
        .with_create_missing(true)
        .with_expires_after(Some(Millis(90_000)))
        .unwrap();
    let body = r#"{"operation_id": "op", "changes": [{"limit_name": "a", "value": 9223372036854775807,
        "limit_id": "7", "context": {"k": "v"}, "ceiling": -1}], "skip_existing_holds": true, "create_missing": true,
        "expires_after": "1m30s"}"#;
    check("POST", "/v1/ledger/hold", body, 200, ledger::Command::Transfer(Transfer::Hold(hold))).await;
    let extended = |span| ledger::Command::Extend(ledger::Extend::new(name("op"), span).unwrap());
    let body = r#"{"operation_id": "op", "expires_after": "1m"}"#;
    check("POST", "/v1/ledger/extend", body, 200, extended(Some(Millis(60_000)))).await;
    for body in [
        r#"{"operation_id": "op", "expires_after": null}"#,
        r#"{"operation_id": "op", "expires_after_ms": null}"#,
    ] {
        check("POST", "/v1/ledger/extend", body, 200, extended(None)).await;
    }
    let finished = |finish, changes| {
        let finalization = ledger::Finalization::new(name("op"), changes).unwrap();
        ledger::Command::Transfer(Transfer::Finish(finish, finalization))
    };
    check(
        "POST",
        "/v1/ledger/commit",
        r#"{"operation_id": "op"}"#,
        200,
        finished(ledger::Finish::Commit, None),
    )
    .await;
    let changes = vec![ledger::FinalizationChange { limit_name: name("a"), value: Some(-3) }];
    let body = r#"{"operation_id": "op", "changes": [{"limit_name": "a", "value": -3}]}"#;
    check("POST", "/v1/ledger/rollback", body, 200, finished(ledger::Finish::Rollback, Some(changes))).await;
    let values =
        |as_of| ledger::Command::Values(ledger::Values::new(vec![name("b"), name("a")], as_of).unwrap());
    check("POST", "/v1/ledger/values", r#"{"limit_names": ["b", "a"]}"#, 200, values(AsOf::Now)).await;
    let body = r#"{"limit_names": ["b", "a"], "operation_id": "op"}"#;
    check("POST", "/v1/ledger/values", body, 200, values(AsOf::Operation(name("op")))).await;
    let body = r#"{"limit_names": ["b", "a"], "position": 0}"#;
    check("POST", "/v1/ledger/values", body, 200, values(AsOf::Position(Position(0)))).await;
    check("GET", "/v1/ledger/operations/op", "", 200, ledger::Command::GetOperation(name("op"))).await;
}

#[tokio::test]
async fn content_types() {
    let server = start().await;
    let check = async |header: (&str, &str), status: u16| {
        let request = server.request("POST", "/v1/ledger/hold").header(header.0, header.1).body(HOLD);
        let response = request.send().await.unwrap();
        if status == 415 {
            problem_of(response, 415, "UnsupportedMediaType").await;
        } else {
            assert_eq!(response.status().as_u16(), status, "{header:?}");
        }
    };
    check(("x-nothing", ""), 200).await;
    check(("content-type", "application/json"), 200).await;
    check(("content-type", "application/json; charset=utf-8"), 200).await;
    check(("content-type", "Application/JSON"), 200).await;
    check(("content-type", "application/vnd.limina+json"), 200).await;
    check(("content-type", "text/plain"), 415).await;
    check(("content-type", "text/json"), 415).await;
    check(("content-type", "application/jsonp"), 415).await;
    check(("content-type", "application/x-www-form-urlencoded"), 415).await;
    check(("content-encoding", "identity"), 200).await;
    check(("content-encoding", "gzip"), 415).await;
    // Each of several headers counts.
    for (codings, status) in
        [(["identity", "gzip"], 415), (["gzip", "identity"], 415), (["identity", "Identity"], 200)]
    {
        let request = server.request("POST", "/v1/ledger/hold").body(HOLD);
        let request =
            codings.iter().fold(request, |request, coding| request.header("content-encoding", *coding));
        assert_eq!(request.send().await.unwrap().status(), status, "{codings:?}");
    }
}

#[tokio::test]
async fn sizes() {
    let server = start().await;
    let check = async |path: &str, length: usize, status: u16| {
        let mut body = HOLD.to_owned();
        if path.ends_with("/batch") {
            body = format!(r#"{{"operations": [{body}]}}"#);
        }
        body.extend(std::iter::repeat_n(' ', length - body.len()));
        let response = server.send("POST", path, &body).await;
        if status == 413 {
            assert_eq!(response.headers()["connection"], "close");
            problem_of(response, 413, "PayloadTooLarge").await;
        } else {
            assert_eq!(response.status().as_u16(), status, "{path} {length}");
        }
    };
    check("/v1/ledger/hold", MIB, 200).await;
    check("/v1/ledger/hold", MIB + 1, 413).await;
    check("/v1/ledger/hold", 5 * MIB, 413).await;
    check("/v1/ledger/hold", 8 * MIB, 413).await;
    check("/v1/ledger/hold/batch", 16 * MIB, 200).await;
    check("/v1/ledger/hold/batch", 16 * MIB + 1, 413).await;
    // Also for paths that want no body the client sees the answer.
    problem_of(server.send("POST", "/nowhere", &" ".repeat(5 * MIB)).await, 404, "NotFound").await;
    // A client that asks first need not send it.
    let answer = server
        .raw(b"POST /v1/ledger/hold HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\nExpect: 100-continue\r\n\r\n")
        .await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[tokio::test]
async fn slow_bodies() {
    let server = start_with(Duration::from_millis(50)).await;
    let answer = server.raw(b"POST /v1/ledger/hold HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{").await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    assert!(answer.contains(r#""code":"RequestTimeout""#), "{answer}");
    server.nothing_asked();
}

/// Parsing a batch can cost as much as executing it. So a large body is refused before it is parsed.
#[tokio::test]
async fn an_overloaded_shard_refuses_a_large_body_unparsed() {
    let server = start().await;
    *server.fake.overloaded.lock().unwrap() = Some(Unavailable::Overloaded { retry_after_ms: 1500 });
    let large = "x".repeat(5000);
    let check = async |path: &str, body: &str, status: u16, code: &str, retry_after: Option<&str>| {
        let response = server.send("POST", path, body).await;
        let header = response.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(header.as_deref(), retry_after, "{path}");
        problem_of(response, status, code).await;
    };
    check("/v1/limiter/check/batch", &large, 503, "Overloaded", Some("2")).await;
    check("/v1/ledger/hold/batch", &large, 503, "Overloaded", Some("2")).await;
    check("/v1/ledger/hold", &large, 503, "Overloaded", Some("2")).await;
    // Small, or makes room: the shard decides.
    check("/v1/ledger/hold", "x", 400, "InvalidRequest", None).await;
    check("/v1/ledger/commit", &large, 400, "InvalidRequest", None).await;
    check("/v1/ledger/rollback/batch", &large, 400, "InvalidRequest", None).await;
    server.nothing_asked();
}
