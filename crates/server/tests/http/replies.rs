//! What is answered: statuses, problem documents, the form of replies, batches.

use super::*;

/// No browser takes an answer for a page or a script because of what a client has written into it.
#[tokio::test]
async fn no_answer_may_be_sniffed() {
    let server = start().await;
    let is_marked =
        |answer: &str| answer.lines().filter(|line| *line == "x-content-type-options: nosniff").count() == 1;
    for (line, status) in [
        ("GET /v1/ledger/limits", 200),
        ("HEAD /v1/ledger/limits", 200),
        ("DELETE /v1/ns/n", 204),
        ("GET /healthz", 200),
        ("GET /metrics", 200),
        ("GET /docs", 200),
        ("GET /docs/docs.js", 200),
        ("GET /openapi.json", 200),
        ("GET /console/app.js", 200),
        ("GET /", 307),
        ("POST /v1/ledger/hold", 400),
        ("GET /nowhere", 404),
        ("POST /v1/ns", 405),
    ] {
        let request = format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let answer = server.raw(request.as_bytes()).await;
        assert_eq!(answer[9..12], status.to_string(), "{line}: {answer}");
        assert!(is_marked(&answer), "{line}: {answer}");
    }
    let full = start_app(AppOptions { max_connections: 1, ..anyone() }).await;
    let _held = connected(&full).await;
    let answer = full.raw(b"").await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && is_marked(&answer), "{answer}");
}

/// A connection that the server has accepted.
async fn connected(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = [0; 15];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    stream
}

#[tokio::test]
async fn refusals_have_their_status_and_members() {
    let server = start().await;
    let check = async |answer: Result<Outcome, Unavailable>, status: u16, code: &str, members: Json| {
        server.answers(answer);
        let problem = problem_of(server.send("POST", "/v1/ledger/hold", HOLD).await, status, code).await;
        let mut found = problem.as_object().unwrap().clone();
        found.retain(|key, _| {
            !["type", "title", "status", "detail", "code", "request_id"].contains(&key.as_str())
        });
        assert_eq!(Json::Object(found), members, "{code}");
    };
    let refused = |refusal| Ok(Outcome::Ledger(Err(refusal)));
    let op = || name("op");
    let committed = HoldState::Committed { value: 1, at: Position(3) };
    let rolled_back = HoldState::RolledBack { at: Position(3), expired: true };
    let limit_names = || vec![name("a"), name("b")];
    let both = |mut others: Json| {
        others["limit_name"] = json!("a");
        others["limit_names"] = json!(["a", "b"]);
        others
    };
    let refusal = refused(Refusal::DuplicateLimitName { limit_name: name("a") });
    check(refusal, 409, "DuplicateLimitName", json!({"limit_name": "a"})).await;
    let refusal = refused(Refusal::LimitNotFound { limit_names: limit_names() });
    check(refusal, 404, "LimitNotFound", both(json!({}))).await;
    let refusal =
        |limit_name, state| refused(Refusal::OperationNotFound { operation_id: op(), limit_name, state });
    check(refusal(None, None), 404, "OperationNotFound", json!({"operation_id": "op"})).await;
    let members = json!({"operation_id": "op", "limit_name": "a", "state": "rolled_back"});
    check(refusal(Some(name("a")), Some(rolled_back)), 404, "OperationNotFound", members).await;
    let limits = vec![(name("a"), committed), (name("b"), rolled_back)];
    let refusal = refused(Refusal::OperationAlreadyInFinalState { operation_id: op(), limits });
    let members = both(json!({"operation_id": "op", "state": "committed"}));
    check(refusal, 409, "OperationAlreadyInFinalState", members).await;
    let limits = vec![(name("a"), 5), (name("b"), -5)];
    let refusal = refused(Refusal::DuplicateOperation { operation_id: op(), limits });
    let held = json!([{"limit_name": "a", "held_value": 5}, {"limit_name": "b", "held_value": -5}]);
    let members = json!({"operation_id": "op", "held_value": 5, "limits": held});
    check(refusal, 409, "DuplicateOperation", both(members)).await;
    let limit = |limit: &str, ceiling| ExceededLimit {
        limit_name: name(limit),
        ceiling,
        commit_value: 3,
        hold_value: -1,
        available: 2,
    };
    let refusal = refused(Refusal::LimitExceeded { limits: vec![limit("a", 5), limit("b", -5)] });
    let limit = |limit: &str, ceiling: i64| json!({"limit_name": limit, "ceiling": ceiling, "commit_value": 3, "hold_value": -1, "available": 2});
    let limits = [limit("a", 5), limit("b", -5)];
    check(refusal, 409, "LimitExceeded", both(json!({"limits": limits}))).await;
    let refusal = refused(Refusal::LimitInUse { limit_name: name("a"), open_holds: 3 });
    check(refusal, 409, "LimitInUse", json!({"limit_name": "a", "open_holds": 3})).await;
    let refusal = refused(Refusal::ValueOverflow { limit_names: limit_names() });
    check(refusal, 409, "ValueOverflow", both(json!({}))).await;
    let refusal =
        refused(Refusal::CommitExceedsHold { operation_id: op(), limit_name: name("a"), held: 5, value: 6 });
    let members = json!({"operation_id": "op", "limit_name": "a", "held_value": 5, "value": 6});
    check(refusal, 409, "CommitExceedsHold", members).await;
    let refusal = refused(Refusal::OperationTooLarge { operation_id: op() });
    check(refusal, 400, "InvalidRequest", json!({"operation_id": "op", "field": "changes"})).await;
    let refusal = refused(Refusal::PositionNotReached { current: Position(7) });
    check(refusal, 400, "InvalidRequest", json!({"field": "position", "current_position": 7})).await;
    let none = || json!({});
    let refusal = refused(Refusal::LimitsValuesReadingException);
    check(refusal, 503, "LimitsValuesReadingException", none()).await;
    check(refused(Refusal::Unreadable), 503, "ShardUnavailable", none()).await;
    let exceeded =
        limina_engine::QuotaExceeded { quota: limina_engine::Quota::LedgerLimits, limit: 5, used: 4 };
    let members = json!({"quota": "ledger_limits", "limit": 5, "used": 4});
    check(refused(Refusal::QuotaExceeded(exceeded)), 507, "QuotaExceeded", members).await;
    check(Ok(Outcome::Unreadable), 503, "ShardUnavailable", none()).await;
    check(Ok(Outcome::IdempotencyKeyReused), 422, "IdempotencyKeyReused", none()).await;
    check(Err(Unavailable::Overloaded { retry_after_ms: 10 }), 503, "Overloaded", none()).await;
    check(Err(Unavailable::MemoryFull), 503, "Overloaded", none()).await;
    check(Err(Unavailable::ShuttingDown), 503, "ShuttingDown", none()).await;
    check(Err(Unavailable::StorageFull), 503, "StorageFull", none()).await;
    check(Err(Unavailable::ShardUnavailable), 503, "ShardUnavailable", none()).await;
    check(Err(Unavailable::OutcomeUnknown), 503, "OutcomeUnknown", none()).await;
}

