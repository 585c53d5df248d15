//! The calls about decisions.

use super::*;
use limina_engine::{
    KeyValues,
    decisions::{
        BatchItem, Command as DecisionCommand, Decision, HoldOfDecision, Refusal as DecisionRefusal, Refused,
        Reply as DecisionReply, Settle, State,
    },
    events::{EventInfo, EventPart, EventState, RefusedEvent},
    key_values::Value as KeyValue,
    ledger::RefusedHold,
    limiter::{AppliedLimit, HeldBy, LimitOfCheck},
    locks::{Lock, Mode, RefusedLock},
};

/// What the engine could answer, where a case does not care.
pub(crate) fn plausible(command: &DecisionCommand) -> DecisionReply {
    let boxed = |id: &Name| Box::new(decision(id.as_str()));
    match command {
        DecisionCommand::Decide(decide) => DecisionReply::Decided(boxed(decide.wanted.operation_id())),
        DecisionCommand::Settle(settle) => DecisionReply::Ended(boxed(&settle.operation_id)),
        DecisionCommand::Rollback(id) => DecisionReply::Ended(boxed(id)),
        DecisionCommand::Heartbeat(id) => DecisionReply::Extended(boxed(id)),
        DecisionCommand::Get(id) => DecisionReply::Decision(boxed(id)),
        DecisionCommand::Abandon { .. } => DecisionReply::Abandoned,
        DecisionCommand::List { .. } => {
            DecisionReply::Decisions(Listed { items: vec![decision("op")], next: None })
        }
        DecisionCommand::Batch(items) => {
            let done = |item: &BatchItem| Ok(DecisionReply::Decided(boxed(item.operation_id())));
            DecisionReply::Batch(items.iter().map(done).collect())
        }
    }
}

fn one(key: &str) -> KeyValues {
    KeyValues::new(vec![(key, KeyValue::<&str>::Integer(1))]).unwrap()
}

fn limit_of(check: Option<&str>, entry: u32) -> LimitOfCheck {
    let status = AppliedLimit { entry, ..limiter::limit_status("r") };
    LimitOfCheck { check: check.map(name), status, refuses: false, held_by: Vec::new() }
}

fn decision(id: &str) -> Decision {
    let event = EventInfo { event: "e".into(), time: Time(5), publishes_at: Time(6) };
    Decision {
        operation_id: name(id),
        state: State::Open,
        repeated: false,
        late: false,
        owner: Some(name("me")),
        position: Some(Position(9)),
        fencing_token: Some(Position(8)),
        ttl: Millis(60_000),
        made_at: Time(1_000),
        expires_at: Some(Time(61_000)),
        limits: vec![limit_of(Some("tokens"), 0), limit_of(None, 1)],
        values: vec![value("a")],
        locks: vec![Lock { key_values: one("k"), mode: Mode::Exclusive }],
        event: Some(EventPart { stream: name("s"), event, state: EventState::Submitted }),
        now: Time(2_500),
    }
}

const HOLDS: &str = r#"{"operation_id": "op", "holds": [{"limit_name": "a", "value": 1}]}"#;

