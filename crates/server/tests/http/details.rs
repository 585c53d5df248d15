//! The `detail` of an invalid request: a sentence that names the field and says what it must be.

use super::*;

#[tokio::test]
async fn details_name_the_field_and_say_what_it_must_be() {
    let server = start().await;
    let check = async |method: &str, path: &str, body: &str, expect: &str| {
        let problem = problem_of(server.send(method, path, body).await, 400, "InvalidRequest").await;
        assert_eq!(problem["detail"], expect, "{method} {path} {body}");
        server.nothing_asked();
    };
    let hold = async |body: &str, expect: &str| check("POST", "/v1/ledger/hold", body, expect).await;
    hold("", "The body must not be empty, because some fields are required.").await;
    hold("{", "The body is not valid JSON: EOF while parsing an object (line 1, column 1).").await;
    hold("[]", "The body must be an object, not a list.").await;
    hold(r#"{"changes": []}"#, "The field `operation_id` is required.").await;
    hold(
        r#"{"operation_id": "o", "changes": [{"limit_name": "a"}]}"#,
        "The field `changes[0].value` is required.",
    )
    .await;
    hold(
        r#"{"operation_id": "o", "changes": [{"limit_name": "a", "value": "5"}]}"#,
        "The field `changes[0].value` must be an integer from −2^63 to 2^63−1, not the string \"5\".",
    )
    .await;
    hold(r#"{"operation_id": "o", "changes": {}}"#, "The field `changes` must be a list, not an object.")
        .await;
    hold(
        r#"{"operation_id": "o", "changes": [], "skip": true}"#,
        "The field `skip` is not a known field. Known fields: `operation_id`, `changes`, `skip_existing_holds`, \
         `create_missing`, `expires_after`.",
    )
    .await;
    hold(
        r#"{"operation_id": "o", "operation_id": "o", "changes": []}"#,
        "The field `operation_id` is given twice.",
    )
    .await;
    hold(
        r#"{"operation_id": "o", "changes": [{"limit_name": "a", "value": 1}], "expires_after": "5 min"}"#,
        "The field `expires_after` must be a duration such as \"1m30s\": \" min\" is not a unit (d, h, m, s or ms).",
    )
    .await;
    check(
        "POST",
        "/v1/limiter/rules",
        r#"{"name": "r", "limit": 1, "window": {"type": "rolling", "per": "1m"}}"#,
        "The field `window.type` must be one of \"fixed\", \"sliding\", \"bucket\".",
    )
    .await;
    check(
        "POST",
        "/v1/limiter/rules",
        r#"{"name": "r", "limit": 1, "window": {"type": "fixed", "per": 60}}"#,
        "The field `window.per` must have a unit, such as \"60s\" or \"60ms\", and must not be the bare number 60; a number of \
         milliseconds goes into the field whose name ends in _ms.",
    )
    .await;
    check(
        "POST",
        "/v1/limiter/rules",
        r#"{"name": "r", "limit": 1, "window": {"type": "fixed", "per": "1m", "per_ms": 60000}}"#,
        "The field `window.per_ms` must be absent, because `window.per` is given.",
    )
    .await;
    check(
        "POST",
        "/v1/limiter/check",
        r#"{"key_values": {"k": null}}"#,
        "The field `key_values.k` must be a string, a number or a boolean, not null.",
    )
    .await;
    check(
        "GET",
        "/v1/ledger/limits?limit=0",
        "",
        "The query parameter `limit` must be an integer from 1 to 1000.",
    )
    .await;
    check("GET", "/v1/ledger/limits?page=2", "", "The query parameter `page` is not known here.").await;
    check(
        "GET",
        "/v1/ledger/limits/%FF",
        "",
        "The path parameter `name` must be UTF-8 when percent-decoded.",
    )
    .await;
}

/// Whatever stands in the place of a field or of one of its parts, the answer speaks of JSON, and not of serde or Rust.
#[tokio::test]
async fn no_detail_speaks_rust() {
    let server = start().await;
    let query = json!({"where": {"k": {"in": [1], "prefix": "a", "exists": true, "lt": 1}}, "min_keys": 1, "max_keys": 2,
        "any": [{}], "all": [{}]});
    let rule = json!({"name": "r", "group_by": ["k"], "selection": {"k": {"eq": 1}}, "limit": 1, "window": {"type": "bucket",
        "per": "1m", "per_ms": 1, "burst": 1}, "shadow": true, "durability": "relaxed", "description": "d", "overrides": 1,
        "managed_by": "file", "created_position": 1});
    let item = json!({"name": "o", "key_values": {"k": {"DataType": 7, "Value": "1"}}, "limit": 1, "burst": 1, "rule": "r",
        "created_position": 1});
    let lease = json!({"key_values": {"k": 1}, "hits": 1, "ttl": "1m", "ttl_ms": 1, "owner": "o", "require_match": true});
    let hold = json!({"operation_id": "o", "changes": [{"limit_name": "a", "value": 1, "limit_id": "i", "context": {"a": "b"}}],
        "skip_existing_holds": true, "create_missing": true, "expires_after": "1m", "expires_after_ms": 1});
    let bodies = [
        (
            "POST",
            "/v1/ledger/limits",
            json!({"name": "a", "limit_id": "i", "context": {"a": "b"}, "ceiling": 1}),
        ),
        ("PATCH", "/v1/ledger/limits/a", json!({"context": {"a": "b"}, "ceiling": 1})),
        ("POST", "/v1/ledger/hold", hold.clone()),
        (
            "POST",
            "/v1/ledger/commit",
            json!({"operation_id": "o", "changes": [{"limit_name": "a", "value": 1}]}),
        ),
        ("POST", "/v1/ledger/hold/batch", json!({"operations": [hold]})),
        ("POST", "/v1/ledger/values", json!({"limit_names": ["a"], "operation_id": "o", "position": 1})),
        ("POST", "/v1/limiter/rules", rule.clone()),
        ("PATCH", "/v1/limiter/rules/r", rule),
        ("POST", "/v1/limiter/rules/r/overrides", item.clone()),
        ("PATCH", "/v1/limiter/rules/r/overrides/o", item),
        ("POST", "/v1/limiter/rules/match", json!({"key_values": {"k": 1}})),
        (
            "POST",
            "/v1/limiter/check",
            json!({"key_values": {"k": 1}, "hits": 1, "dry_run": true, "require_match": true}),
        ),
        ("POST", "/v1/limiter/check/batch", json!({"checks": [{"key_values": {"k": 1}}]})),
        ("POST", "/v1/limiter/counters", json!({"key_values": {"k": 1}, "counters": 1})),
        ("POST", "/v1/limiter/leases", lease),
        ("POST", "/v1/limiter/leases/l/heartbeat", json!({"session_id": "s"})),
        ("POST", "/v1/limiter/counters/query", query.clone()),
        ("POST", "/v1/limiter/rules/query", query),
        (
            "POST",
            "/v1/locks",
            json!({"locks": [{"key_values": {"k": 1}, "mode": "shared"}], "ttl": "1m", "wait": "1s"}),
        ),
        (
            "PUT",
            "/v1/events/s",
            json!({"mode": "only_once", "duration": "1s", "max_events": 1, "key_frame_every": "1s"}),
        ),
        ("POST", "/v1/events/s", json!({"event": "e"})),
    ];
    let wrong = [
        "null",
        "true",
        "1.5",
        "-1",
        "1e999",
        "99999999999999999999",
        r#""x""#,
        "[]",
        "{}",
        "[[]]",
        r#"{"x": [{}]}"#,
    ];
    const RUST: [&str; 14] = [
        "expected ",
        "invalid ",
        "i64",
        "u64",
        "u32",
        "usize",
        "f64",
        "sequence",
        "map",
        "struct",
        "variant",
        "newtype",
        "unit value",
        "tuple",
    ];
    for (method, path, body) in bodies {
        for changed in places(&body).iter().flat_map(|place| wrong.map(|wrong| with(&body, place, wrong))) {
            let answer = server.send(method, path, &changed).await.text().await.unwrap();
            let answer: Json = serde_json::from_str(&answer).unwrap();
            let results = answer["results"].as_array().cloned().unwrap_or_default();
            for problem in results.iter().chain([&answer]) {
                let detail = problem["detail"].as_str().unwrap_or_default();
                assert!(!RUST.iter().any(|word| detail.contains(word)), "{path} {changed}: {detail}");
            }
        }
    }
}

/// The JSON pointers of the body, and of everything in it.
fn places(json: &Json) -> Vec<String> {
    let parts: Vec<(String, &Json)> = match json {
        Json::Object(fields) => fields.iter().map(|(name, part)| (name.clone(), part)).collect(),
        Json::Array(items) => items.iter().enumerate().map(|(n, part)| (n.to_string(), part)).collect(),
        _ => Vec::new(),
    };
    let inner = parts
        .into_iter()
        .flat_map(|(name, part)| places(part).into_iter().map(move |place| format!("/{name}{place}")));
    inner.chain([String::new()]).collect()
}

/// The body with other JSON, valid or not, at this place.
fn with(body: &Json, place: &str, json: &str) -> String {
    const MARK: &str = "other JSON";
    let mut body = body.clone();
    *body.pointer_mut(place).unwrap() = MARK.into();
    body.to_string().replace(&format!("{MARK:?}"), json)
}
