//! The calls for rules.

use super::{
    super::{
        App,
        extract::{Call, Changing, Namespace, NoQuery, Paging, Reading, RuleName, Searching, Unparsed},
        from_wire::limiter as from_wire,
    },
    submit::{Answer, change, list, submit},
};
use axum::extract::State;
#[cfg(feature = "openapi")]
use limina_api::{Page, Problem, limiter as wire, selection::Query};
use limina_engine::{
    Name,
    limiter::{Command, Rule, RuleChange, RuleQuery},
};

/// Create a rule.
#[utoipa::path(
    post, path = "/v1/limiter/rules", tag = "limiter",
    params(("Idempotency-Key" = Option<String>, Header)),
    request_body = wire::NewRule,
    responses(
        (status = 201, description = "The rule was created.", body = wire::Rule),
        (status = 409, description = "`RuleAlreadyExists`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn create_rule(State(app): State<App>, call: Call<Unparsed<Changing>>) -> Answer {
    change(app, call, |body| from_wire::create_rule(body.json()?)).await
}

/// List the rules, ordered by name.
#[utoipa::path(
    get, path = "/v1/limiter/rules", tag = "limiter",
    params(("limit" = Option<u16>, Query), ("after" = Option<String>, Query)),
    responses(
        (status = 200, description = "One page of the list.", body = Page<wire::Rule>),
    ),
)]
pub(in crate::http) async fn list_rules(
    State(app): State<App>,
    Namespace(namespace): Namespace,
    Paging(page): Paging<Name>,
) -> Answer {
    let command = |page| Command::ListRules { query: RuleQuery::default(), page };
    list::<Rule>(app, namespace, page, command).await
}

/// Read a rule.
#[utoipa::path(
    get, path = "/v1/limiter/rules/{name}", tag = "limiter",
    params(("name" = String, Path)),
    responses(
        (status = 200, description = "The rule.", body = wire::Rule),
        (status = 404, description = "`RuleNotFound`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn get_rule(
    State(app): State<App>,
    Namespace(namespace): Namespace,
    RuleName(name): RuleName,
    _: NoQuery,
) -> Answer {
    submit(app, namespace, None, Command::GetRule(name)).await
}

/// Replace everything of a rule except its name and its overrides, or create it.
#[utoipa::path(
    put, path = "/v1/limiter/rules/{name}", tag = "limiter",
    params(("name" = String, Path), ("Idempotency-Key" = Option<String>, Header)),
    request_body = wire::NewRule,
    responses(
        (status = 200, description = "The rule was replaced.", body = wire::Rule),
        (status = 201, description = "The rule was created.", body = wire::Rule),
        (status = 409, description = "`RuleManagedBySet` or `OverridesConflict`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn put_rule(
    State(app): State<App>,
    RuleName(name): RuleName,
    call: Call<Unparsed<Changing>>,
) -> Answer {
    change(app, call, |body| from_wire::put_rule(name, body.json()?)).await
}

/// Change the given fields of a rule. `null` removes an optional field.
#[utoipa::path(
    patch, path = "/v1/limiter/rules/{name}", tag = "limiter",
    params(("name" = String, Path)),
    request_body = wire::RulePatch,
    responses(
        (status = 200, description = "The rule after the change.", body = wire::Rule),
        (status = 404, description = "`RuleNotFound`", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`RuleManagedBySet`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn patch_rule(
    State(app): State<App>,
    RuleName(name): RuleName,
    call: Call<Unparsed<Reading>>,
) -> Answer {
    change(app, call, |body| from_wire::patch_rule(name, body.json()?)).await
}

/// Delete a rule and all its overrides, in one step. Counters stay, because they belong to no rule.
#[utoipa::path(
    delete, path = "/v1/limiter/rules/{name}", tag = "limiter",
    params(("name" = String, Path)),
    responses(
        (status = 204, description = "The rule and its overrides are deleted."),
        (status = 404, description = "`RuleNotFound`", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`RuleManagedBySet`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn delete_rule(
    State(app): State<App>,
    Namespace(namespace): Namespace,
    RuleName(name): RuleName,
    _: NoQuery,
) -> Answer {
    submit(app, namespace, None, Command::Change(RuleChange::delete_rule(name))).await
}

/// Find the rules and overrides that would apply to a check. Nothing is taken.
#[utoipa::path(
    post, path = "/v1/limiter/rules/match", tag = "limiter",
    request_body = wire::MatchQuery,
    responses(
        (status = 200, description = "The rules that apply, each with its group and those of its overrides that apply.", body = wire::MatchReply),
    ),
)]
pub(in crate::http) async fn match_rules(State(app): State<App>, call: Call<Unparsed<Reading>>) -> Answer {
    let Call { namespace, idempotency, body } = call;
    submit(app, namespace, idempotency, Command::Match(from_wire::match_query(body.json()?))).await
}

/// Find rules by their `group_by` keys.
#[utoipa::path(
    post, path = "/v1/limiter/rules/query", tag = "limiter",
    params(("limit" = Option<u16>, Query), ("after" = Option<String>, Query)),
    request_body = Query,
    responses(
        (status = 200, description = "One page of the matching items, ordered by name.", body = Page<wire::Rule>),
    ),
)]
pub(in crate::http) async fn query_rules(
    State(app): State<App>,
    Paging(page): Paging<Name>,
    call: Call<Unparsed<Searching>>,
) -> Answer {
    let query = RuleQuery::new(call.body.json()?)?;
    let command = |page| Command::ListRules { query: query.clone(), page };
    list::<Rule>(app, call.namespace, page, command).await
}