#[tokio::test]
async fn a_decision_is_asked_for_and_shown() {
    let server = start().await;
    let body = json!({
        "operation_id": "req-8f2c", "owner": "gw-3", "ttl": "10m", "wait": "0s", "dry_run": false, "explain": true,
        "checks": [
            {"key_values": {"tenant": "acme", "meter": "requests"}},
            {"name": "tokens", "key_values": {"k": 1}, "hits": 4000, "estimate": true, "require_match": true},
        ],
        "holds": [{"limit_name": "budget/acme/2026-11", "value": 52000, "ceiling": 5000000}], "create_missing": true,
        "locks": [{"key_values": {"session": "s-1"}, "mode": "shared"}, {"key_values": {"k": 1}}],
        "event": {"stream": "mails", "event": "welcome, ann"},
    });
    let reply = server.send("POST", "/v1/ns/n/decisions", &body.to_string()).await;
    assert_eq!(reply.status(), 200);
    assert_eq!(reply.headers()["ratelimit"], r#""r";r=6;t=2"#);
    let request = server.last_asked();
    let Command::Decisions(DecisionCommand::Decide(asked)) = request.command else { panic!("{request:?}") };
    let asked = asked.wanted;
    assert_eq!((request.namespace.as_str(), asked.operation_id().as_str()), ("n", "req-8f2c"));
    assert_eq!((asked.owner(), asked.ttl(), asked.wait()), (Some(&name("gw-3")), Millis(600_000), Millis(0)));
    assert!(asked.explain() && !asked.dry_run());
    let parts = asked.parts();
    let checks: Vec<_> =
        parts.checks.iter().map(|check| (check.hits, check.estimate, check.require_match)).collect();
    assert_eq!(checks, [(1, false, false), (4000, true, true)]);
    assert_eq!((&parts.checks[0].name, &parts.checks[1].name), (&None, &Some(name("tokens"))));
    assert_eq!(
        (parts.holds[0].value, parts.holds[0].ceiling, parts.create_missing),
        (52000, Some(5000000), true)
    );
    assert_eq!(parts.locks.iter().map(|lock| lock.mode).collect::<Vec<_>>(), [Mode::Shared, Mode::Exclusive]);
    assert_eq!(parts.event.as_ref().map(|event| event.stream.as_str()), Some("mails"));

    let status = |check: Json| {
        json!({"check": check, "rule": "r", "override": null, "group": {"k": 1}, "limit": 10, "used": 4, "remaining": 6,
               "reset_ms": 1500, "shadow": false, "exceeded": false})
    };
    let mut shown = json!({
        "operation_id": "op", "state": "open", "repeated": false, "late": false, "owner": "me", "position": 9,
        "fencing_token": 8, "held_ms": 1500, "expires_in_ms": 58500, "ttl_ms": 60000,
        "limits": [status(json!("tokens")), status(json!(1))],
        "values": [{"limit_name": "a", "limit_id": null, "commit_value": 5, "hold_value": -2, "total_value": 3}],
        "locks": [{"key_values": {"k": 1}, "mode": "exclusive"}],
        "event": {"stream": "s", "event": "e", "status": "submitted", "time": 5, "publishes_at": 6},
    });
    let ask = async |method: &str, path: &str, body: &str| -> Json {
        let reply = server.send(method, path, body).await;
        assert_eq!(reply.status(), 200, "{method} {path}");
        reply.json().await.unwrap()
    };
    assert_eq!(without_waiting(ask("POST", "/v1/decisions", HOLDS).await), shown);
    assert_eq!(without_waiting(ask("GET", "/v1/decisions/op", "").await), shown);
    let page = without_waiting(ask("GET", "/v1/decisions", "").await);
    assert_eq!(page, json!({"items": [shown], "next": null}));
    // An ended one.
    let ended =
        Decision { state: State::Expired, expires_at: None, event: None, late: true, ..decision("op") };
    server.answers(Ok(Outcome::Decisions(Ok(DecisionReply::Ended(Box::new(ended))))));
    for (field, value) in [("state", json!("expired")), ("expires_in_ms", Json::Null), ("event", Json::Null)]
    {
        shown[field] = value;
    }
    shown["late"] = json!(true);
    assert_eq!(without_waiting(ask("POST", "/v1/decisions/op/rollback", "").await), shown);
}

/// Limits without the number of waiting requests, which not every engine tells.
fn without_waiting(mut body: Json) -> Json {
    let items = match body.get_mut("items") {
        Some(items) => items.as_array_mut().unwrap().iter_mut().collect(),
        None => vec![&mut body],
    };
    for item in items {
        for limit in item["limits"].as_array_mut().unwrap() {
            limit.as_object_mut().unwrap().remove("waiting");
        }
    }
    body
}

#[tokio::test]
async fn paths_and_the_ids_in_them() {
    let server = start().await;
    let check = async |method: &str, path: &str, body: &str, expect: DecisionCommand| {
        let reply = server.send(method, &format!("/v1/decisions{path}"), body).await;
        assert_eq!(reply.status(), 200, "{method} {path}");
        assert_eq!(server.last_asked().command, Command::Decisions(expect), "{method} {path}");
    };
    let settle = |id: &str| Settle::new(name(id));
    for id in ["op", "batch", "commit", "rollback", "a%2Fb"] {
        let named = || name(&id.replace("%2F", "/"));
        check("GET", &format!("/{id}"), "", DecisionCommand::Get(named())).await;
        check("POST", &format!("/{id}/commit"), "", DecisionCommand::Settle(settle(named().as_str()))).await;
        check("POST", &format!("/{id}/rollback"), "{}", DecisionCommand::Rollback(named())).await;
        check("POST", &format!("/{id}/heartbeat"), "", DecisionCommand::Heartbeat(named())).await;
    }
    let amounts = r#"{"checks": [{"name": "t", "hits": 7}], "holds": [{"limit_name": "a", "value": -3}], "record": true}"#;
    let settled = settle("op").with_checks(vec![(name("t"), 7)]).unwrap();
    let settled = settled.with_holds(vec![(name("a"), -3)]).unwrap().with_record(true);
    check("POST", "/op/commit", amounts, DecisionCommand::Settle(settled)).await;
    let list =
        |owner: Option<&str>, older_than: Option<u64>, after: Option<u64>, limit| DecisionCommand::List {
            owner: owner.map(name),
            older_than: older_than.map(Millis),
            page: Page::new(after.map(Position), limit).unwrap(),
        };
    check(
        "GET",
        "?state=open&owner=me&older_than=1m30s&limit=1&after=3",
        "",
        list(Some("me"), Some(90_000), Some(3), 1),
    )
    .await;
    for (path, field) in [
        ("?state=committed", "state"),
        ("?older_than=60", "older_than"),
        ("?owner=", "owner"),
        ("?after=x", "after"),
        ("?open=1", "open"),
        ("/", "operation_id"),
        ("/op?x=1", "x"),
    ] {
        let problem = server.send("GET", &format!("/v1/decisions{path}"), "").await;
        assert_eq!(problem_of(problem, 400, "InvalidRequest").await["field"], field, "{path}");
    }
    let problem = server.send("POST", "/v1/decisions//commit", "").await;
    assert_eq!(problem_of(problem, 400, "InvalidRequest").await["field"], "operation_id");
}

#[tokio::test]
async fn what_does_not_validate_names_the_field() {
    let server = start().await;
    let check = async |path: &str, body: Json, field: &str| {
        let problem = server.send("POST", &format!("/v1/decisions{path}"), &body.to_string()).await;
        let problem = problem_of(problem, 400, "InvalidRequest").await;
        assert_eq!(problem["field"], field, "{body} gave {problem}");
        server.nothing_asked();
    };
    let with = |more: Json| {
        let mut body: Json = serde_json::from_str(HOLDS).unwrap();
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    check("", json!({"operation_id": "op"}), "checks").await;
    check("", json!({"holds": []}), "operation_id").await;
    check("", with(json!({"operation_id": ""})), "operation_id").await;
    check("", with(json!({"ttl": "99ms"})), "ttl").await;
    check("", with(json!({"ttl_ms": 99})), "ttl_ms").await;
    check("", with(json!({"ttl": "1s", "ttl_ms": 1000})), "ttl_ms").await;
    check("", with(json!({"ttl": 1000})), "ttl").await;
    check("", with(json!({"wait": "301s"})), "wait").await;
    check("", with(json!({"wait_ms": 300_001})), "wait_ms").await;
    check("", with(json!({"owner": ""})), "owner").await;
    check("", with(json!({"lock": []})), "lock").await;
    check("", with(json!({"checks": [{"hits": 1}]})), "checks[0].key_values").await;
    check("", with(json!({"checks": [{"key_values": {"k": 1}, "hit": 1}]})), "checks[0].hit").await;
    check("", with(json!({"checks": [{"key_values": {"k": 1}, "hits": -1}]})), "checks[0].hits").await;
    check("", with(json!({"checks": [{"key_values": {"k": 1}, "hits": 1_u64 << 53}]})), "checks[0].hits")
        .await;
    let named = json!({"name": "a", "key_values": {"k": 1}});
    check("", with(json!({"checks": [named, named]})), "checks[1].name").await;
    let many: Vec<Json> = (0..17).map(|n| json!({"key_values": {"k": n}})).collect();
    check("", with(json!({"checks": many})), "checks").await;
    let hold = json!({"limit_name": "a", "value": 1});
    check("", with(json!({"holds": [hold, hold]})), "holds[1].limit_name").await;
    check("", with(json!({"locks": [{"key_values": {}}]})), "locks[0].key_values").await;
    check("", with(json!({"event": {"stream": "s"}})), "event.event").await;
    check("", with(json!({"event": {"stream": "s", "event": ""}})), "event.event").await;
    check("", with(json!({"event": {"stream": "", "event": "x"}})), "event.stream").await;
    check("/op/commit", json!({"checks": [{"name": "t"}]}), "checks[0].hits").await;
    check(
        "/op/commit",
        json!({"checks": [{"name": "t", "hits": 1}, {"name": "t", "hits": 1}]}),
        "checks[1].name",
    )
    .await;
    check("/op/commit", json!({"holds": [{"limit_name": "", "value": 1}]}), "holds[0].limit_name").await;
    check("/op/commit", json!({"operation_id": "op"}), "operation_id").await;
    check("/op/rollback", json!({"record": true}), "record").await;
    check("/batch", json!({"operations": []}), "operations").await;
}

#[tokio::test]
async fn items_of_batches_fail_alone() {
    let server = start().await;
    let body = json!({"operations": [
        {"operation_id": "a", "holds": [{"limit_name": "a", "value": 1}]},
        {"operation_id": "b"},
        {"operation_id": "c", "holds": [{"limit_name": "a", "value": 1}], "wait": "1s"},
        {"operation_id": "d", "locks": [{"key_values": {"k": 1}}], "wait": 0},
    ]});
    let refused = DecisionRefusal::Refused(Box::new(refused()));
    let results = vec![Ok(DecisionReply::Decided(Box::new(decision("a")))), Err(refused)];
    server.answers(Ok(Outcome::Decisions(Ok(DecisionReply::Batch(results)))));
    let reply: Json =
        server.send("POST", "/v1/decisions/batch", &body.to_string()).await.json().await.unwrap();
    let Command::Decisions(DecisionCommand::Batch(items)) = server.last_asked().command else { panic!() };
    assert_eq!(items.iter().map(|item| item.operation_id().as_str()).collect::<Vec<_>>(), ["a", "d"]);
    let seen: Vec<_> =
        (0..4).map(|n| (&reply["results"][n]["status"], &reply["results"][n]["code"])).collect();
    let (invalid, refused) = (json!("InvalidRequest"), json!("Refused"));
    let expect = [(200, &Json::Null), (400, &invalid), (400, &invalid), (429, &refused)];
    let expect = expect.map(|(status, code)| (json!(status), code));
    assert_eq!(seen, expect.iter().map(|(status, code)| (status, *code)).collect::<Vec<_>>());
    assert_eq!(
        (&reply["results"][1]["field"], &reply["results"][2]["field"]),
        (&json!("checks"), &json!("wait"))
    );
    for (path, body) in [
        ("/commit/batch", json!({"operations": [{"operation_id": "a", "record": true}, {"id": "b"}]})),
        ("/rollback/batch", json!({"operations": [{"operation_id": "a"}, {"operation_id": "b", "x": 1}]})),
    ] {
        server.answers(Ok(Outcome::Decisions(Ok(DecisionReply::Batch(vec![Ok(DecisionReply::Ended(
            Box::new(decision("a")),
        ))])))));
        let reply = server.send("POST", &format!("/v1/decisions{path}"), &body.to_string()).await;
        let reply: Json = reply.json().await.unwrap();
        assert_eq!(
            (&reply["results"][0]["status"], &reply["results"][1]["status"]),
            (&json!(200), &json!(400))
        );
    }
}

fn refused() -> Refused {
    let holder = HeldBy {
        operation_id: Some(name("other")),
        lease_id: None,
        owner: Some(name("me")),
        held: Millis(3),
        expires_in: Millis(4),
    };
    let status = limiter::with(|status| status.exceeded = true, limiter::limit_status("r"));
    let refusing = LimitOfCheck { check: None, status, refuses: true, held_by: vec![holder.clone()] };
    let exceeded =
        ExceededLimit { limit_name: name("a"), ceiling: 9, commit_value: 5, hold_value: 4, available: 0 };
    let locked = |is_held: bool| RefusedLock {
        key_values: one("k"),
        mode: Mode::Shared,
        is_held,
        owner: None,
        held: is_held.then_some(Millis(7)),
        expires_in: is_held.then_some(Millis(8)),
        waiting: 2,
    };
    Refused {
        limits: vec![limit_of(None, 0), refusing],
        holds: vec![
            HoldOfDecision { refused: RefusedHold::LimitExceeded(exceeded), held_by: vec![holder] },
            HoldOfDecision {
                refused: RefusedHold::ValueOverflow {
                    limit_name: name("b"),
                    ceiling: None,
                    commit_value: 11,
                    hold_value: 12,
                    available: 13,
                },
                held_by: Vec::new(),
            },
        ],
        locks: vec![locked(true), locked(false)],
        event: Some(RefusedEvent::EventConflict { conflicting_time: Time(5), open_at: None }),
        retry_after: None,
    }
}

#[tokio::test]
async fn a_refusal_names_what_refuses() {
    let server = start().await;
    let refuse = async |refused: Refused| {
        server.answers(Ok(Outcome::Decisions(Err(DecisionRefusal::Refused(Box::new(refused))))));
        let reply = server.send("POST", "/v1/decisions", HOLDS).await;
        let (status, headers) = (reply.status().as_u16(), reply.headers().clone());
        (status, headers, reply.json::<Json>().await.unwrap())
    };
    let (status, headers, body) = refuse(refused()).await;
    assert_eq!((status, &headers["content-type"]), (429, &"application/problem+json".parse().unwrap()));
    assert_eq!(headers["ratelimit"], r#""r";r=6;t=2"#);
    assert!(!headers.contains_key("retry-after"));
    assert_eq!(
        (&body["code"], &body["status"], &body["type"]),
        (&json!("Refused"), &json!(429), &json!("/docs#Refused"))
    );
    assert_eq!(body["refused_by"], json!(["limits", "holds", "locks", "event"]));
    assert_eq!(body["limits"].as_array().map(Vec::len), Some(1), "only what refuses: {body}");
    let held_by = json!([{"operation_id": "other", "owner": "me", "held_ms": 3, "expires_in_ms": 4}]);
    let limit = &body["limits"][0];
    assert_eq!(
        (&limit["code"], &limit["check"], &limit["held_by"]),
        (&json!("LimitReached"), &json!(0), &held_by)
    );
    assert_eq!(
        body["holds"],
        json!([
            {"code": "LimitExceeded", "limit_name": "a", "ceiling": 9, "commit_value": 5, "hold_value": 4, "available": 0,
             "held_by": held_by},
            {"code": "ValueOverflow", "limit_name": "b", "ceiling": null, "commit_value": 11, "hold_value": 12, "available": 13},
        ])
    );
    let lock = json!({"code": "LockHeld", "key_values": {"k": 1}, "mode": "shared", "owner": null, "held_ms": 7,
                      "expires_in_ms": 8, "waiting": 2});
    assert_eq!(body["locks"][0], lock);
    assert_eq!((&body["locks"][1]["held_ms"], &body["locks"][1]["waiting"]), (&Json::Null, &json!(2)));
    assert_eq!(body["event"], json!({"code": "EventConflict", "conflicting_time": 5, "open_at": null}));
    assert_eq!(body["retry_after_ms"], Json::Null);

    // Without a limit of the limiter it is 409, and it says when time helps.
    let event = RefusedEvent::StreamFull { max_events: 3 };
    let full = Refused { event: Some(event), retry_after: Some(Millis(1_200)), ..Refused::default() };
    let (status, headers, body) = refuse(full).await;
    assert_eq!(
        (status, &headers["retry-after"], &body["retry_after_ms"]),
        (409, &"2".parse().unwrap(), &json!(1200))
    );
    assert_eq!(
        (&body["refused_by"], &body["event"]),
        (
            &json!(["event"]),
            &json!({"code": "StreamFull", "conflicting_time": null, "open_at": null, "max_events": 3})
        )
    );
    assert_eq!((&body["limits"], &body["holds"], &body["locks"]), (&json!([]), &json!([]), &json!([])));
}

#[tokio::test]
async fn other_refusals_have_their_codes() {
    let server = start().await;
    let check = async |refusal: DecisionRefusal, status: u16, code: &str, members: Json| {
        server.answers(Ok(Outcome::Decisions(Err(refusal))));
        let problem = problem_of(server.send("POST", "/v1/decisions", HOLDS).await, status, code).await;
        for (member, value) in members.as_object().unwrap() {
            assert_eq!(problem[member], *value, "{problem}");
        }
    };
    let operation_id = || name("op");
    let id = json!({"operation_id": "op"});
    check(
        DecisionRefusal::OperationReused { operation_id: operation_id() },
        422,
        "OperationReused",
        id.clone(),
    )
    .await;
    check(
        DecisionRefusal::OperationWaits { operation_id: operation_id() },
        409,
        "OperationWaits",
        id.clone(),
    )
    .await;
    let ended = |state| DecisionRefusal::OperationAlreadyInFinalState {
        operation_id: operation_id(),
        state,
        position: Some(Position(5)),
    };
    let members = json!({"state": "committed", "position": 5, "operation_id": "op"});
    check(ended(Some(State::Committed)), 409, "OperationAlreadyInFinalState", members).await;
    check(ended(None), 409, "OperationAlreadyInFinalState", json!({"state": null})).await;
    let limit_names = vec![name("a"), name("b")];
    let members = json!({"limit_names": ["a", "b"], "limit_name": "a"});
    check(
        DecisionRefusal::LimitNotFound { limit_names: limit_names.clone() },
        404,
        "LimitNotFound",
        members.clone(),
    )
    .await;
    check(DecisionRefusal::ValueOverflow { limit_names }, 409, "ValueOverflow", members).await;
    check(
        DecisionRefusal::StreamNotFound { stream: name("s") },
        404,
        "StreamNotFound",
        json!({"stream": "s"}),
    )
    .await;
    check(
        DecisionRefusal::NoRuleApplies { key_values: one("k") },
        422,
        "NoRuleApplies",
        json!({"key_values": {"k": 1}}),
    )
    .await;
    let exceeds = DecisionRefusal::CommitExceedsHold {
        operation_id: operation_id(),
        limit_name: name("a"),
        held: 3,
        value: 4,
    };
    check(exceeds, 409, "CommitExceedsHold", json!({"held_value": 3, "value": 4, "limit_name": "a"})).await;
    check(
        DecisionRefusal::NotEstimated { check: name("t") },
        400,
        "InvalidRequest",
        json!({"field": "checks"}),
    )
    .await;
    check(
        DecisionRefusal::NotHeld { limit_name: name("a") },
        400,
        "InvalidRequest",
        json!({"field": "holds"}),
    )
    .await;
}
