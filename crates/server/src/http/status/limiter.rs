//! The limiter's answers and refusals.

use super::{
    super::{
        json::json as respond,
        problem::{Code, Failure},
        rate_limit, request_id,
        to_wire::limiter as to_wire,
    },
    common::{part_of_operation, quota_exceeded},
};
use axum::{
    http::{
        HeaderValue, StatusCode,
        header::{CONTENT_TYPE, RETRY_AFTER},
    },
    response::{IntoResponse, Response},
};
use limina_api::{
    Page,
    limiter::{CheckReply, Groups, LimitReached, MatchReply},
    problem::MEDIA_TYPE,
};
use limina_engine::{
    Outcome,
    limiter::{Checked, ManagedRule, Refusal, Reply},
};
use limina_node::Unavailable;
use serde_json::{Value, json};

/// The number of limits that the answer contains.
pub(crate) fn limits(result: &Result<Outcome, Unavailable>) -> usize {
    match result {
        Ok(Outcome::Limiter(
            Ok(
                Reply::Allowed(decision)
                | Reply::Set(decision)
                | Reply::Moved { decision, .. }
                | Reply::LeaseTaken { decision, .. },
            )
            | Err(Refusal::LimitReached(decision)),
        )) => decision.limits.len(),
        _ => 0,
    }
}

pub(super) fn answer(result: Result<Reply, Refusal>) -> Result<Response, Failure> {
    let reply = match result {
        Ok(reply) => reply,
        Err(Refusal::LimitReached(decision)) => return Ok(check_refused(decision)),
        Err(refusal) => return Err(self::refusal(&refusal)),
    };
    let done = StatusCode::OK;
    let made = StatusCode::CREATED;
    Ok(match reply {
        Reply::Rule(rule) => respond(done, &rule),
        Reply::RuleCreated(rule) => respond(made, &rule),
        Reply::Rules(listed) => respond(done, &Page::from(listed)),
        Reply::Override(item) => respond(done, &item),
        Reply::OverrideCreated(item) => respond(made, &item),
        Reply::Overrides(listed) => respond(done, &Page::from(listed)),
        Reply::RuleDeleted
        | Reply::OverrideDeleted
        | Reply::LeaseReleased
        | Reply::LeaseAbandoned
        | Reply::RuleSetDeleted(_) => StatusCode::NO_CONTENT.into_response(),
        Reply::RuleSetPut { is_new: true, changes } => respond(made, &changes),
        Reply::RuleSetPut { is_new: false, changes } | Reply::RuleSetPlanned(changes) => {
            respond(done, &changes)
        }
        Reply::RuleSet(set) => respond(done, &set),
        Reply::RuleSets(listed) => respond(done, &Page::from(listed)),
        Reply::Matches(rules) => respond(done, &MatchReply { rules }),
        Reply::Allowed(decision) | Reply::Set(decision) => {
            with_rate_limits(decision, |decision| respond(done, &CheckReply::from(decision)))
        }
        Reply::Batch(decisions) => respond(done, &to_wire::check_batch(decisions, Vec::new())),
        Reply::Moved { counter, decision } => respond(done, &to_wire::moved(counter, decision)),
        Reply::Counter(counter) => respond(done, &counter),
        Reply::Counters(listed) => respond(done, &Page::from(listed)),
        Reply::LeaseTaken { lease, session, decision } => with_rate_limits(decision, |decision| {
            respond(made, &to_wire::lease_taken(*lease, session, decision))
        }),
        Reply::Lease(lease) => respond(done, &lease),
        Reply::Leases(listed) => respond(done, &Page::from(listed)),
        Reply::Groups(part) => {
            let complete = part.next.is_none();
            respond(done, &Groups { items: part.items, next: None, complete })
        }
    })
}

/// A check or a lease that a limit refuses: 429, because the client can retry.
fn check_refused(decision: Checked) -> Response {
    let retry_after = decision.retry_after;
    let mut response =
        with_rate_limits(decision, |decision| limit_reached(decision, Code::LimitReached.status()));
    if let Some(after) = retry_after {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(rate_limit::seconds(after)));
    }
    response
}

/// A counter that a limit refuses to raise: 409, because waiting alone does not help.
pub(crate) fn counter_refused(decision: Checked) -> Response {
    limit_reached(decision, StatusCode::CONFLICT)
}

fn limit_reached(decision: Checked, status: StatusCode) -> Response {
    let problem = to_wire::limit_reached(decision, status.as_u16());
    let mut response = respond(status, &LimitReached { request_id: request_id::current(), ..problem });
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    response
}

