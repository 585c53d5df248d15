//! The example of the original documents, unchanged.

use serde_json::json;

use crate::concurrency::race;
use crate::harness::Server;
use crate::limiter::Limiter;

const RULE_1: &str = r#"{"Name": "rule1", "GroupBy": ["key1", "key2"], "Selection": {}, "Limit": 3}"#;
const RULE_2: &str = r#"{"Name": "rule2", "GroupBy": ["other key"], "Selection": {}, "Limit": 1}"#;
const RULE_1_MISSPELT: &str = r#"{"Name": "rule1", "GroupBy": ["key1", "key2"], "Seletion": {}, "Limit": 3}"#;
const RULE_2_MISSPELT: &str = r#"{"Name": "rule2", "GroupBy": ["other key"], "Seletion": {}, "Limit": 1}"#;

const CHECK_1: &str = r#"{"KeyValues": {
    "key1": {"DataType": 12, "Value": "string1"},
    "key2": {"DataType": 12, "Value": "string2"},
    "other key": {"DataType": 12, "Value": "string3"}
}}"#;
const CHECK_2: &str = r#"{"KeyValues": {
    "key1": {"DataType": 12, "Value": "string1"},
    "key2": {"DataType": 12, "Value": "string2"}
}}"#;
const CHECK_3: &str = r#"{"KeyValues": {"other key": {"DataType": 12, "Value": "string3"}}}"#;

#[track_caller]
fn make(limiter: &Limiter, rules: [&str; 2]) {
    for rule in rules {
        limiter.text("POST", "/rules", rule).created();
    }
}

/// What is in use in the groups of the example.
#[track_caller]
fn used(limiter: &Limiter) -> (i64, i64) {
    let whole = json!({"key1": "string1", "key2": "string2", "other key": "string3"});
    let reply = limiter.look(whole).applied(&["rule1", "rule2"]);
    let used = |rule: &str| reply.limit(rule)["used"].as_i64().expect("`used`");
    (used("rule1"), used("rule2"))
}

#[test]
fn the_example_works_unchanged() {
    let server = Server::fresh();
    for (namespace, rules) in [("spelt", [RULE_1, RULE_2]), ("misspelt", [RULE_1_MISSPELT, RULE_2_MISSPELT])]
    {
        let limiter = server.limiter_of(namespace);
        make(&limiter, rules);
        let rule = limiter.get("/rules/rule1").ok().has("name", "rule1").has("limit", 3);
        assert_eq!(rule.body["group_by"], json!(["key1", "key2"]));

        let check = |body: &str| limiter.text("POST", "/check", body);
        check(CHECK_1).allowed().uses("rule1", 1).uses("rule2", 1);
        check(CHECK_3).denied(&["rule2"]).applied(&["rule2"]);
        check(CHECK_1).denied(&["rule2"]).uses("rule1", 1);
        check(CHECK_2).allowed().applied(&["rule1"]).uses("rule1", 2);
        check(CHECK_2).allowed().uses("rule1", 3);
        check(CHECK_2).denied(&["rule1"]);
        check(CHECK_1).denied(&["rule1", "rule2"]);
        assert_eq!(used(&limiter), (3, 1));
    }
}

#[test]
fn the_documents_field_names_work_in_every_body() {
    let server = Server::fresh();
    let limiter = server.limiter();
    make(&limiter, [RULE_1, RULE_2]);
    let over = r#"{"Name": "more", "KeyValues": {"other key": {"DataType": 12, "Value": "s"}}, "Limit": 2}"#;
    limiter.text("POST", "/rules/rule2/overrides", over).created();
    let selected =
        r#"{"Name": "rule3", "GroupBy": [], "Selection": {"n": {"DataType": 7, "Value": 5}}, "Limit": 1}"#;
    limiter.text("POST", "/rules", selected).created();
    limiter.text("PUT", "/rules/rule3", r#"{"GroupBy": [], "Seletion": {"n": 5}, "Limit": 0}"#).ok();
    limiter.text("PATCH", "/rules/rule3", r#"{"Limit": 1}"#).ok();
    limiter.check(json!({"n": 5})).allowed().uses("rule3", 1);
    limiter.check(json!({"n": 6})).allowed().applied(&[]);

    let taken = r#"{"KeyValues": {"other key": {"DataType": 12, "Value": "s"}}, "counters": 1}"#;
    limiter.text("POST", "/counters", taken).ok();
    let leased = r#"{"KeyValues": {"other key": {"DataType": 12, "Value": "s"}}, "hits": 1, "ttl": "1h"}"#;
    limiter.text("POST", "/leases", leased).created();
    limiter.check(json!({"other key": "s"})).denied(&["rule2/more"]);
    limiter.text("POST", "/rules/match", CHECK_3).ok().naming(&["rule2"]).not_naming(&["rule1", "more"]);
}

/// The race that the documents describe: in whatever order the parallel checks are decided, neither limit is exceeded.
#[test]
fn the_example_has_no_race() {
    let server = Server::fresh();
    for round in 0..25 {
        let limiter = server.limiter_of(&format!("round {round}"));
        make(&limiter, [RULE_1, RULE_2]);
        let bodies = [CHECK_1, CHECK_2, CHECK_3];
        // Twelve clients send four of each check.
        let passed: Vec<bool> = race(12, |client| {
            let reply = limiter.text("POST", "/check", bodies[(client + round) % 3]);
            if reply.status != 200 {
                reply.clone().refused(429, "LimitReached");
            }
            reply.status == 200
        });
        let count = |kinds: [usize; 2]| -> i64 {
            let of_kind = |client: usize| kinds.contains(&((client + round) % 3));
            (0..12).filter(|&client| of_kind(client) && passed[client]).count() as i64
        };
        // Check 3 needs only rule 2, and check 2 only rule 1, so both limits are always used up.
        assert_eq!((count([0, 1]), count([0, 2])), (3, 1), "round {round}: {passed:?}");
        assert_eq!(used(&limiter), (3, 1), "round {round}");
    }
}
