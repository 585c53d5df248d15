//! What is answered: statuses, forms, headers, batches.

use super::*;

const CHECK: &str = r#"{"key_values": {"k": 1}}"#;

fn status_json(rule: &str) -> Json {
    json!({"rule": rule, "override": null, "group": {"k": 1}, "limit": 10, "used": 4, "remaining": 6,
        "reset_ms": 1500, "shadow": false, "exceeded": false, "waiting": 0})
}

fn refusal() -> Checked {
    let exceed = |status: &mut LimitStatus| {
        (status.override_name, status.exceeded) = (Some(name("o\"")), true);
        (status.used, status.remaining) = (10, Some(0));
    };
    let exceeded = with(exceed, limit_status("a"));
    let shadow = with(|status| (status.shadow, status.exceeded) = (true, true), limit_status("s"));
    Checked {
        allowed: false,
        reported: false,
        limits: vec![exceeded, limit_status("b"), shadow],
        retry_after: Some(Millis(1001)),
    }
}

#[track_caller]
fn is_refusal(found: &Json, status: u16) {
    // An item of a batch has no id.
    let mut found = found.clone();
    found.as_object_mut().unwrap().remove("request_id");
    let exceeded = json!({"rule": "a", "override": "o\"", "group": {"k": 1}, "limit": 10, "used": 10,
        "remaining": 0, "reset_ms": 1500, "shadow": false, "exceeded": true, "waiting": 0});
    let mut shadow = status_json("s");
    shadow["shadow"] = json!(true);
    shadow["exceeded"] = json!(true);
    let expect = json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "A limit is reached",
        "status": status,
        "detail": "The limit \"a/o%22\" is reached.",
        "code": "LimitReached",
        "violated-policies": ["a/o%22"],
        "allowed": false,
        "limits": [exceeded, status_json("b"), shadow],
        "retry_after_ms": 1001,
    });
    assert_eq!(found, expect);
}

