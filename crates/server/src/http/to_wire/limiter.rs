//! The limiter's replies that have more in JSON than the engine's, or less.

use super::{
    super::{problem::Code, rate_limit::policy_name, status},
    in_request_order,
};
use limina_api::{
    Problem,
    limiter::{
        CheckBatchReply, CheckReply, CheckResult, Counter, CounterReply, Lease, LeaseReply, LimitReached,
        LimitStatus,
    },
};
use limina_engine::{
    Name,
    limiter::{AppliedLimit, Checked, Refusal},
};
use std::borrow::Cow;

/// The problem document of a refused check, lease or counter. `status` is 429, or 409 for a counter.
pub(crate) fn limit_reached(decision: Checked, status: u16) -> LimitReached {
    let refusing = decision.limits.iter().filter(|limit| limit.refuses());
    let violated_policies: Vec<String> = refusing.map(|limit| policy_name(limit).into_owned()).collect();
    LimitReached {
        kind: Cow::Borrowed("https://iana.org/assignments/http-problem-types#quota-exceeded"),
        title: Cow::Borrowed(Code::LimitReached.title()),
        status,
        detail: match &violated_policies[..] {
            [one] => format!("The limit {one:?} is reached."),
            several => format!("These limits are reached: {}.", several.join(", ")),
        },
        code: Cow::Borrowed(Code::LimitReached.word()),
        request_id: None,
        violated_policies,
        allowed: false,
        limits: statuses(decision.limits),
        retry_after_ms: decision.retry_after,
    }
}

/// The results of a batch. `problems` belong to the checks that were not valid and so were not submitted.
pub(crate) fn check_batch(
    decisions: Vec<Result<Checked, Refusal>>,
    problems: Vec<(usize, Problem)>,
) -> CheckBatchReply {
    let results = decisions.into_iter().map(|decision| match decision {
        Ok(decision) => check_result(decision),
        Err(refusal) => CheckResult::Refused(status::limiter::refusal(&refusal).into_problem()),
    });
    CheckBatchReply { results: in_request_order(results, problems, CheckResult::Refused) }
}

fn check_result(decision: Checked) -> CheckResult {
    match decision.is_refused() {
        false => CheckResult::Allowed(CheckReply { status: Some(200), ..decision.into() }),
        true => CheckResult::LimitReached(limit_reached(decision, Code::LimitReached.status().as_u16())),
    }
}

fn statuses(limits: Vec<AppliedLimit>) -> Vec<LimitStatus> {
    limits.into_iter().map(|limit| limit.status).collect()
}

pub(crate) fn moved(counter: Counter, decision: Checked) -> CounterReply {
    let Counter { key_values, counters, leased } = counter;
    let CheckReply { status: _, allowed, limits, retry_after_ms } = decision.into();
    CounterReply { key_values, counters, leased, allowed, limits, retry_after_ms }
}

pub(crate) fn lease_taken(lease: Lease, session_id: Name, decision: Checked) -> LeaseReply {
    let Lease { lease_id, fencing_token, expires_in_ms, .. } = lease;
    LeaseReply { lease_id, session_id, fencing_token, expires_in_ms, limits: statuses(decision.limits) }
}
