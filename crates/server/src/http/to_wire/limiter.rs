//! The limiter's replies. They borrow their strings from the engine's replies, so nothing is copied before it is encoded.

use super::{
    super::{
        problem::Code,
        rate_limit::{self, policy_name},
        status,
    },
    borrowed, in_request_order, span,
};
use limina_api::{
    Page, Problem,
    limiter::{
        ChangedRule, CheckBatchReply, CheckReply, CheckResult, Counter, CounterReply, Durability, Group,
        Groups, Lease, LeaseReply, LimitReached, LimitStatus, MatchReply, Override, Rule, RuleMatch, RuleSet,
        RuleSetChanges, RuleSetInfo, SetConflict, SetOverrides, SetRule, Window, WindowType,
    },
};
use limina_engine::{
    Listed, Millis, Name, limiter,
    limiter::{Checked, CounterId, Limit, Window as EngineWindow},
};
use std::borrow::Cow;

pub(crate) fn check(decision: &Checked) -> CheckReply<'_> {
    CheckReply {
        status: None,
        allowed: decision.allowed,
        limits: limits(decision),
        retry_after_ms: millis(decision.retry_after),
    }
}

/// The problem document of a refused check, lease or counter. `status` is 429, or 409 for a counter.
pub(crate) fn limit_reached(decision: &Checked, status: u16) -> LimitReached<'_> {
    let refusing = || decision.limits.iter().filter(|limit| rate_limit::refuses(limit));
    let violated_policies: Vec<Cow<'_, str>> = refusing().map(policy_name).collect();
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
        limits: limits(decision),
        retry_after_ms: millis(decision.retry_after),
    }
}

/// The results of a batch. `problems` belong to the checks that were not valid and so were not submitted.
pub(crate) fn check_batch(
    decisions: &[Result<Checked, limiter::Refusal>],
    problems: Vec<(usize, Problem)>,
) -> CheckBatchReply<'_> {
    let results = decisions.iter().map(|decision| match decision {
        Ok(decision) => check_result(decision),
        Err(refusal) => CheckResult::Refused(status::limiter::refusal(refusal).into_problem()),
    });
    CheckBatchReply { results: in_request_order(results, problems, CheckResult::Refused) }
}

fn check_result(decision: &Checked) -> CheckResult<'_> {
    match decision.is_refused() {
        false => CheckResult::Allowed(CheckReply { status: Some(200), ..check(decision) }),
        true => CheckResult::LimitReached(limit_reached(decision, Code::LimitReached.status().as_u16())),
    }
}

fn limits(decision: &Checked) -> Vec<LimitStatus<'_>> {
    decision.limits.iter().map(limit_status).collect()
}

pub(super) fn limit_status(status: &limiter::LimitStatus) -> LimitStatus<'_> {
    LimitStatus {
        rule: status.rule.as_ref().map(borrowed),
        override_name: status.override_name.as_ref().map(borrowed),
        group: status.group.clone(),
        limit: limit(status.limit),
        used: status.used,
        remaining: status.remaining(),
        reset_ms: millis(status.reset),
        shadow: status.shadow,
        exceeded: status.exceeded,
        waiting: status.waiting,
    }
}

pub(crate) fn rule(info: &limiter::RuleInfo) -> Rule<'_> {
    let limiter::RuleInfo { rule, overrides, managed_by, created_at } = info;
    Rule {
        name: borrowed(&rule.name),
        group_by: rule.group_by.iter().map(|key| Cow::Borrowed(&**key)).collect(),
        selection: rule.selection.clone(),
        limit: limit(rule.limit),
        window: rule.window.map(window),
        shadow: rule.shadow,
        durability: match rule.durability() {
            limiter::Durability::Durable => Durability::Durable,
            limiter::Durability::Relaxed => Durability::Relaxed,
        },
        description: rule.description.as_deref().map(Cow::Borrowed),
        overrides: *overrides as u64,
        managed_by: managed_by.as_ref().map(borrowed),
        created_position: created_at.0,
    }
}

