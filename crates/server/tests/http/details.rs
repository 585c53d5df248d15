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