#[tokio::test]
async fn replies_have_their_form() {
    let server = start().await;
    let check = async |reply: Reply, expect: Json| {
        server.answers(Ok(Outcome::Ledger(Ok(reply))));
        let response = server.send("GET", "/v1/ledger/limits/a", "").await;
        assert_eq!(response.status().as_u16(), 200);
        assert_eq!(response.json::<Json>().await.unwrap(), expect);
    };
    let limit_json = |text: &str| {
        json!({"name": text, "limit_id": null, "context": {"k": "v"}, "ceiling": 9, "commit_value": 5,
            "hold_value": -2, "total_value": 3, "available": 4, "created_position": 1})
    };
    let value_json =
        json!({"limit_name": "a", "limit_id": null, "commit_value": 5, "hold_value": -2, "total_value": 3});
    check(Reply::Limit(limit("a")), limit_json("a")).await;
    let items = || vec![limit("a"), limit("b")];
    let listed = |next: Json| json!({"items": [limit_json("a"), limit_json("b")], "next": next});
    check(Reply::Limits(Listed { items: items(), next: Some(name("b")) }), listed(json!("b"))).await;
    check(Reply::Limits(Listed { items: items(), next: None }), listed(Json::Null)).await;
    check(
        Reply::Hold(HoldReply {
            operation_id: name("op"),
            position: Position(4),
            values: vec![value("a")],
            skipped: vec![name("b")],
        }),
        json!({"operation_id": "op", "position": 4, "values": [value_json], "skipped": ["b"]}),
    )
    .await;
    let reply =
        FinalizationReply { operation_id: name("op"), position: Position(4), values: vec![value("a")] };
    check(Reply::Finalization(reply), json!({"operation_id": "op", "position": 4, "values": [value_json]}))
        .await;
    let reply = ValuesReply { position: Position(4), values: vec![value("a")] };
    check(Reply::Values(reply), json!({"position": 4, "values": [value_json]})).await;

    let hold_json = |limit: &str, state: &str, committed: Json, at: Json| {
        let (is_held, is_expired) = (state == "held", state == "rolled_back");
        let expires_in = if is_held { json!(500) } else { Json::Null };
        json!({"limit_name": limit, "limit_id": "id", "deleted": limit == "l0", "state": state, "held_value": 7,
            "committed_value": committed, "held_at": 1_600_000_000_000_u64, "hold_position": 2, "final_position": at,
            "expires_at": 1_700_000_000_000_u64, "expires_in_ms": expires_in, "expired": is_expired})
    };
    let op_json = |state: &str, holds: Json| json!({"operation_id": "op", "position": 2, "state": state, "holds": holds});
    let holds = json!([
        hold_json("l0", "rolled_back", Json::Null, json!(9)),
        hold_json("l1", "held", Json::Null, Json::Null),
        hold_json("l2", "committed", json!(6), json!(8))
    ]);
    let given = || {
        operation(
            State::Held,
            &[
                (State::RolledBack, None, Some(9)),
                (State::Held, None, None),
                (State::Committed, Some(6), Some(8)),
            ],
        )
    };
    check(Reply::Operation(given()), op_json("held", holds.clone())).await;
    let listed = json!({"items": [op_json("held", holds)], "next": "op"});
    check(Reply::Operations(Listed { items: vec![given()], next: Some(name("op")) }), listed).await;

    for (kind, word) in [
        (EntryType::Hold, "hold"),
        (EntryType::Commit, "commit"),
        (EntryType::Rollback, "rollback"),
        (EntryType::Expiry, "expiry"),
        (EntryType::Overage, "overage"),
    ] {
        let entry = Entry {
            position: Position(4),
            time: Time(1_700_000_000_000),
            operation_id: name("op"),
            kind,
            value: -1,
            commit_value: 2,
            hold_value: 3,
            total_value: 5,
        };
        let entry_json = json!({"position": 4, "time": 1_700_000_000_000_u64, "operation_id": "op", "type": word,
            "value": -1, "commit_value": 2, "hold_value": 3, "total_value": 5});
        let listed = json!({"items": [entry_json], "next": "4"});
        check(Reply::Entries(Listed { items: vec![entry], next: Some(Position(4)) }), listed).await;
    }
}