pub(crate) fn rules(listed: &Listed<limiter::RuleInfo, Name>) -> Page<Rule<'_>> {
    Page { items: listed.items.iter().map(rule).collect(), next: listed.next.as_ref().map(Name::to_string) }
}

/// A rule set with its rules.
pub(crate) fn rule_set(set: &limiter::RuleSet) -> RuleSet<'_> {
    let limiter::RuleSet { info, rules } = set;
    RuleSet {
        name: borrowed(&info.name),
        rules: rules.iter().map(|of_set| set_rule(&info.name, of_set)).collect(),
        overrides: set_overrides(info.overrides),
        created_position: info.created_at.0,
    }
}

fn set_rule<'a>(set: &'a Name, of_set: &'a limiter::RuleOfSet) -> SetRule<'a> {
    let Rule {
        name,
        group_by,
        selection,
        limit,
        window,
        shadow,
        durability,
        description,
        created_position,
        overrides: _,
        managed_by: _,
    } = rule(&of_set.rule);
    SetRule {
        name,
        group_by,
        selection,
        limit,
        window,
        shadow,
        durability,
        description,
        overrides: of_set.overrides.iter().map(override_).collect(),
        managed_by: borrowed(set),
        created_position,
    }
}

fn set_overrides(overrides: limiter::SetOverrides) -> SetOverrides {
    match overrides {
        limiter::SetOverrides::Closed => SetOverrides::Closed,
        limiter::SetOverrides::Open => SetOverrides::Open,
    }
}

pub(crate) fn rule_set_info(info: &limiter::RuleSetInfo) -> RuleSetInfo<'_> {
    RuleSetInfo {
        name: borrowed(&info.name),
        rules: info.rules as u64,
        overrides: set_overrides(info.overrides),
        created_position: info.created_at.0,
    }
}

pub(crate) fn rule_sets(listed: &Listed<limiter::RuleSetInfo, Name>) -> Page<RuleSetInfo<'_>> {
    let items = listed.items.iter().map(rule_set_info).collect();
    Page { items, next: listed.next.as_ref().map(Name::to_string) }
}

/// What putting a rule set has changed, or would change.
pub(crate) fn rule_set_changes(changes: &limiter::SetChanges) -> RuleSetChanges<'_> {
    let limiter::SetChanges { created, changed, deleted, conflicts } = changes;
    RuleSetChanges {
        created: created.iter().map(borrowed).collect(),
        changed: changed
            .iter()
            .map(|changed| ChangedRule {
                rule: borrowed(&changed.rule),
                fields: changed.fields.iter().map(|field| field.word().into()).collect(),
                starts_empty: changed.starts_empty,
            })
            .collect(),
        deleted: deleted.iter().map(borrowed).collect(),
        conflicts: conflicts.iter().map(set_conflict).collect(),
    }
}

fn set_conflict(conflict: &limiter::SetConflict) -> SetConflict<'_> {
    let (managed_by, override_name) = match conflict {
        limiter::SetConflict::RuleManagedBySet(managed) => (Some(borrowed(&managed.set)), None),
        limiter::SetConflict::OverridesConflict { rule: _, name }
        | limiter::SetConflict::OverrideAlreadyExists { rule: _, name } => (None, Some(borrowed(name))),
    };
    SetConflict { rule: borrowed(conflict.rule()), code: conflict.code().into(), managed_by, override_name }
}

pub(crate) fn override_(info: &limiter::OverrideInfo) -> Override<'_> {
    let limiter::OverrideInfo { rule, item, created_at } = info;
    Override {
        rule: borrowed(rule),
        name: borrowed(&item.name),
        key_values: item.key_values.clone(),
        limit: limit(item.limit),
        burst: item.burst,
        created_position: created_at.0,
    }
}

