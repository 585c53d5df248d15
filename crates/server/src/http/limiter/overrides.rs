//! The calls for overrides of rules.

use super::{
    super::{
        App,
        extract::{
            Call, Changing, Namespace, NoQuery, OverrideName, Paging, Reading, RuleName, Searching, Unparsed,
        },
        from_wire::limiter as from_wire,
    },
    submit::{Answer, change, list, submit},
};
use axum::extract::State;
#[cfg(feature = "openapi")]
use limina_api::{Page, Problem, limiter as wire};
use limina_engine::{
    Name,
    limiter::{Command, Override, RuleChange},
    selection::Query,
};

/// Create an override of a rule.
#[utoipa::path(
    post, path = "/v1/limiter/rules/{name}/overrides", tag = "limiter",
    params(("name" = String, Path), ("Idempotency-Key" = Option<String>, Header)),
    request_body = wire::NewOverride,
    responses(
        (status = 201, description = "The override was created.", body = wire::Override),
        (status = 404, description = "`RuleNotFound`", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`RuleManagedBySet` or `OverrideAlreadyExists` (of the same name, or with the same key-values)", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn create_override(
    State(app): State<App>,
    RuleName(rule): RuleName,
    call: Call<Unparsed<Changing>>,
) -> Answer {
    change(app, call, |body| from_wire::create_override(rule, body.json()?)).await
}

/// List the overrides of a rule, ordered by name.
#[utoipa::path(
    get, path = "/v1/limiter/rules/{name}/overrides", tag = "limiter",
    params(("name" = String, Path), ("limit" = Option<u16>, Query), ("after" = Option<String>, Query)),
    responses(
        (status = 200, description = "One page of the list.", body = Page<wire::Override>),
        (status = 404, description = "`RuleNotFound`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn list_overrides(
    State(app): State<App>,
    Namespace(namespace): Namespace,
    RuleName(rule): RuleName,
    Paging(page): Paging<Name>,
) -> Answer {
    let command = |page| Command::ListOverrides { rule: rule.clone(), query: Query::default(), page };
    list::<Override>(app, namespace, page, command).await
}

/// Read an override.
#[utoipa::path(
    get, path = "/v1/limiter/rules/{name}/overrides/{override}", tag = "limiter",
    params(("name" = String, Path), ("override" = String, Path)),
    responses(
        (status = 200, description = "The override.", body = wire::Override),
        (status = 404, description = "`RuleNotFound` or `OverrideNotFound`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn get_override(
    State(app): State<App>,
    Namespace(namespace): Namespace,
    RuleName(rule): RuleName,
    OverrideName(name): OverrideName,
    _: NoQuery,
) -> Answer {
    submit(app, namespace, None, Command::GetOverride { rule, name }).await
}

/// Replace everything of an override except its name, or create it.
#[utoipa::path(
    put, path = "/v1/limiter/rules/{name}/overrides/{override}", tag = "limiter",
    params(("name" = String, Path), ("override" = String, Path), ("Idempotency-Key" = Option<String>, Header)),
    request_body = wire::NewOverride,
    responses(
        (status = 200, description = "The override was replaced.", body = wire::Override),
        (status = 201, description = "The override was created.", body = wire::Override),
        (status = 404, description = "`RuleNotFound`", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`RuleManagedBySet` or `OverrideAlreadyExists` (with the same key-values)", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn put_override(
    State(app): State<App>,
    RuleName(rule): RuleName,
    OverrideName(name): OverrideName,
    call: Call<Unparsed<Changing>>,
) -> Answer {
    change(app, call, |body| from_wire::put_override(rule, name, body.json()?)).await
}

/// Change the given fields of an override. `null` removes its burst.
#[utoipa::path(
    patch, path = "/v1/limiter/rules/{name}/overrides/{override}", tag = "limiter",
    params(("name" = String, Path), ("override" = String, Path)),
    request_body = wire::OverridePatch,
    responses(
        (status = 200, description = "The override after the change.", body = wire::Override),
        (status = 404, description = "`RuleNotFound` or `OverrideNotFound`", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`RuleManagedBySet` or `OverrideAlreadyExists` (with the same key-values)", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn patch_override(
    State(app): State<App>,
    RuleName(rule): RuleName,
    OverrideName(name): OverrideName,
    call: Call<Unparsed<Reading>>,
) -> Answer {
    change(app, call, |body| from_wire::patch_override(rule, name, body.json()?)).await
}

/// Delete an override.
#[utoipa::path(
    delete, path = "/v1/limiter/rules/{name}/overrides/{override}", tag = "limiter",
    params(("name" = String, Path), ("override" = String, Path)),
    responses(
        (status = 204, description = "The override is deleted."),
        (status = 404, description = "`RuleNotFound` or `OverrideNotFound`", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`RuleManagedBySet`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn delete_override(
    State(app): State<App>,
    Namespace(namespace): Namespace,
    RuleName(rule): RuleName,
    OverrideName(name): OverrideName,
    _: NoQuery,
) -> Answer {
    submit(app, namespace, None, Command::Change(RuleChange::delete_override(rule, name))).await
}

/// Find overrides of a rule by their key-values.
#[utoipa::path(
    post, path = "/v1/limiter/rules/{name}/overrides/query", tag = "limiter",
    params(("name" = String, Path), ("limit" = Option<u16>, Query), ("after" = Option<String>, Query)),
    request_body = Query,
    responses(
        (status = 200, description = "One page of the matching items, ordered by name.", body = Page<wire::Override>),
        (status = 404, description = "`RuleNotFound`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn query_overrides(
    State(app): State<App>,
    RuleName(rule): RuleName,
    Paging(page): Paging<Name>,
    call: Call<Unparsed<Searching>>,
) -> Answer {
    let query: Query = call.body.json()?;
    let command = |page| Command::ListOverrides { rule: rule.clone(), query: query.clone(), page };
    list::<Override>(app, call.namespace, page, command).await
}
