//! Paths, names, methods, idempotency keys.

use super::*;

const RULE: &str = r#"{"limit": 5}"#;

#[tokio::test]
async fn rules_may_have_the_names_of_calls() {
    let server = start().await;
    let check = async |method: &str, path: &str, body: &str, expect: LimiterCommand| {
        for prefix in ["/v1/limiter", "/v1/ns/n/limiter"] {
            let response = server.send(method, &format!("{prefix}{path}"), body).await;
            assert!(response.status().is_success(), "{method} {path} gave {}", response.status());
            assert_eq!(server.last_limiter_command(), expect, "{method} {path}");
            let namespace = if prefix.contains("/ns/") { "n" } else { "default" };
            assert_eq!(server.last_asked().namespace.as_str(), namespace);
        }
    };
    for word in ["match", "query", "a/b", "🌮"] {
        let path = format!("/rules/{}", word.replace('/', "%2F"));
        check("GET", &path, "", LimiterCommand::GetRule(name(word))).await;
        check("PUT", &path, RULE, changed(Change::PutRule(new_rule(word)))).await;
        check("DELETE", &path, "", changed(Change::DeleteRule(name(word)))).await;
        let expect = Change::PatchRule { name: name(word), patch: RulePatch::default() };
        check("PATCH", &path, "", changed(expect)).await;
        let page = Page::new(None, 100).unwrap();
        let expect = LimiterCommand::ListOverrides { rule: name(word), query: Query::default(), page };
        check("GET", &format!("{path}/overrides"), "", expect.clone()).await;
        check("POST", &format!("{path}/overrides/query"), "", expect).await;
        let expect = LimiterCommand::GetOverride { rule: name(word), name: name("query") };
        check("GET", &format!("{path}/overrides/query"), "", expect).await;
        let expect = LimiterCommand::GetOverride { rule: name("r"), name: name(word) };
        check("GET", &format!("/rules/r/overrides/{}", word.replace('/', "%2F")), "", expect).await;
        let expect = changed(Change::DeleteOverride { rule: name("r"), name: name("query") });
        check("DELETE", "/rules/r/overrides/query", "", expect).await;
    }
    let set = r#"{"rules": [{"name": "r", "limit": 5}]}"#;
    let new = || NewRuleSet {
        rules: vec![SetRule { rule: new_rule("r"), overrides: Vec::new() }],
        overrides: SetOverrides::Closed,
    };
    let put = Change::PutRuleSet { set: name("a/b"), new: new(), author: SetAuthor::Client };
    check("PUT", "/rule-sets/a%2Fb", set, changed(put.clone())).await;
    check("PUT", "/rule-sets/a%2Fb?dry_run=false", set, changed(put)).await;
    let plan = LimiterCommand::PlanRuleSet(RuleSetPlan::new(name("a/b"), new()).unwrap());
    check("PUT", "/rule-sets/a%2Fb?dry_run=true", set, plan).await;
    check("GET", "/rule-sets/a%2Fb", "", LimiterCommand::GetRuleSet(name("a/b"))).await;
    let delete = Change::DeleteRuleSet { set: name("a/b"), author: SetAuthor::Client };
    check("DELETE", "/rule-sets/a%2Fb", "", changed(delete)).await;
    check("POST", "/rules/match", r#"{"key_values": {}}"#, LimiterCommand::Match(KeyValues::empty())).await;
}

#[tokio::test]
async fn names_and_methods() {
    let server = start().await;
    let refused = async |method: &str, path: &str, field: &str| {
        let path = format!("/v1/limiter{path}");
        let problem = problem_of(server.send(method, &path, "").await, 400, "InvalidRequest").await;
        assert_eq!(problem["field"], field, "{path}");
        server.nothing_asked();
    };
    refused("GET", "/rules/", "name").await;
    refused("GET", "/rules//overrides", "name").await;
    refused("GET", "/rules//overrides/o", "name").await;
    refused("POST", "/rules//overrides/query", "name").await;
    refused("GET", "/rules/r/overrides/", "override").await;
    refused("GET", "/rule-sets/", "set").await;
    refused("DELETE", "/leases/", "lease_id").await;
    refused("POST", "/leases//heartbeat", "lease_id").await;
    refused("GET", "/rules//groups", "name").await;
    refused("GET", "/rules/%00", "name").await;
    refused("GET", "/rules/r/overrides/%0A", "override").await;
    refused("GET", "/leases/%FF", "lease_id").await;
    refused("GET", "/rules?limit=0", "limit").await;
    refused("GET", "/rules/r?limit=1", "limit").await;
    refused("POST", "/check?dry_run=1", "dry_run").await;
    refused("POST", "/counters/query?after=x", "after").await;
    refused("POST", "/counters/query?x=1", "x").await;

    let allowed = async |method: &str, path: &str, allow: &[&str]| {
        let response = server.send(method, &format!("/v1/limiter{path}"), "").await;
        let found = response.headers()["allow"].to_str().unwrap().to_owned();
        let found: BTreeSet<&str> = found.split(',').map(str::trim).collect();
        assert_eq!(found, allow.iter().copied().collect(), "{method} {path}");
        problem_of(response, 405, "MethodNotAllowed").await;
    };
    allowed("PUT", "/rules", &["GET", "HEAD", "POST"]).await;
    allowed("POST", "/rules/r", &["GET", "HEAD", "PUT", "PATCH", "DELETE"]).await;
    allowed("BREW", "/rules/match", &["GET", "HEAD", "PUT", "PATCH", "DELETE", "POST"]).await;
    allowed("POST", "/rules/r/overrides/o", &["GET", "HEAD", "PUT", "PATCH", "DELETE"]).await;
    allowed("GET", "/check", &["POST"]).await;
    allowed("GET", "/counters", &["POST", "PUT"]).await;
    allowed("POST", "/counters/set", &["PUT"]).await;
    allowed("PUT", "/leases/l", &["GET", "HEAD", "DELETE"]).await;
    problem_of(server.send("GET", "/v1/limiter", "").await, 404, "NotFound").await;
    problem_of(server.send("GET", "/v1/limiter/counters/x", "").await, 404, "NotFound").await;
}

#[tokio::test]
async fn idempotency_keys_belong_to_posts_and_puts_that_change() {
    let server = start().await;
    let check = async |method: &str, path: &str, body: &str, takes: bool| {
        let request = server.request(method, &format!("/v1/limiter{path}")).header("Idempotency-Key", "k");
        let response = request.body(body.to_owned()).send().await.unwrap();
        assert!(response.status().is_success(), "{method} {path}");
        let key = server.last_asked().idempotency.map(|found| found.key);
        assert_eq!(key, takes.then(|| name("k")), "{method} {path}");
    };
    let new = r#"{"name": "r", "limit": 1}"#;
    let key_values = r#"{"key_values": {}}"#;
    let new_override = r#"{"name": "o", "key_values": {}, "limit": 1}"#;
    check("POST", "/rules", new, true).await;
    check("PUT", "/rules/r", new, true).await;
    check("PATCH", "/rules/r", "", false).await;
    check("DELETE", "/rules/r", "", false).await;
    check("POST", "/rules/r/overrides", new_override, true).await;
    check("PUT", "/rules/r/overrides/o", new_override, true).await;
    check("POST", "/rules/match", key_values, false).await;
    check("POST", "/rules/query", "", false).await;
    check("POST", "/check", key_values, true).await;
    check("POST", "/check/batch", r#"{"checks": [{"key_values": {}}]}"#, true).await;
    check("POST", "/counters", r#"{"key_values": {}, "counters": 1}"#, true).await;
    check("PUT", "/counters", r#"{"key_values": {}, "counters": 1}"#, true).await;
    check("PUT", "/counters/set", r#"{"key_values": {}, "counters": 1}"#, true).await;
    check("POST", "/leases", r#"{"key_values": {}, "ttl": "100ms"}"#, true).await;
    check("POST", "/leases/l/heartbeat", r#"{"session_id": "s"}"#, true).await;
    check("DELETE", "/leases/l?session_id=s", "", false).await;
}
