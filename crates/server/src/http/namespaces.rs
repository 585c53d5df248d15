//! The calls for namespaces: list, delete.

use super::{
    App,
    extract::{Namespace, NoQuery, Paging},
    json::json,
    problem::Failure,
    to_wire,
};
use crate::access::visible_namespaces;
use axum::{extract::State, http::StatusCode, response::Response};
use limina_api::Page;
#[cfg(feature = "openapi")]
use limina_api::{Problem, namespace};
use limina_engine::{Command, Name};

/// List the namespaces, ordered by name.
#[utoipa::path(
    get, path = "/v1/ns", tag = "namespaces",
    params(("limit" = Option<u16>, Query), ("after" = Option<String>, Query)),
    responses((status = 200, description = "One page of the list.", body = Page<namespace::Namespace>)),
)]
pub(super) async fn list_namespaces(
    State(app): State<App>,
    Namespace(scope): Namespace,
    Paging(page): Paging<Name>,
) -> Result<Response, Failure> {
    // One more than is shown says whether there is a next page.
    let shown = page.limit();
    let mut found = visible_namespaces(&app, &scope.identity, page.after, shown + 1).await?;
    let more = found.len() > shown;
    found.truncate(shown);
    let next = found.last().filter(|_| more).map(|info| info.name.as_str().to_owned());
    let items = found.into_iter().map(to_wire::namespace).collect();
    Ok(json(StatusCode::OK, &Page { items, next }))
}

/// Delete a namespace with everything in it.
#[utoipa::path(
    delete, path = "/v1/ns/{namespace}", tag = "namespaces",
    params(("namespace" = String, Path)),
    responses(
        (status = 204, description = "The namespace is deleted."),
        (status = 404, description = "`NamespaceNotFound`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn delete_namespace(
    State(app): State<App>,
    Namespace(namespace): Namespace,
    _: NoQuery,
) -> Result<Response, Failure> {
    let answer = app.submit(namespace.clone(), None, Command::DeleteNamespace, StatusCode::NO_CONTENT).await;
    answer.map_err(|failure| failure.with("namespace", namespace.as_str()))
}
