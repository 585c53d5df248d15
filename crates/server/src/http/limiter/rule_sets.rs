//! The calls for rule sets.

use super::{
    super::{
        App,
        extract::{Call, DryRun, Namespace, NoQuery, Paging, Replacing, RuleSetName, Unparsed},
        from_wire::limiter as from_wire,
    },
    submit::{Answer, list, submit},
};
use axum::extract::State;
#[cfg(feature = "openapi")]
use limina_api::{Page, Problem, limiter as wire};
use limina_engine::{
    Name,
    limiter::{Change, Command, RuleChange, RuleSetInfo, RuleSetPlan, SetAuthor},
};

/// List the rule sets, ordered by name.
#[utoipa::path(
    get, path = "/v1/limiter/rule-sets", tag = "limiter",
    params(("limit" = Option<u16>, Query), ("after" = Option<String>, Query)),
    responses(
        (status = 200, description = "One page of the list.", body = Page<wire::RuleSetInfo>),
    ),
)]
pub(in crate::http) async fn list_rule_sets(
    State(app): State<App>,
    Namespace(namespace): Namespace,
    Paging(page): Paging<Name>,
) -> Answer {
    list::<RuleSetInfo>(app, namespace, page, Command::ListRuleSets).await
}

/// Read a rule set with all its rules, as it can be sent back.
#[utoipa::path(
    get, path = "/v1/limiter/rule-sets/{set}", tag = "limiter",
    params(("set" = String, Path)),
    responses(
        (status = 200, description = "The set.", body = wire::RuleSet),
        (status = 404, description = "`RuleSetNotFound`", body = Problem, content_type = "application/problem+json"),
        (status = 413, description = "`AnswerTooLarge`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn get_rule_set(
    State(app): State<App>,
    Namespace(namespace): Namespace,
    RuleSetName(set): RuleSetName,
    _: NoQuery,
) -> Answer {
    submit(app, namespace, None, Command::GetRuleSet(set)).await
}

/// Make a rule set exactly what the body says, in one step, or change nothing.
///
/// A rule that belongs to no set and is named here is taken over, with what it has counted. With `dry_run=true` nothing is
/// changed: the answer says what would be, and what would be refused.
#[utoipa::path(
    put, path = "/v1/limiter/rule-sets/{set}", tag = "limiter",
    params(
        ("set" = String, Path),
        ("dry_run" = Option<bool>, Query),
        ("Idempotency-Key" = Option<String>, Header),
    ),
    request_body = wire::NewRuleSet,
    responses(
        (status = 200, description = "What has changed, or with `dry_run=true` what would change.", body = wire::RuleSetChanges),
        (status = 201, description = "The set was created.", body = wire::RuleSetChanges),
        (status = 409, description = "`RuleSetManagedByServer`, `RuleManagedBySet` (all rules that belong to another set are listed), `OverridesConflict` or `OverrideAlreadyExists` (an override that a client has made)", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn put_rule_set(
    State(app): State<App>,
    RuleSetName(set): RuleSetName,
    DryRun(dry_run): DryRun,
    call: Call<Unparsed<Replacing>>,
) -> Answer {
    let Call { namespace, idempotency, body } = call;
    let new = from_wire::rule_set(&set, body.json()?)?;
    if dry_run {
        return submit(app, namespace, None, Command::PlanRuleSet(RuleSetPlan::new(set, new)?)).await;
    }
    let change = RuleChange::new(Change::PutRuleSet { set, new, author: SetAuthor::Client })?;
    submit(app, namespace, idempotency, Command::Change(change)).await
}

/// Delete a rule set with its rules and their overrides, in one step.
#[utoipa::path(
    delete, path = "/v1/limiter/rule-sets/{set}", tag = "limiter",
    params(("set" = String, Path)),
    responses(
        (status = 204, description = "The set and its rules are deleted."),
        (status = 404, description = "`RuleSetNotFound`", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`RuleSetManagedByServer`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn delete_rule_set(
    State(app): State<App>,
    Namespace(namespace): Namespace,
    RuleSetName(set): RuleSetName,
    _: NoQuery,
) -> Answer {
    let change = RuleChange::delete_rule_set(set, SetAuthor::Client);
    submit(app, namespace, None, Command::Change(change)).await
}
