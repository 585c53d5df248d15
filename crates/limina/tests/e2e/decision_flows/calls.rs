//! Every request of decisions once, with its complete answer.

use super::{actual, call, gateway, used};
use crate::around::Metrics;
use crate::harness::{Server, eventually};
use crate::ledger::{encode, with};
use serde_json::{Value, json};

#[test]
fn a_decision_is_made_and_settled() {
    let server = Server::fresh();
    let decisions = gateway(&server, 10_000, 5, 1_000);
    server.events().only_once("mails", "10ms");
    let request = with(
        call("req-1", 4_000, 400),
        json!({
            "owner": "gw-1",
            "locks": [{"key_values": {"session": "s-1"}}],
            "event": {"stream": "mails", "event": "welcome, ann"},
        }),
    );
    let made =
        decisions.decide(&request).ok().has("state", "open").has("repeated", false).has("owner", "gw-1");
    assert_eq!(made.body["position"], made.body["fencing_token"]);
    assert_eq!(made.body["values"][0]["hold_value"], 400);
    assert_eq!(made.body["locks"], json!([{"key_values": {"session": "s-1"}, "mode": "exclusive"}]));
    assert_eq!(made.body["event"]["status"], "submitted");
    let limits = made.body["limits"].as_array().unwrap();
    let shown: Vec<_> =
        limits.iter().map(|limit| (&limit["check"], &limit["rule"], &limit["used"])).collect();
    let (tokens, slots) = (json!("tokens"), json!("slots"));
    assert_eq!(shown, [(&tokens, &tokens, &json!(4_000)), (&json!(1), &slots, &json!(1))]);
    assert!(made.header("ratelimit-policy").contains("\"tokens\";q=10000"), "{:?}", made.headers);
    assert_eq!(used(&server), (4_000, 1, 0, 400));

    // The same request returns the same decision. Another request under its id is an error.
    let again = decisions.decide(&request).ok().has("repeated", true);
    assert_eq!(again.body["position"], made.body["position"]);
    decisions.decide(&with(request.clone(), json!({"owner": "gw-2"}))).refused(422, "OperationReused");

    // The lock is listed with its decision, and cannot be released alone.
    let lock = server.locks().all(10).remove(0);
    let lease = server.limiter().all("/leases", None, 10).remove(0);
    assert_eq!((&lock["operation_id"], &lease["operation_id"]), (&json!("req-1"), &json!("req-1")));
    server.ledger().operation("req-1").ok().has("state", "held");
    let lock_path = format!("/{}?session_id=x", encode(lock["lock_id"].as_str().unwrap()));
    let lease_path = format!("/leases/{}?session_id=x", encode(lease["lease_id"].as_str().unwrap()));
    crate::reply::Reply::to(server.locks().request("DELETE", &lock_path)).refused(409, "PartOfOperation");
    server.limiter().delete(&lease_path).refused(409, "PartOfOperation").has("operation_id", "req-1");
    server.ledger().commit_all("req-1").refused(409, "PartOfOperation");

    decisions.heartbeat("req-1").ok().has("state", "open").has("ttl_ms", 3_600_000);
    decisions.get("req-1").ok().has("state", "open");
    assert_eq!(decisions.open("&owner=gw-1"), ["req-1"]);
    assert_eq!(decisions.open("&owner=gw-2"), [""; 0]);
    assert_eq!(decisions.open("&older_than=1h"), [""; 0]);

    // Nothing is published before the commit, although the duration of the stream has passed.
    decisions.commit("req-1", &actual(1, 500)).refused(409, "CommitExceedsHold").has("held_value", 400);
    decisions.commit("req-1", &json!({"checks": [{"name": "slots", "hits": 1}]})).invalid("checks");
    decisions.commit("req-1", &json!({"holds": [{"limit_name": "x", "value": 1}]})).invalid("holds");
    server.events().read("mails").ok().has("incubating", 1);
    let done =
        decisions.commit("req-1", &actual(3_100, 310)).ok().has("state", "committed").has("late", false);
    assert_eq!(done.body["expires_in_ms"], Value::Null);
    assert_eq!(used(&server), (3_100, 0, 310, 0));
    assert_eq!(server.locks().all(10), [Value::Null; 0]);
    let published = eventually(|| (server.events().read("mails").ok().body["incubating"] == 0).then_some(()));
    assert!(published.is_some(), "the event is published after the commit");

    // The same commit returns the same answer. The decision cannot be ended in another way.
    let again = decisions.commit("req-1", &actual(3_100, 310)).ok();
    assert_eq!(again.body, done.body);
    decisions
        .commit("req-1", &actual(3_100, 311))
        .refused(404, "OperationNotFound")
        .has("state", "committed");
    decisions.rollback("req-1").refused(404, "OperationNotFound").has("state", "committed");
    decisions.heartbeat("req-1").refused(404, "OperationNotFound").has("state", "committed");
    let ended =
        decisions.decide(&request).refused(409, "OperationAlreadyInFinalState").has("state", "committed");
    assert_eq!(ended.body["position"], done.body["position"]);
    assert_eq!(decisions.get("req-1").ok().body, done.body);

    // A rollback returns everything.
    decisions.decide(&call("req-2", 4_000, 400)).ok();
    let back = decisions.rollback("req-2").ok().has("state", "rolled_back");
    assert_eq!(decisions.rollback("req-2").ok().body, back.body);
    assert_eq!(used(&server), (3_100, 0, 310, 0));
    decisions.get("req-3").refused(404, "OperationNotFound");
}

