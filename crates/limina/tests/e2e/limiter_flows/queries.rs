//! Invalid queries. The results of queries are tested by `queries.txt` of the engine.

use serde_json::json;

use crate::harness::Server;

#[test]
fn bad_queries_are_refused() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.rule("r", &[], 1);
    for path in ["/rules/query", "/counters/query", "/rules/r/overrides/query"] {
        for (query, field) in [
            (json!({"were": {}}), "were"),
            (json!({"where": 1}), "where"),
            (json!({"where": {"a": {"about": 1}}}), "where"),
            (json!({"where": {"a": null}}), "where"),
            (json!({"where": {"a": {"exists": "yes"}}}), "where"),
            (json!({"where": {"a": {"in": 1}}}), "where"),
            (json!({"where": {"a": {"prefix": 1}}}), "where"),
            (json!({"min_keys": -1}), "min_keys"),
            (json!({"min_keys": "1"}), "min_keys"),
            (json!({"max_keys": 1.5}), "max_keys"),
            (json!({"any": {}}), "any"),
            (json!({"any": [1]}), "any"),
            (json!({"all": [{"where": {"a": []}}]}), "all"),
        ] {
            let said = format!("{path} {query}");
            let reply = limiter.post(path, query);
            assert_eq!((reply.status, reply.code()), (400, "InvalidRequest"), "{said} → {}", reply.text);
            reply.invalid(field);
        }
        // A query of any depth is answered.
        let mut deep = json!({"where": {}});
        for _ in 0..60 {
            deep = json!({"all": [deep]});
        }
        let reply = limiter.post(path, deep);
        assert!([200, 400].contains(&reply.status), "{}", reply.text);
        let deeper = format!("{}{}", "{\"all\":[".repeat(20_000), "]}".repeat(20_000));
        limiter.text("POST", path, &deeper).refused(400, "InvalidRequest");
    }
}
