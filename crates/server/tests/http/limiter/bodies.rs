//! What is read as a body.

use super::*;

#[tokio::test]
async fn bodies_that_do_not_parse_or_validate_name_the_field() {
    let server = start().await;
    let check = async |method: &str, path: &str, body: &str, field: &str| {
        let path = format!("/v1/limiter{path}");
        let problem = problem_of(server.send(method, &path, body).await, 400, "InvalidRequest").await;
        assert_eq!(problem["field"], field, "{body:.300} gave {problem}");
        server.nothing_asked();
    };
    let take = async |body: &str, field: &str| check("POST", "/check", body, field).await;
    take("", "body").await;
    take("[]", "body").await;
    take("{}", "key_values").await;
    take(r#"{"key_values": []}"#, "key_values").await;
    take(r#"{"key_values": {"k": null}}"#, "key_values.k").await;
    take(r#"{"key_values": {"k": [1]}}"#, "key_values.k").await;
    take(r#"{"key_values": {"k": {"a": 1}}}"#, "key_values.k").await;
    take(r#"{"key_values": {"k": {"DataType": 0, "Value": 256}}}"#, "key_values.k").await;
    take(r#"{"key_values": {"k": 9223372036854775808}}"#, "key_values.k").await;
    take(r#"{"key_values": {"k": 99999999999999999999}}"#, "key_values.k").await;
    take(r#"{"key_values": {"k": 1e999}}"#, "key_values.k").await;
    take(r#"{"key_values": {"k": 1, "k": 1}}"#, "key_values.k").await;
    take(r#"{"key_values": {"": 1}}"#, "key_values.").await;
    take(&json!({"key_values": {"k": "v".repeat(1025)}}).to_string(), "key_values.k").await;
    let long = "k".repeat(257);
    take(&json!({"key_values": {&*long: 1}}).to_string(), &format!("key_values.{long}")).await;
    let many: serde_json::Map<_, _> = (0..65).map(|n| (n.to_string(), json!(n))).collect();
    take(&json!({"key_values": many}).to_string(), "key_values").await;
    take(r#"{"key_values": {"k": 1"#, "body").await;
    take(r#"{"key_values": {"k": tru}}"#, "body").await;
    take(r#"{"key_values": {}, "KeyValues": {}}"#, "key_values").await;
    take(r#"{"keyvalues": {}}"#, "keyvalues").await;
    for wrong in ["-1", "1.0", "9007199254740992", "null", "\"1\""] {
        take(&format!(r#"{{"key_values": {{}}, "hits": {wrong}}}"#), "hits").await;
    }
    take(r#"{"key_values": {}, "dry_run": 1}"#, "dry_run").await;

    let rule = async |body: &str, field: &str| check("POST", "/rules", body, field).await;
    rule(r#"{"limit": 1}"#, "name").await;
    rule(r#"{"name": "", "limit": 1}"#, "name").await;
    rule(r#"{"name": "r"}"#, "limit").await;
    for wrong in ["-2", "9007199254740992", "1.5", "null", "\"1\"", "99999999999999999999"] {
        rule(&format!(r#"{{"name": "r", "limit": {wrong}}}"#), "limit").await;
    }
    rule(r#"{"name": "r", "limit": 1, "group_by": ["a", "b", "a"]}"#, "group_by[2]").await;
    rule(r#"{"name": "r", "limit": 1, "group_by": ["a", ""]}"#, "group_by[1]").await;
    rule(&json!({"name": "r", "limit": 1, "group_by": ["k".repeat(257)]}).to_string(), "group_by[0]").await;
    let keys: Vec<String> = (0..17).map(|n| n.to_string()).collect();
    rule(&json!({"name": "r", "limit": 1, "group_by": keys}).to_string(), "group_by").await;
    let selection = async |selection: &str, field: &str| {
        rule(&format!(r#"{{"name": "r", "limit": 1, "selection": {selection}}}"#), field).await;
    };
    selection("[]", "selection").await;
    selection(r#"{"k": {}}"#, "selection.k").await;
    selection(r#"{"k": null}"#, "selection.k").await;
    selection(r#"{"k": {"like": 1}}"#, "selection.k").await;
    selection(r#"{"k": {"eq": {}}}"#, "selection.k").await;
    selection(r#"{"k": 1, "k": 1}"#, "selection.k").await;
    selection(r#"{"": 1}"#, "selection.").await;
    selection(&json!({"k": "v".repeat(1025)}).to_string(), "selection.k").await;
    selection(&json!({"k": {"lt": "v".repeat(1025)}}).to_string(), "selection.k.lt").await;
    selection(&json!({"k": {"in": [1, "v".repeat(1025)]}}).to_string(), "selection.k.in[1]").await;
    selection(&json!({"k": {"in": vec![1; 1025]}}).to_string(), "selection.k.in").await;
    selection(&json!({"k": {"prefix": "v".repeat(1025)}}).to_string(), "selection.k.prefix").await;
    selection(&Json::Object(many.clone()).to_string(), "selection").await;
    let window = async |window: &str, field: &str| {
        rule(&format!(r#"{{"name": "r", "limit": 1, "window": {window}}}"#), field).await;
    };
    window(r#"["fixed", 1]"#, "window").await;
    window("{}", "window.type").await;
    window(r#"{"type": "fixed"}"#, "window.per").await;
    window(r#"{"type": "hopping", "per": "1s"}"#, "window.type").await;
    window(r#"{"type": "fixed", "per": 0}"#, "window.per").await;
    window(r#"{"type": "fixed", "per": 60}"#, "window.per").await;
    window(r#"{"type": "fixed", "per_ms": "1s"}"#, "window.per_ms").await;
    window(r#"{"type": "fixed", "per_ms": 0}"#, "window.per_ms").await;
    window(r#"{"type": "fixed", "per_ms": 31622400001}"#, "window.per_ms").await;
    window(r#"{"type": "fixed", "per": "1s", "per_ms": 1000}"#, "window.per_ms").await;
    window(r#"{"type": "fixed", "per_ms": 1000, "per_ms": 1000}"#, "window.per_ms").await;
    window(r#"{"type": "fixed", "per": "367d"}"#, "window.per").await;
    window(r#"{"type": "fixed", "per": "1m", "burst": 1}"#, "window.burst").await;
    window(r#"{"type": "sliding", "per": "1m", "burst": 1}"#, "window.burst").await;
    window(r#"{"type": "bucket", "per": "1m", "burst": 0}"#, "window.burst").await;
    window(r#"{"type": "bucket", "per": "1m", "burst": -1}"#, "window.burst").await;
    window(r#"{"type": "bucket", "per": "1m", "burst": 9007199254740992}"#, "window.burst").await;
    rule(r#"{"name": "r", "limit": 1, "durability": "none"}"#, "durability").await;
    rule(r#"{"name": "r", "limit": 1, "shadow": null}"#, "shadow").await;
    let long = json!({"name": "r", "limit": 1, "description": "d".repeat(1025)}).to_string();
    rule(&long, "description").await;
    check("PUT", "/rules/r", r#"{"name": "other", "limit": 1}"#, "name").await;
    check("PUT", "/rules/r", r#"{"limit": 1, "overrides": []}"#, "overrides").await;
    check("PATCH", "/rules/r", r#"{"created_position": 1}"#, "created_position").await;
    check("PATCH", "/rules/r", r#"{"limit": null}"#, "limit").await;
    check("PATCH", "/rules/r", r#"{"group_by": []}"#, "group_by").await;
    check("PATCH", "/rules/r", r#"{"name": "r"}"#, "name").await;
    check("POST", "/rules/r/overrides", r#"{"name": "o", "limit": 1}"#, "key_values").await;
    check("POST", "/rules/r/overrides", r#"{"key_values": {}, "limit": 1}"#, "name").await;
    let burst = r#"{"name": "o", "key_values": {}, "limit": 1, "burst": 0}"#;
    check("POST", "/rules/r/overrides", burst, "burst").await;
    check("PUT", "/rules/r/overrides/o", r#"{"name": "p", "key_values": {}, "limit": 1}"#, "name").await;
    check("PATCH", "/rules/r/overrides/o", r#"{"key_values": null}"#, "key_values").await;
    check("PATCH", "/rules/r/overrides/o", r#"{"burst": 0}"#, "burst").await;

    check("POST", "/counters", r#"{"key_values": {}}"#, "counters").await;
    for wrong in ["9007199254740992", "-9007199254740992", "1.0", "null"] {
        let body = format!(r#"{{"key_values": {{}}, "counters": {wrong}}}"#);
        check("POST", "/counters", &body, "counters").await;
        check("PUT", "/counters/set", &body, "counters").await;
    }
    let lease = async |more: &str, field: &str| {
        check("POST", "/leases", &format!(r#"{{"key_values": {{}}{more}}}"#), field).await;
    };
    lease("", "ttl").await;
    lease(r#", "ttl": "99ms""#, "ttl").await;
    lease(r#", "ttl": 1000"#, "ttl").await;
    lease(r#", "ttl_ms": 99"#, "ttl_ms").await;
    lease(r#", "ttl_ms": -1"#, "ttl_ms").await;
    lease(r#", "ttl": "1s", "ttl_ms": 1000"#, "ttl_ms").await;
    lease(r#", "ttl": "86400001ms""#, "ttl").await;
    lease(r#", "ttl": "1s", "hits": 0"#, "hits").await;
    lease(r#", "ttl": "1s", "hits": 9007199254740992"#, "hits").await;
    lease(r#", "ttl": "1s", "owner": """#, "owner").await;
    lease(r#", "ttl": "1s", "require_match": null"#, "require_match").await;
    check("POST", "/leases/l/heartbeat", r#"{"ttl": 1}"#, "ttl").await;
    check("POST", "/check", r#"{"key_values": {}, "report": true, "dry_run": true}"#, "report").await;
    check("POST", "/leases", r#"{"key_values": {}, "ttl": "1s", "report": true}"#, "report").await;
    check("POST", "/leases", r#"{"key_values": {}, "ttl": "1s", "wait": "6m"}"#, "wait").await;
    check("POST", "/leases", r#"{"key_values": {}, "ttl": "1s", "wait_ms": 300001}"#, "wait_ms").await;
    check("POST", "/leases/l/heartbeat", "", "body").await;
    check("POST", "/leases/l/heartbeat", "{}", "session_id").await;
    check("DELETE", "/leases/l", "", "session_id").await;
    check("DELETE", "/leases/l?force=yes", "", "force").await;
    check("GET", "/leases?owner=", "", "owner").await;
    check("GET", "/rules/r/groups?order=name", "", "order").await;
    check("GET", "/rules/r/groups?limit=1001", "", "limit").await;
    check("GET", "/rules/r/groups?after=1", "", "after").await;

    check("POST", "/rules/query", r#"{"where": {"k": 1}}"#, "where.k").await;
    let nested = r#"{"any": [{"all": [{}, {"where": {"k": {"exists": true, "ne": 1}}}]}]}"#;
    check("POST", "/rules/query", nested, "any[0].all[1].where.k").await;
    check("POST", "/counters/query", r#"{"wher": {}}"#, "wher").await;
    check("POST", "/counters/query", r#"{"min_keys": -1}"#, "min_keys").await;
    check("POST", "/counters/query", r#"{"any": {}}"#, "any").await;
    let deep = format!("{}{}", r#"{"any": ["#.repeat(8), "{}".to_owned() + &"]}".repeat(8));
    check("POST", "/counters/query", &deep, &["any[0]"; 8].join(".")).await;
    let wide = json!({"all": vec![json!({}); 64]}).to_string();
    check("POST", "/counters/query", &wide, "all[63]").await;
    check("POST", "/check/batch", r#"{"checks": []}"#, "checks").await;
    check("POST", "/check/batch", r#"{"operations": []}"#, "operations").await;
    let item = json!({"key_values": {}});
    check("POST", "/check/batch", &json!({"checks": vec![item; 8193]}).to_string(), "checks").await;
}

#[tokio::test]
async fn bodies_become_commands() {
    let server = start().await;
    let check = async |method: &str, path: &str, body: &str, status: u16, expect: LimiterCommand| {
        let response = server.send(method, &format!("/v1/limiter{path}"), body).await;
        assert_eq!(response.status().as_u16(), status, "{method} {path} {body}");
        assert_eq!(server.last_limiter_command(), expect, "{method} {path} {body}");
    };
    let take = |key_values: KeyValues, hits: i64, dry_run: bool| {
        let check = Check::new(vec![Take::new(key_values, hits).unwrap()]).unwrap();
        LimiterCommand::Check(check.with_dry_run(dry_run))
    };
    check("POST", "/check", r#"{"key_values": {}}"#, 200, take(KeyValues::empty(), 1, false)).await;
    let all = key_values(&[
        ("b", KeyValue::Float(1.0)),
        ("beta", KeyValue::Boolean(true)),
        ("c", KeyValue::Float(1e20)),
        ("attempt", KeyValue::Integer(3)),
        ("key1", KeyValue::String("a\n")),
        ("zero", KeyValue::Float(0.0)),
    ]);
    let body = r#"{"key_values": {"key1": "a\n", "attempt": 3, "b": 1.0, "c": 1e20, "beta": true, "zero": -0.0},
        "hits": 9007199254740991, "dry_run": true}"#;
    check("POST", "/check", body, 200, take(all, 9_007_199_254_740_991, true)).await;
    let typed = r#"{"KeyValues": {"k": {"DataType": 0, "Value": "1"}}, "hits": 0}"#;
    check("POST", "/check", typed, 200, take(one("k"), 0, false)).await;

    let created = |rule| changed(Change::CreateRule(rule));
    let rule = NewRule { limit: Limit::AtMost(0), ..new_rule("r") };
    check("POST", "/rules", r#"{"name": "r", "limit": 0}"#, 201, created(rule)).await;
    let seed = r#"{"Name": "r", "GroupBy": ["other key"], "Seletion": {}, "Limit": 1}"#;
    let rule = NewRule { group_by: vec!["other key".into()], limit: Limit::AtMost(1), ..new_rule("r") };
    check("POST", "/rules", seed, 201, created(rule)).await;
    let full = r#"{"name": "r", "group_by": ["b", "a"], "limit": -1, "shadow": true, "durability": "durable",
        "selection": {"z": "x", "a": {"lt": 5, "in": [1, "1"], "exists": true, "prefix": "p", "eq": -0.0},
            "t": {"DataType": 5, "Value": 3}},
        "window": {"type": "bucket", "per": "1m30s", "burst": 20}, "description": "words"}"#;
    let tests = vec![
        Test::Eq(KeyValue::Float(0.0)),
        Test::Lt(KeyValue::Integer(5)),
        Test::In(vec![KeyValue::Integer(1), KeyValue::String("1".into())].into()),
        Test::Prefix("p".into()),
        Test::Exists(true),
    ];
    let rule = NewRule {
        name: name("r"),
        group_by: vec!["b".into(), "a".into()],
        selection: Selection::new(vec![
            ("z".into(), vec![Test::Eq(KeyValue::String("x".into()))]),
            ("a".into(), tests),
            ("t".into(), vec![Test::Eq(KeyValue::Integer(3))]),
        ])
        .unwrap(),
        limit: Limit::Unlimited,
        window: Some(Window::Bucket { per: Millis(90_000), burst: Some(20) }),
        shadow: true,
        durability: Some(Durability::Durable),
        description: Some("words".into()),
    };
    check("POST", "/rules", full, 201, created(rule.clone())).await;
    check("PUT", "/rules/r", full, 200, changed(Change::PutRule(rule))).await;
    let windowed = |window| NewRule { window: Some(window), ..new_rule("r") };
    let per = Millis(1);
    for (word, window) in [
        ("fixed", Window::Fixed { per }),
        ("sliding", Window::Sliding { per }),
        ("bucket", Window::Bucket { per, burst: None }),
    ] {
        let expect = changed(Change::PutRule(windowed(window)));
        for per in [r#""per": "1ms""#, r#""per_ms": 1"#, r#""per": null, "per_ms": 1"#] {
            let body = format!(r#"{{"limit": 5, "window": {{"type": "{word}", {per}}}}}"#);
            check("PUT", "/rules/r", &body, 200, expect.clone()).await;
        }
    }
    let nothing =
        r#"{"limit": 5, "window": null, "selection": null, "durability": null, "description": null}"#;
    check("PUT", "/rules/r", nothing, 200, changed(Change::PutRule(new_rule("r")))).await;
    let patched = |patch| changed(Change::PatchRule { name: name("r"), patch });
    check("PATCH", "/rules/r", "", 200, patched(RulePatch::default())).await;
    let removed =
        r#"{"window": null, "selection": null, "shadow": null, "durability": null, "description": null}"#;
    let patch = RulePatch {
        window: Some(None),
        selection: Some(Selection::default()),
        shadow: Some(false),
        durability: Some(None),
        description: Some(None),
        ..RulePatch::default()
    };
    check("PATCH", "/rules/r", removed, 200, patched(patch)).await;
    let set = r#"{"Limit": -1, "window": {"type": "fixed", "per": "1ms"}, "Seletion": {"k": 1}, "shadow": true,
        "durability": "relaxed", "description": ""}"#;
    let patch = RulePatch {
        limit: Some(Limit::Unlimited),
        window: Some(Some(Window::Fixed { per })),
        selection: Some(where_key("k", Test::Eq(KeyValue::Integer(1)))),
        shadow: Some(true),
        durability: Some(Some(Durability::Relaxed)),
        description: Some(Some("".into())),
    };
    check("PATCH", "/rules/r", set, 200, patched(patch)).await;
    check("DELETE", "/rules/r", "", 204, changed(Change::DeleteRule(name("r")))).await;

    let new = NewOverride { name: name("o"), key_values: one("k"), limit: Limit::AtMost(7), burst: Some(8) };
    let body = r#"{"Name": "o", "KeyValues": {"k": 1}, "Limit": 7, "burst": 8}"#;
    let expect = changed(Change::CreateOverride { rule: name("r"), new: new.clone() });
    check("POST", "/rules/r/overrides", body, 201, expect).await;
    let expect = changed(Change::PutOverride { rule: name("r"), new });
    check("PUT", "/rules/r/overrides/o", body, 200, expect).await;
    let patched = |patch| changed(Change::PatchOverride { rule: name("r"), name: name("o"), patch });
    check("PATCH", "/rules/r/overrides/o", "{}", 200, patched(OverridePatch::default())).await;
    let patch =
        OverridePatch { key_values: Some(one("k")), limit: Some(Limit::AtMost(0)), burst: Some(None) };
    let body = r#"{"key_values": {"k": 1}, "limit": 0, "burst": null}"#;
    check("PATCH", "/rules/r/overrides/o", body, 200, patched(patch)).await;
    let expect = changed(Change::DeleteOverride { rule: name("r"), name: name("o") });
    check("DELETE", "/rules/r/overrides/o", "", 204, expect).await;
    let expect = LimiterCommand::GetOverride { rule: name("r"), name: name("o") };
    check("GET", "/rules/r/overrides/o", "", 200, expect).await;

    let body = r#"{"key_values": {"k": 1}}"#;
    check("POST", "/rules/match", body, 200, LimiterCommand::Match(one("k"))).await;
    let counted = |counters: i64| format!(r#"{{"key_values": {{"k": 1}}, "counters": {counters}}}"#);
    let amount = |amount| CounterChange::new(one("k"), amount).unwrap();
    let moved = |by| LimiterCommand::MoveCounter(amount(by));
    const MOST: i64 = 9_007_199_254_740_991;
    check("POST", "/counters", &counted(MOST), 200, moved(MOST)).await;
    check("PUT", "/counters", &counted(-MOST), 200, moved(-MOST)).await;
    let set = |to| LimiterCommand::SetCounter(amount(to));
    check("PUT", "/counters/set", &counted(0), 200, set(0)).await;
    let extend = LimiterCommand::ExtendLease { id: name("l"), session: name("s") };
    check("POST", "/leases/l/heartbeat", r#"{"session_id": "s"}"#, 200, extend).await;
    check("GET", "/leases/l", "", 200, LimiterCommand::GetLease(name("l"))).await;
    let release =
        |session: Option<&str>| LimiterCommand::ReleaseLease { id: name("l"), session: session.map(name) };
    check("DELETE", "/leases/l?session_id=s", "", 204, release(Some("s"))).await;
    check("DELETE", "/leases/l?session_id=s&force=true", "", 204, release(None)).await;
    let leases = |owner: Option<&str>| LimiterCommand::ListLeases {
        owner: owner.map(name),
        page: Page::new(None, 100).unwrap(),
    };
    check("GET", "/leases", "", 200, leases(None)).await;
    check("GET", "/leases?owner=a+b", "", 200, leases(Some("a b"))).await;

    let query = |query| LimiterCommand::ListCounters { query, page: Page::new(None, 100).unwrap() };
    check("POST", "/counters/query", "", 200, query(Query::default())).await;
    let part = |key: &str| Query::new(where_key(key, Test::Exists(false)));
    let body = r#"{"where": {"k": {"gt": "a"}}, "min_keys": 1, "max_keys": 2,
        "any": [{"where": {"x": {"exists": false}}}], "all": [{"where": {"y": {"exists": false}}}]}"#;
    let expect = Query::new(where_key("k", Test::Gt(KeyValue::String("a".into()))))
        .with_min_keys(Some(1))
        .with_max_keys(Some(2))
        .with_any(vec![part("x")])
        .and_then(|query| query.with_all(vec![part("y")]))
        .unwrap();
    check("POST", "/counters/query", body, 200, query(expect)).await;
    let deep = format!("{}{}", r#"{"any": ["#.repeat(7), "{}".to_owned() + &"]}".repeat(7));
    assert_eq!(server.send("POST", "/v1/limiter/rules/query", &deep).await.status().as_u16(), 200);
}

#[tokio::test]
async fn lease_ids_are_drawn() {
    let server = start().await;
    let mut ids = BTreeSet::new();
    for _ in 0..3 {
        let body = r#"{"key_values": {"k": 1}, "ttl": "10s", "owner": "me", "require_match": true}"#;
        assert_eq!(server.send("POST", "/v1/limiter/leases", body).await.status().as_u16(), 201);
        let LimiterCommand::TakeLease(lease) = server.last_limiter_command() else { panic!() };
        assert_eq!((lease.hits(), lease.ttl(), lease.owner()), (1, Millis(10_000), Some(&name("me"))));
        assert_eq!((lease.id().as_str().len(), lease.key_values()), (32, &one("k")));
        assert!(lease.require_match());
        assert!(ids.insert(lease.id().clone()) && ids.insert(lease.session().clone()));
    }
}

fn where_key(key: &str, test: Test) -> Selection {
    Selection::new(vec![(key.into(), vec![test])]).unwrap()
}

/// What a GET returned can be sent back with PUT, and changes nothing.
#[tokio::test]
async fn replies_can_be_sent_back() {
    let server = start().await;
    let (per, description) = (Millis(1_000), Some("d".into()));
    let durability = Some(Durability::Relaxed);
    let windows = [Window::Fixed { per }, Window::Bucket { per, burst: Some(3) }].map(Some);
    for window in windows.into_iter().chain([None]) {
        let new = NewRule { window, durability, description: description.clone(), ..new_rule("r") };
        let shown = Rule {
            window: window.map(RuleWindow::from),
            durability: Durability::Relaxed,
            description: description.clone(),
            ..rule("r")
        };
        server.answers(done(LimiterReply::Rule(shown)));
        let read = server.send("GET", "/v1/limiter/rules/r", "").await.text().await.unwrap();
        assert_eq!(server.send("PUT", "/v1/limiter/rules/r", &read).await.status().as_u16(), 200, "{read}");
        assert_eq!(server.last_limiter_command(), changed(Change::PutRule(new)), "{read}");
    }
    let item = an_override("o");
    server.answers(done(LimiterReply::Override(item.clone())));
    let read = server.send("GET", "/v1/limiter/rules/r/overrides/o", "").await.text().await.unwrap();
    assert_eq!(server.send("PUT", "/v1/limiter/rules/r/overrides/o", &read).await.status().as_u16(), 200);
    let Override { rule, name, key_values, limit, burst, .. } = item;
    let new = NewOverride { name, key_values, limit, burst };
    let expect = changed(Change::PutOverride { rule, new });
    assert_eq!(server.last_limiter_command(), expect, "{read}");
}