#[test]
fn a_refusal_names_everything_that_refuses() {
    let server = Server::fresh();
    let decisions = gateway(&server, 1_000, 1, 100);
    server.events().only_once("mails", "1h");
    let whole = |id: &str| {
        let parts = json!({
            "owner": "first",
            "locks": [{"key_values": {"session": "s-1"}}],
            "event": {"stream": "mails", "event": "once"},
        });
        with(call(id, 900, 90), parts)
    };
    decisions.decide(&whole("a")).ok();
    let refused = decisions.decide(&with(whole("b"), json!({"explain": true}))).refused(429, "Refused");
    let body = &refused.body;
    assert_eq!(body["refused_by"], json!(["limits", "holds", "locks", "event"]), "{body}");
    let codes = |list: &str| {
        body[list].as_array().unwrap().iter().map(|item| item["code"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(codes("limits"), ["LimitReached", "LimitReached"]);
    assert_eq!((codes("holds"), codes("locks")), (vec![json!("LimitExceeded")], vec![json!("LockHeld")]));
    assert_eq!(body["event"]["code"], "EventConflict");
    assert_eq!((&body["holds"][0]["available"], &body["locks"][0]["owner"]), (&json!(10), &json!("first")));
    for held_by in [&body["limits"][1]["held_by"], &body["holds"][0]["held_by"]] {
        assert_eq!(held_by[0]["operation_id"], "a", "{body}");
    }
    assert_eq!(body["retry_after_ms"], Value::Null, "a slot, a ceiling and a lock refuse: {body}");
    assert!(refused.header("ratelimit").contains("\"tokens\""), "{:?}", refused.headers);

    // The answer names only the parts that refuse. It has status 409 if no limit of the limiter refuses, and
    // `retry_after_ms` if waiting alone helps.
    let lock = json!({"operation_id": "c", "locks": [{"key_values": {"session": "s-1"}, "mode": "shared"}]});
    let refused = decisions.decide(&lock).refused(409, "Refused");
    assert_eq!(refused.body["refused_by"], json!(["locks"]));
    let tokens = json!({"operation_id": "c", "checks": [{"key_values": {"tenant": "acme", "meter": "tokens"}, "hits": 101}]});
    let refused = decisions.decide(&tokens).refused(429, "Refused");
    assert!(
        refused.body["retry_after_ms"].is_u64() && !refused.header("retry-after").is_empty(),
        "{}",
        refused.text
    );

    // Nothing has changed, and the id can be used. A dry run changes nothing either.
    assert_eq!(used(&server), (900, 1, 0, 90));
    decisions.get("b").refused(404, "OperationNotFound");
    let small = |id: &str| json!({"operation_id": id, "holds": [{"limit_name": "budget", "value": 10}]});
    let dry = decisions.decide(&with(small("b"), json!({"dry_run": true}))).ok();
    assert_eq!((&dry.body["position"], &dry.body["fencing_token"]), (&Value::Null, &Value::Null));
    assert_eq!(dry.body["values"][0]["hold_value"], 100);
    assert_eq!(used(&server), (900, 1, 0, 90));
    decisions.decide(&small("b")).ok();

    // Mistakes.
    let hold = |limit: &str| json!({"operation_id": "m", "holds": [{"limit_name": limit, "value": 1}]});
    decisions.decide(&hold("none")).refused(404, "LimitNotFound").has("limit_names", json!(["none"]));
    let event = json!({"operation_id": "m", "event": {"stream": "none", "event": "x"}});
    decisions.decide(&event).refused(404, "StreamNotFound");
    let check =
        json!({"operation_id": "m", "checks": [{"key_values": {"tennant": "acme"}, "require_match": true}]});
    decisions.decide(&check).refused(422, "NoRuleApplies");
    decisions.decide(&with(hold("budget"), json!({"lock": []}))).invalid("lock");
    decisions.decide(&json!({"operation_id": "m"})).invalid("checks");
    let made = with(hold("made"), json!({"create_missing": true}));
    decisions.decide(&made).ok();
    server.ledger().limit("made").ok().has("hold_value", 1);
}

/// An operator who releases one part ends the whole decision. What has already happened can still be recorded, even
/// past the ceiling.
#[test]
fn a_forced_release_ends_the_decision_and_actual_amounts_can_be_recorded() {
    let server = Server::fresh();
    let decisions = gateway(&server, 1_000, 5, 100);
    let request = with(call("a", 900, 90), json!({"locks": [{"key_values": {"session": "s-1"}}]}));
    decisions.decide(&request).ok();
    let lock = server.locks().all(10).remove(0);
    server.locks().force(lock["lock_id"].as_str().unwrap()).is(204);
    assert_eq!(used(&server), (0, 0, 0, 0));
    decisions.commit("a", &actual(700, 70)).refused(404, "OperationNotFound").has("state", "rolled_back");
    let late = with(actual(1_200, 120), json!({"record": true}));
    let done = decisions.commit("a", &late).ok().has("state", "committed").has("late", true);
    assert_eq!(decisions.commit("a", &late).ok().body, done.body);
    assert_eq!(used(&server), (1_200, 0, 120, 0));
    let entries = server.ledger().entries("budget");
    assert_eq!(entries.last().map(|entry| &entry["type"]), Some(&json!("overage")), "{entries:?}");
}

#[test]
fn batches_of_decisions_and_ids_that_look_like_paths() {
    let server = Server::fresh();
    let decisions = gateway(&server, 1_000, 5, 100);
    let items = vec![
        call("a", 500, 50),
        call("b", 600, 40),
        json!({"operation_id": "c"}),
        with(call("d", 1, 1), json!({"wait": "1s"})),
        call("batch", 300, 30),
        call("commit", 0, 0),
    ];
    let statuses = |results: &[Value]| {
        let of =
            |result: &Value| (result["status"].as_u64().unwrap(), result["code"].as_str().map(str::to_owned));
        results.iter().map(of).collect::<Vec<_>>()
    };
    let (ok, no) = ((200, None), |status, code: &str| (status, Some(code.to_owned())));
    let made = decisions.batch("/batch", items);
    let invalid = no(400, "InvalidRequest");
    assert_eq!(
        statuses(&made),
        [ok.clone(), no(429, "Refused"), invalid.clone(), invalid, ok.clone(), ok.clone()]
    );
    assert_eq!(made[3]["field"], "wait");
    assert_eq!(decisions.open(""), ["a", "batch", "commit"]);
    for id in ["batch", "commit"] {
        decisions.get(id).ok().has("state", "open");
        decisions.heartbeat(id).ok();
    }
    let commits = vec![with(actual(450, 45), json!({"operation_id": "a"})), json!({"operation_id": "b"})];
    let done = decisions.batch("/commit/batch", commits);
    assert_eq!(statuses(&done), [ok.clone(), no(404, "OperationNotFound")]);
    decisions.commit("commit", &json!({})).ok();
    let back = decisions.batch("/rollback/batch", vec![json!({"operation_id": "batch"})]);
    assert_eq!((statuses(&back), &back[0]["state"]), (vec![ok], &json!("rolled_back")));
    assert_eq!(used(&server), (450, 0, 45, 0));
}

#[test]
fn checks_of_decisions_are_counted_by_rule() {
    let server = Server::fresh();
    let decisions = gateway(&server, 10, 1, 100);
    decisions.decide(&call("a", 4, 1)).ok();
    // A repeated answer, and a dry run.
    decisions.decide(&call("a", 4, 1)).ok();
    decisions.decide(&with(call("b", 1, 1), json!({"dry_run": true}))).refused(429, "Refused");
    // Only the limit of slots refuses, not that of tokens.
    decisions.decide(&call("b", 4, 1)).refused(429, "Refused");
    let unknown = json!([{"key_values": {"tenant": "acme", "meter": "typo"}}]);
    let unmatched = |id: &str| json!({"operation_id": id, "checks": unknown});
    let batch = json!({"operations": [unmatched("c"), unmatched("d")]});
    decisions.post("/batch", &batch).ok();
    let Metrics { samples, .. } = Metrics::parse(&server.get("/metrics").text);
    let count = |name: &str, labels: &str| samples.get(&(name.to_owned(), labels.to_owned())).copied();
    let of_rule = |rule: &str, result: &str| {
        let labels = format!(r#"namespace="default",rule="{rule}",result="{result}""#);
        count("limina_limiter_rule_checks_total", &labels)
    };
    let results = ["tokens", "slots"].map(|rule| [of_rule(rule, "allowed"), of_rule(rule, "refused")]);
    assert_eq!(results, [[Some(1.0), Some(0.0)], [Some(1.0), Some(1.0)]]);
    assert_eq!(count("limina_limiter_unmatched_checks_total", r#"namespace="default""#), Some(2.0));
}