pub(crate) fn overrides(listed: &Listed<limiter::OverrideInfo, Name>) -> Page<Override<'_>> {
    let items = listed.items.iter().map(override_).collect();
    Page { items, next: listed.next.as_ref().map(Name::to_string) }
}

pub(crate) fn matches(matches: &[limiter::RuleMatch]) -> MatchReply<'_> {
    let rules = matches.iter().map(|found| RuleMatch {
        rule: rule(&found.rule),
        group: found.group.clone(),
        matching_overrides: found.overrides.iter().map(override_).collect(),
    });
    MatchReply { rules: rules.collect() }
}

pub(crate) fn moved<'a>(counter: &'a limiter::CounterInfo, decision: &'a Checked) -> CounterReply<'a> {
    CounterReply {
        key_values: counter.key_values.clone(),
        counters: counter.total,
        leased: counter.leased,
        allowed: decision.allowed,
        limits: limits(decision),
        retry_after_ms: millis(decision.retry_after),
    }
}

pub(crate) fn counter(info: &limiter::CounterInfo) -> Counter {
    Counter { key_values: info.key_values.clone(), counters: info.total, leased: info.leased }
}

pub(crate) fn counters(listed: &Listed<limiter::CounterInfo, CounterId>) -> Page<Counter> {
    let items = listed.items.iter().map(counter).collect();
    Page { items, next: listed.next.map(|id| id.0.to_string()) }
}

pub(crate) fn groups(groups: &[limiter::GroupInfo], complete: bool) -> Groups<'_> {
    Groups { items: groups.iter().map(group).collect(), next: None, complete }
}

fn group(info: &limiter::GroupInfo) -> Group<'_> {
    Group {
        group: info.group.clone(),
        override_name: info.override_name.as_ref().map(borrowed),
        limit: limit(info.limit),
        used: info.used,
        remaining: info.remaining(),
        reset_ms: millis(info.reset),
        waiting: info.waiting,
    }
}

pub(crate) fn lease_taken<'a>(
    info: &'a limiter::LeaseInfo,
    session: &'a Name,
    decision: &'a Checked,
) -> LeaseReply<'a> {
    LeaseReply {
        lease_id: borrowed(&info.id),
        session_id: borrowed(session),
        fencing_token: info.fencing_token.0,
        expires_in_ms: span(info.now, info.expires_at),
        limits: limits(decision),
    }
}

pub(crate) fn lease(info: &limiter::LeaseInfo) -> Lease<'_> {
    Lease {
        lease_id: borrowed(&info.id),
        operation_id: info.operation_id.as_ref().map(borrowed),
        fencing_token: info.fencing_token.0,
        key_values: info.key_values.clone(),
        hits: info.hits,
        owner: info.owner.as_ref().map(borrowed),
        held_ms: span(info.taken_at, info.now),
        expires_in_ms: span(info.now, info.expires_at),
        ttl_ms: info.ttl.0,
    }
}

pub(crate) fn leases(listed: &Listed<limiter::LeaseInfo, Name>) -> Page<Lease<'_>> {
    Page { items: listed.items.iter().map(lease).collect(), next: listed.next.as_ref().map(Name::to_string) }
}

fn limit(limit: Limit) -> i64 {
    match limit {
        Limit::Unlimited => -1,
        Limit::AtMost(most) => i64::try_from(most).unwrap_or(i64::MAX),
    }
}

fn window(window: EngineWindow) -> Window {
    let (kind, burst) = match window {
        EngineWindow::Fixed { .. } => (WindowType::Fixed, None),
        EngineWindow::Sliding { .. } => (WindowType::Sliding, None),
        EngineWindow::Bucket { burst, .. } => (WindowType::Bucket, burst),
    };
    Window { kind, per_ms: window.per().0, burst }
}

fn millis(span: Option<Millis>) -> Option<u64> {
    span.map(|span| span.0)
}