/// The response of a check, with the headers of its limits.
fn with_rate_limits(decision: Checked, respond: impl FnOnce(Checked) -> Response) -> Response {
    let headers = rate_limit::headers(decision.limits.iter(), decision.retry_after);
    let mut response = respond(decision);
    response.headers_mut().extend(headers.into_iter().flatten());
    response
}

/// The rules that belong to a set, or to another one.
fn managed_by_set(rules: &[ManagedRule]) -> Failure {
    let detail = match rules {
        [ManagedRule { rule, set }] => {
            format!("The rule {rule:?} belongs to the rule set {set:?}, and is changed with it.")
        }
        several => format!("These {} rules belong to a rule set, and are changed with it.", several.len()),
    };
    let listed: Vec<Value> = rules
        .iter()
        .map(|managed| json!({"rule": managed.rule.as_str(), "managed_by": managed.set.as_str()}))
        .collect();
    let failure = Failure::new(Code::RuleManagedBySet, detail).with("rules", listed);
    match rules.first() {
        Some(first) => failure.with("rule", first.rule.as_str()).with("managed_by", first.set.as_str()),
        None => failure,
    }
}

pub(crate) fn refusal(refusal: &Refusal) -> Failure {
    match refusal {
        Refusal::RuleNotFound { rule } => {
            Failure::new(Code::RuleNotFound, format!("The rule {rule:?} does not exist."))
                .with("rule", rule.as_str())
        }
        Refusal::RuleSetNotFound { set } => {
            Failure::new(Code::RuleSetNotFound, format!("The rule set {set:?} does not exist."))
                .with("rule_set", set.as_str())
        }
        Refusal::RuleSetManagedByServer { set } => {
            let detail = format!("Only the server's configuration can change the rule set {set:?}.");
            Failure::new(Code::RuleSetManagedByServer, detail).with("rule_set", set.as_str())
        }
        Refusal::RuleManagedBySet { rules } => managed_by_set(rules),
        Refusal::RuleAlreadyExists { rule } => {
            Failure::new(Code::RuleAlreadyExists, format!("The rule {rule:?} already exists."))
                .with("rule", rule.as_str())
        }
        Refusal::OverridesConflict { rule, name } => {
            let detail =
                format!("The override {name:?} of the rule {rule:?} lacks a key of the new group_by.");
            Failure::new(Code::OverridesConflict, detail)
                .with("rule", rule.as_str())
                .with("override", name.as_str())
        }
        Refusal::OverrideNotFound { rule, name } => {
            let detail = format!("The rule {rule:?} has no override {name:?}.");
            Failure::new(Code::OverrideNotFound, detail)
                .with("rule", rule.as_str())
                .with("override", name.as_str())
        }
        Refusal::OverrideAlreadyExists { rule, name } => {
            let detail = format!(
                "The override {name:?} of the rule {rule:?} already has this name or these key-values."
            );
            Failure::new(Code::OverrideAlreadyExists, detail)
                .with("rule", rule.as_str())
                .with("override", name.as_str())
        }
        Refusal::GroupKeyMissing { rule, key } => {
            let reason = format!("is required, because the rule {rule:?} groups by it");
            Failure::invalid(format!("key_values.{key}"), reason).with("rule", rule.as_str())
        }
        Refusal::BurstWithoutBucket { rule } => {
            Failure::invalid("burst", format!("must be absent, because the rule {rule:?} is not a bucket"))
                .with("rule", rule.as_str())
        }
        Refusal::LeaseNotFound { lease_id } => {
            Failure::new(Code::LeaseNotFound, format!("The lease {lease_id:?} does not exist, or no longer."))
                .with("lease_id", lease_id.as_str())
        }
        Refusal::SessionMismatch { lease_id } => {
            Failure::new(Code::SessionMismatch, format!("The lease {lease_id:?} is held by another session."))
                .with("lease_id", lease_id.as_str())
        }
        Refusal::PartOfOperation { lease_id, operation_id } => {
            part_of_operation(operation_id).with("lease_id", lease_id.as_str())
        }
        Refusal::NoRuleApplies { key_values } => {
            let given = serde_json::to_value(key_values).unwrap_or_default();
            let detail = "No rule applies to these key-values, and the request has `require_match`.";
            Failure::new(Code::NoRuleApplies, detail).with("key_values", given)
        }
        Refusal::QuotaExceeded(exceeded) => quota_exceeded(*exceeded),
        // `answer` handles this refusal itself, with all limits.
        Refusal::LimitReached(_) => Failure::new(Code::LimitReached, "A limit is reached."),
    }
}