#[tokio::test]
async fn batches_answer_each_item_in_its_place() {
    let server = start().await;
    let hold = |id: &str| json!({"operation_id": id, "changes": [{"limit_name": "a", "value": 1}]});
    let empty = |id: &str| json!({"operation_id": id, "changes": []});
    let send = async |items: Vec<Json>| {
        let body = json!({"operations": items}).to_string();
        let response = server.send("POST", "/v1/ledger/hold/batch", &body).await;
        assert_eq!(response.status().as_u16(), 200);
        let answer: Json = response.json().await.unwrap();
        answer["results"].as_array().unwrap().clone()
    };
    let short = |results: &[Json]| -> Vec<String> {
        let words = results.iter().map(|result| {
            let word = result.get("code").or(result.get("operation_id")).unwrap().as_str().unwrap();
            format!("{} {word}", result["status"])
        });
        words.collect()
    };
    let results = send(vec![hold("x"), hold("y")]).await;
    assert_eq!(short(&results), ["200 x", "200 y"]);
    let mut first = results[0].clone();
    assert_eq!(first.as_object_mut().unwrap().remove("status"), Some(json!(200)));
    let single: Json =
        server.send("POST", "/v1/ledger/hold", &hold("x").to_string()).await.json().await.unwrap();
    assert_eq!(first, single, "an item is the single call's body plus its status");

    let results =
        send(vec![empty("v"), hold("w"), empty("x"), hold(""), hold("y"), hold("z"), hold(".")]).await;
    let bad = "400 InvalidRequest";
    assert_eq!(short(&results), [bad, "200 w", bad, bad, "200 y", "200 z", bad]);
    assert_eq!(results[0]["field"], "changes");
    assert_eq!(results[3]["field"], "operation_id");
    // Items that do not even parse are no different.
    let typo = json!({"operation_id": "u", "chang": []});
    let results = send(vec![typo, hold("w"), json!(7), hold("y"), hold("z")]).await;
    assert_eq!(short(&results), [bad, "200 w", bad, "200 y", "200 z"]);
    assert_eq!((&results[0]["field"], &results[2]["field"]), (&json!("chang"), &json!("body")));
    let Command::Ledger(ledger::Command::Batch(asked)) = server.last_asked().command else { panic!() };
    assert_eq!(asked.iter().map(|t| t.operation_id().as_str()).collect::<Vec<_>>(), ["w", "y", "z"]);

    let refused = Err(Refusal::ValueOverflow { limit_names: vec![name("a")] });
    let done = Ok(transferred(&asked[0]));
    server.answers(Ok(Outcome::Ledger(Ok(Reply::Batch(vec![refused, done, Err(Refusal::Unreadable)])))));
    let results = send(vec![hold("w"), empty("x"), hold("y"), hold("z")]).await;
    assert_eq!(short(&results), ["409 ValueOverflow", bad, "200 w", "503 ShardUnavailable"]);

    let asked = server.fake.asked.lock().unwrap().len();
    assert_eq!(short(&send(vec![empty("x")]).await), [bad]);
    assert_eq!(server.fake.asked.lock().unwrap().len(), asked, "there was nothing to ask");

    server.answers(Err(Unavailable::Overloaded { retry_after_ms: 10 }));
    let body = json!({"operations": [hold("x"), empty("y")]}).to_string();
    problem_of(server.send("POST", "/v1/ledger/hold/batch", &body).await, 503, "Overloaded").await;
}