#[tokio::test]
async fn replies_have_their_form() {
    let server = start().await;
    let check = async |reply: LimiterReply, status: u16, expect: &str| {
        server.answers(done(reply));
        let response = server.send("POST", "/v1/limiter/check", CHECK).await;
        assert_eq!(response.status().as_u16(), status);
        let body = response.text().await.unwrap();
        // As text, since 1 and 1.0 are not the same.
        assert_eq!(body, expect.replace("\n", "").replace("    ", ""));
    };
    let rule_json = r#"{"name":"r","group_by":[],"selection":{},"limit":5,"window":null,"shadow":false,
        "durability":"durable","description":null,"overrides":2,"managed_by":null,"created_position":7}"#;
    check(LimiterReply::Rule(rule("r")), 200, rule_json).await;
    check(LimiterReply::RuleCreated(rule("r")), 201, rule_json).await;
    let full = Rule {
        group_by: vec!["b".into(), "a".into()],
        selection: Selection::new(vec![
            ("x".into(), vec![Test::Eq(KeyValue::Float(1.0))]),
            ("y".into(), vec![Test::Gte(KeyValue::Integer(1)), Test::Exists(true)]),
            ("z".into(), vec![Test::Eq(KeyValue::Boolean(true)), Test::Prefix("p".into())]),
        ])
        .unwrap(),
        limit: Limit::Unlimited,
        window: Some(RuleWindow { kind: WindowType::Bucket, per_ms: Millis(60_000), burst: Some(20) }),
        shadow: true,
        durability: Durability::Relaxed,
        description: Some("words".into()),
        managed_by: Some(name("file")),
        ..rule("r")
    };
    let full_json = r#"{"name":"r","group_by":["b","a"],
        "selection":{"x":1.0,"y":{"gte":1,"exists":true},"z":{"eq":true,"prefix":"p"}},"limit":-1,
        "window":{"type":"bucket","per_ms":60000,"burst":20},"shadow":true,"durability":"relaxed",
        "description":"words","overrides":2,"managed_by":"file","created_position":7}"#;
    check(LimiterReply::Rule(full), 200, full_json).await;
    let window = Some(RuleWindow { kind: WindowType::Fixed, per_ms: Millis(5), burst: None });
    let fixed = Rule { window, durability: Durability::Relaxed, ..rule("r") };
    let fixed_json = rule_json
        .replace("null,\"shadow", r#"{"type":"fixed","per_ms":5,"burst":null},"shadow"#)
        .replace("\"durable\"", "\"relaxed\"");
    check(LimiterReply::Rule(fixed), 200, &fixed_json).await;
    let listed = Listed { items: vec![rule("r")], next: Some(name("r")) };
    check(LimiterReply::Rules(listed), 200, &format!(r#"{{"items":[{rule_json}],"next":"r"}}"#)).await;

    let override_json =
        r#"{"rule":"r","name":"o","key_values":{"k":1},"limit":-1,"burst":9,"created_position":8}"#;
    check(LimiterReply::Override(an_override("o")), 200, override_json).await;
    check(LimiterReply::OverrideCreated(an_override("o")), 201, override_json).await;
    let listed = Listed { items: vec![an_override("o")], next: None };
    check(LimiterReply::Overrides(listed), 200, &format!(r#"{{"items":[{override_json}],"next":null}}"#))
        .await;
    let of_set = rule_json
        .replace(r#""overrides":2"#, &format!(r#""overrides":[{override_json}]"#))
        .replace(r#""managed_by":null"#, r#""managed_by":"s""#);
    let set_json = format!(r#"{{"name":"s","rules":[{of_set}],"overrides":"open","created_position":8}}"#);
    check(LimiterReply::RuleSet(rule_set()), 200, &set_json).await;
    let listed = Listed { items: vec![rule_set_info()], next: Some(name("s")) };
    let info_json =
        r#"{"items":[{"name":"s","rules":1,"overrides":"open","created_position":8}],"next":"s"}"#;
    check(LimiterReply::RuleSets(listed), 200, info_json).await;
    let changes = || RuleSetChanges {
        created: vec![name("a")],
        changed: vec![ChangedRule {
            rule: name("b"),
            fields: vec![RuleField::GroupBy, RuleField::Overrides, RuleField::ManagedBy],
            starts_empty: true,
        }],
        deleted: vec![name("c")],
        conflicts: vec![SetConflict {
            rule: name("d"),
            code: ConflictCode::OverridesConflict,
            managed_by: None,
            override_name: Some(name("o")),
        }],
    };
    let changes_json = r#"{"created":["a"],
        "changed":[{"rule":"b","fields":["group_by","overrides","managed_by"],"starts_empty":true}],
        "deleted":["c"],
        "conflicts":[{"rule":"d","code":"OverridesConflict","managed_by":null,"override":"o"}]}"#;
    check(LimiterReply::RuleSetPlanned(changes()), 200, changes_json).await;
    check(LimiterReply::RuleSetPut { is_new: false, changes: changes() }, 200, changes_json).await;
    check(LimiterReply::RuleSetPut { is_new: true, changes: changes() }, 201, changes_json).await;
    check(LimiterReply::RuleSetDeleted(changes()), 204, "").await;
    let matched = RuleMatch { rule: rule("r"), group: one("g"), matching_overrides: vec![an_override("o")] };
    let inner = rule_json.trim_end_matches('}');
    let matched_json =
        format!(r#"{{"rules":[{inner},"group":{{"g":1}},"matching_overrides":[{override_json}]}}]}}"#);
    check(LimiterReply::Matches(vec![matched]), 200, &matched_json).await;

    let nothing = r#"{"allowed":true,"limits":[],"retry_after_ms":null}"#;
    check(LimiterReply::Allowed(decision(Vec::new())), 200, nothing).await;
    let group = key_values(&[
        ("f", KeyValue::Float(1.0)),
        ("i", KeyValue::Integer(1)),
        ("s", KeyValue::String("\"é")),
        ("b", KeyValue::Boolean(false)),
    ]);
    let unlimit = |status: &mut LimitStatus| {
        (status.limit, status.remaining, status.reset_ms) = (Limit::Unlimited, None, None);
        status.group = group;
    };
    let unlimited = AppliedLimit { per: None, ..with(unlimit, limit_status("r")) };
    let unlimited_json = r#"{"allowed":true,"limits":[{"rule":"r","override":null,
        "group":{"b":false,"f":1.0,"i":1,"s":"\"é"},"limit":-1,"used":4,"remaining":null,"reset_ms":null,
        "shadow":false,"exceeded":false,"waiting":0}],"retry_after_ms":null}"#;
    check(LimiterReply::Allowed(decision(vec![unlimited])), 200, unlimited_json).await;
    let moved = LimiterReply::Moved { counter: counter(3, 1), decision: decision(Vec::new()) };
    let moved_json = r#"{"key_values":{"k":1},"counters":3,"leased":1,"allowed":true,"limits":[],
        "retry_after_ms":null}"#;
    check(moved, 200, moved_json).await;
    let counter_json = r#"{"key_values":{"k":1},"counters":3,"leased":1}"#;
    check(LimiterReply::Counter(counter(3, 1)), 200, counter_json).await;
    let listed = Listed { items: vec![counter(3, 1)], next: Some(CounterId(12)) };
    check(LimiterReply::Counters(listed), 200, &format!(r#"{{"items":[{counter_json}],"next":"12"}}"#)).await;
    let taken = lease_taken(decision(Vec::new()));
    let taken_json =
        r#"{"lease_id":"l","session_id":"s","fencing_token":41,"expires_in_ms":7000,"limits":[]}"#;
    check(taken, 201, taken_json).await;
    let lease_json = r#"{"lease_id":"l","operation_id":null,"fencing_token":41,"key_values":{"k":1},"hits":2,"owner":"me",
        "held_ms":5000,"expires_in_ms":7000,"ttl_ms":10000}"#;
    check(LimiterReply::Lease(lease("l")), 200, lease_json).await;
    let listed = Listed { items: vec![lease("l")], next: None };
    check(LimiterReply::Leases(listed), 200, &format!(r#"{{"items":[{lease_json}],"next":null}}"#)).await;
    check(LimiterReply::RuleDeleted, 204, "").await;
    check(LimiterReply::OverrideDeleted, 204, "").await;
    check(LimiterReply::LeaseReleased, 204, "").await;
}

#[tokio::test]
async fn refusals_have_their_status_and_members() {
    let server = start().await;
    let check = async |refusal: Refused, status: u16, code: &str, members: Json| {
        server.answers(Ok(Outcome::Limiter(Err(refusal))));
        let problem = problem_of(server.send("POST", "/v1/limiter/check", CHECK).await, status, code).await;
        let mut found = problem.as_object().unwrap().clone();
        found.retain(|key, _| {
            !["type", "title", "status", "detail", "code", "request_id"].contains(&key.as_str())
        });
        assert_eq!(Json::Object(found), members, "{code}");
    };
    let (r, o) = (|| name("r"), || name("o"));
    let both = || json!({"rule": "r", "override": "o"});
    check(Refused::RuleNotFound { rule: r() }, 404, "RuleNotFound", json!({"rule": "r"})).await;
    let set = || name("s");
    check(Refused::RuleSetNotFound { set: set() }, 404, "RuleSetNotFound", json!({"rule_set": "s"})).await;
    let own = Refused::RuleSetManagedByServer { set: set() };
    check(own, 409, "RuleSetManagedByServer", json!({"rule_set": "s"})).await;
    let rules = ["q", "r"].map(|rule| ManagedRule { rule: name(rule), set: set() }).to_vec();
    let listed = json!([{"rule": "q", "managed_by": "s"}, {"rule": "r", "managed_by": "s"}]);
    let members = json!({"rule": "q", "managed_by": "s", "rules": listed});
    check(Refused::RuleManagedBySet { rules }, 409, "RuleManagedBySet", members).await;
    check(Refused::RuleAlreadyExists { rule: r() }, 409, "RuleAlreadyExists", json!({"rule": "r"})).await;
    check(Refused::OverridesConflict { rule: r(), name: o() }, 409, "OverridesConflict", both()).await;
    check(Refused::OverrideNotFound { rule: r(), name: o() }, 404, "OverrideNotFound", both()).await;
    check(Refused::OverrideAlreadyExists { rule: r(), name: o() }, 409, "OverrideAlreadyExists", both())
        .await;
    let missing = Refused::GroupKeyMissing { rule: r(), key: "k".into() };
    check(missing, 400, "InvalidRequest", json!({"rule": "r", "field": "key_values.k"})).await;
    let burst = Refused::BurstWithoutBucket { rule: r() };
    check(burst, 400, "InvalidRequest", json!({"rule": "r", "field": "burst"})).await;
    let lease = Refused::LeaseNotFound { lease_id: name("l") };
    check(lease, 404, "LeaseNotFound", json!({"lease_id": "l"})).await;
    let session = Refused::SessionMismatch { lease_id: name("l") };
    check(session, 409, "SessionMismatch", json!({"lease_id": "l"})).await;
    let unmatched = Refused::NoRuleApplies { key_values: one("k") };
    check(unmatched, 422, "NoRuleApplies", json!({"key_values": {"k": 1}})).await;
}

#[tokio::test]
async fn a_reached_limit_is_429_and_says_all() {
    let server = start().await;
    let headers_of = |response: &Response| {
        ["content-type", "retry-after", "ratelimit-policy", "ratelimit"].map(|header| {
            response.headers().get(header).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
        })
    };
    let expect = [
        "application/problem+json",
        "2",
        r#""a/o%22";q=10;w=60, "b";q=10;w=60"#,
        r#""a/o%22";r=0;t=2, "b";r=6;t=2"#,
    ];
    let lease = r#"{"key_values": {"k": 1}, "ttl": "1s"}"#;
    server.answers(Ok(Outcome::Limiter(Err(Refused::LimitReached(refusal())))));
    for (path, body) in [("/v1/limiter/check", CHECK), ("/v1/ns/n/limiter/leases", lease)] {
        let response = server.send("POST", path, body).await;
        assert_eq!((response.status().as_u16(), headers_of(&response)), (429, expect.map(str::to_owned)));
        is_refusal(&response.json().await.unwrap(), 429);
    }
    // A counter is in conflict, and has no such headers.
    server.answers(Ok(Outcome::Limiter(Err(Refused::LimitReached(refusal())))));
    for method in ["POST", "PUT"] {
        let response =
            server.send(method, "/v1/limiter/counters", r#"{"key_values": {"k": 1}, "counters": 1}"#).await;
        assert_eq!(response.status().as_u16(), 409);
        assert_eq!(headers_of(&response), ["application/problem+json", "", "", ""]);
        is_refusal(&response.json().await.unwrap(), 409);
    }
    // Not known when, or never.
    let never = Checked { retry_after: None, ..refusal() };
    server.answers(Ok(Outcome::Limiter(Err(Refused::LimitReached(never)))));
    let response = server.send("POST", "/v1/limiter/check", CHECK).await;
    assert_eq!(headers_of(&response)[1], "");
    assert_eq!(response.json::<Json>().await.unwrap()["retry_after_ms"], Json::Null);
    // What passes bears them too.
    let taken = lease_taken(decision(vec![AppliedLimit {
        per: None,
        ..with(|status| status.reset_ms = None, limit_status("a"))
    }]));
    for (reply, policy, state) in [
        (LimiterReply::Allowed(decision(vec![limit_status("a")])), r#""a";q=10;w=60"#, r#""a";r=6;t=2"#),
        (taken, r#""a";q=10;qu="concurrent-requests""#, r#""a";r=6"#),
        (LimiterReply::Allowed(decision(Vec::new())), "", ""),
    ] {
        server.answers(done(reply));
        let response = server.send("POST", "/v1/limiter/check", CHECK).await;
        assert_eq!(headers_of(&response), ["application/json", "", policy, state]);
    }
}

#[tokio::test]
async fn batches_answer_each_check_in_its_place() {
    let server = start().await;
    let send = async |items: Vec<Json>| {
        let body = json!({"checks": items}).to_string();
        let response = server.send("POST", "/v1/limiter/check/batch", &body).await;
        assert_eq!(response.status().as_u16(), 200);
        let answer: Json = response.json().await.unwrap();
        answer["results"].as_array().unwrap().clone()
    };
    let good = || json!({"key_values": {"k": 1}});
    let bad = || json!({"key_values": {"k": null}});
    let results = send(vec![good(), bad(), good(), json!(7), json!({"key_values": {}, "hits": -1})]).await;
    let statuses: Vec<&Json> = results.iter().map(|result| &result["status"]).collect();
    assert_eq!(statuses, [200, 400, 200, 400, 400]);
    assert_eq!(results[0], json!({"status": 200, "allowed": true, "limits": [], "retry_after_ms": null}));
    let fields: Vec<&Json> = results.iter().map(|result| &result["field"]).collect();
    assert_eq!((fields[1], fields[3], fields[4]), (&json!("key_values.k"), &json!("body"), &json!("hits")));
    let LimiterCommand::CheckBatch(asked) = server.last_limiter_command() else { panic!() };
    assert_eq!(asked.len(), 2);

    let full = limina_engine::QuotaExceeded { quota: limina_engine::Quota::Groups, limit: 5, used: 5 };
    let unmatched = Refused::NoRuleApplies { key_values: one("k") };
    let decisions =
        vec![Ok(decision(vec![limit_status("a")])), Ok(refusal()), Err(full.into()), Err(unmatched)];
    server.answers(done(LimiterReply::Batch(decisions)));
    let results = send(vec![bad(), good(), good(), good(), good()]).await;
    assert_eq!((&results[4]["status"], &results[4]["code"]), (&json!(422), &json!("NoRuleApplies")));
    assert_eq!(results[4]["key_values"], json!({"k": 1}));
    assert_eq!((&results[3]["status"], &results[3]["code"]), (&json!(507), &json!("QuotaExceeded")));
    assert_eq!((&results[3]["quota"], &results[3]["used"]), (&json!("groups"), &json!(5)));
    assert_eq!(results[0]["status"], 400);
    assert_eq!(results[1]["limits"], json!([status_json("a")]));
    is_refusal(&results[2], 429);

    let asked = server.fake.asked.lock().unwrap().len();
    assert_eq!(send(vec![bad()]).await[0]["code"], "InvalidRequest");
    assert_eq!(server.fake.asked.lock().unwrap().len(), asked, "there was nothing to ask");
    server.answers(Err(Unavailable::Overloaded { retry_after_ms: 10 }));
    let body = json!({"checks": [good(), bad()]}).to_string();
    problem_of(server.send("POST", "/v1/limiter/check/batch", &body).await, 503, "Overloaded").await;
}
