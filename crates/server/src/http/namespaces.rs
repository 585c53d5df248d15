//! The calls for namespaces: list, delete.

use super::{
    App,
    extract::{Namespace, NoQuery, Paging},
    json::json,
    problem::Failure,
    status, to_wire,
};
use crate::access::Identity;
use axum::{extract::State, http::StatusCode, response::Response};
use limina_access::{Level, Need};
use limina_engine::{self as engine, Command, Name, outcome::NamespaceInfo};
use limina_wire::Page;
#[cfg(feature = "openapi")]
use limina_wire::{Problem, namespace};
use std::collections::HashSet;

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
    let mut found = visible(&app, &scope.identity, page.after, shown + 1).await?;
    let more = found.len() > shown;
    found.truncate(shown);
    let next = found.last().filter(|_| more).map(|info| info.name.as_str().to_owned());
    let items = found.into_iter().map(to_wire::namespace).collect();
    Ok(json(StatusCode::OK, &Page { items, next }))
}

/// How many namespaces are read at once, if the client may see only some of them.
const PART: usize = 1000;

/// The namespaces after `after` in which the client may read something, in order, at most `count`. All others are passed over
/// here, so that neither an item nor the `next` of a page names one.
pub(super) async fn visible(
    app: &App,
    identity: &Identity,
    mut after: Option<Name>,
    count: usize,
) -> Result<Vec<NamespaceInfo>, Failure> {
    let mut found = Vec::new();
    let sees_all = identity.allows(Need::ClusterAdmin);
    loop {
        if !sees_all {
            let Some(from) = first_visible(identity, after) else { return Ok(found) };
            after = from;
        }
        let asked = if sees_all { count } else { PART };
        let page = engine::Page::new(after, asked)?;
        let part = app.backend().namespaces(page).await.map_err(status::unavailable)?;
        let is_last = part.len() < asked;
        after = part.last().map(|info| info.name.clone());
        let seen = part.into_iter().filter(|info| identity.sees(info.name.as_str(), Level::Read));
        found.extend(seen.take(count - found.len()));
        if is_last || found.len() == count {
            return Ok(found);
        }
    }
}

/// The names of the first namespaces in which the client may read something, at most `count`, and `wanted` if it exists.
pub(crate) async fn visible_namespaces(
    app: &App,
    identity: &Identity,
    count: usize,
    wanted: &Name,
) -> Result<HashSet<Name>, Failure> {
    let mut names = HashSet::new();
    let mut after = None;
    while names.len() < count {
        let asked = (count - names.len()).min(PART);
        let part = visible(app, identity, after, asked).await?;
        after = part.last().map(|info| info.name.clone());
        let is_last = part.len() < asked;
        names.extend(part.into_iter().map(|info| info.name));
        if is_last {
            return Ok(names);
        }
    }
    if exists(app, wanted).await? {
        names.insert(wanted.clone());
    }
    Ok(names)
}

async fn exists(app: &App, namespace: &Name) -> Result<bool, Failure> {
    let mut after = name_before(namespace.as_str());
    loop {
        let page = engine::Page::new(after, PART)?;
        let part = app.backend().namespaces(page).await.map_err(status::unavailable)?;
        match part.iter().find(|info| info.name >= *namespace) {
            Some(info) => return Ok(info.name == *namespace),
            None if part.len() < PART => return Ok(false),
            None => after = part.last().map(|info| info.name.clone()),
        }
    }
}

/// Where to go on reading, so that namespaces are passed over that no right applies to. `None` if no right applies to any
/// namespace after `after`.
fn first_visible(identity: &Identity, after: Option<Name>) -> Option<Option<Name>> {
    let last = after.as_ref().map_or("", Name::as_str);
    let prefixes = identity.token().into_iter().flat_map(|token| token.namespace_prefixes());
    let next =
        prefixes.filter(|prefix| prefix.starts_with(last) || last.starts_with(prefix) || *prefix > last);
    let first = next.min()?;
    Some(after.max(name_before(first)))
}

/// A page begins after a name. A prefix without its last character comes before everything with the prefix.
fn name_before(prefix: &str) -> Option<Name> {
    prefix.char_indices().next_back().and_then(|(at, _)| Name::new(&prefix[..at]).ok())
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
