//! Which namespaces a client sees, and whether it may use one more.

use super::{Identity, Scope};
use crate::http::{
    App,
    problem::{Code, Failure},
    status::unavailable,
};
use limina_access::{Exceeded, Level, Need};
use limina_engine::{Name, Page, outcome::NamespaceInfo};
use std::collections::HashSet;

/// Fails if a request that writes might create one namespace too many. Counted are the namespaces that exist and that the token
/// may read.
pub(crate) async fn admit_namespace(app: &App, scope: &Scope) -> Result<(), Failure> {
    let Scope { namespace, identity, .. } = scope;
    let Some(token) = identity.token().filter(|token| !token.has_room_for(namespace)) else {
        return Ok(());
    };
    let max = token.maxima.namespaces.unwrap_or(u64::MAX);
    let count = usize::try_from(max).unwrap_or(usize::MAX).saturating_add(1);
    let existing = visible_names(app, identity, count, namespace).await?;
    token.admit_namespace(existing, namespace).map_err(|Exceeded { limit }| {
        let detail = format!("The token may use {limit} namespaces, and as many exist. Nothing was done.");
        Failure::new(Code::QuotaExceeded, detail)
            .with("quota", "namespaces")
            .with("limit", limit)
            .with("used", limit)
    })
}

/// How many namespaces are read at once, if the client may see only some of them.
const PART: usize = 1000;

/// The namespaces after `after` in which the client may read something, in order, at most `count`. All others are passed over
/// here, so that neither an item nor the `next` of a page names one.
pub(crate) async fn visible_namespaces(
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
        let page = Page::new(after, asked)?;
        let part = app.backend().namespaces(page).await.map_err(unavailable)?;
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
async fn visible_names(
    app: &App,
    identity: &Identity,
    count: usize,
    wanted: &Name,
) -> Result<HashSet<Name>, Failure> {
    let mut names = HashSet::new();
    let mut after = None;
    while names.len() < count {
        let asked = (count - names.len()).min(PART);
        let part = visible_namespaces(app, identity, after, asked).await?;
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
        let page = Page::new(after, PART)?;
        let part = app.backend().namespaces(page).await.map_err(unavailable)?;
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
