//! The audit.

use super::{
    App,
    audit_place::AuditPlace,
    extract::{Namespace, Paging},
    json::json,
    problem::Failure,
    status,
    to_wire::audit as to_wire,
};
use crate::access::Scope;
use axum::{extract::State, http::StatusCode, response::Response};
use limina_access::{Family, Level::Manage, Need};
use limina_api::{Page, audit as wire};
use limina_engine::{
    self as engine, Command, Listed, Name, Outcome,
    audit::{self, Action, AuditCursor, AuditRecord},
};
use limina_node::Unavailable;
use std::time::Duration;
use tokio::time::Instant;

/// Read the audit of all namespaces, by time.
///
/// It contains what the token may manage.
#[utoipa::path(
    get, path = "/v1/audit", tag = "namespaces",
    params(("limit" = Option<u16>, Query), ("after" = Option<String>, Query)),
    responses((status = 200, description = "One page of the list.", body = Page<wire::AuditRecord>)),
)]
pub(super) async fn list_audit(
    State(app): State<App>,
    Namespace(scope): Namespace,
    Paging(page): Paging<AuditPlace>,
) -> Result<Response, Failure> {
    let part = Part::visible_to(&scope);
    list(app, scope, page, part).await
}

/// Read the audit of a namespace, by time.
///
/// The namespace may have been deleted. The audit contains what the token may manage.
#[utoipa::path(
    get, path = "/v1/ns/{namespace}/audit", tag = "namespaces",
    params(("namespace" = String, Path), ("limit" = Option<u16>, Query), ("after" = Option<String>, Query)),
    responses((status = 200, description = "One page of the list.", body = Page<wire::AuditRecord>)),
)]
pub(super) async fn list_namespace_audit(
    State(app): State<App>,
    Namespace(scope): Namespace,
    Paging(page): Paging<AuditPlace>,
) -> Result<Response, Failure> {
    let part = Part::Namespaces(vec![scope.namespace.clone()]);
    list(app, scope, page, part).await
}

/// What is listed.
enum Part {
    /// The records of all namespaces.
    All,
    /// The records of these namespaces. No others are read.
    Namespaces(Vec<Name>),
}

/// The most namespaces whose records are read namespace by namespace.
const MOST_NAMES: usize = 16;

impl Part {
    /// The namespaces of which the client may see something, if its token names each of them and they are few.
    fn visible_to(scope: &Scope) -> Part {
        let names = scope.identity.token().and_then(|token| token.named_namespaces(Manage));
        match names.filter(|names| names.len() <= MOST_NAMES) {
            // A name in a right may be longer than that of any namespace.
            Some(names) => {
                Part::Namespaces(names.into_iter().filter_map(|name| Name::new(name).ok()).collect())
            }
            None => Part::All,
        }
    }

    async fn read(
        &self,
        app: &App,
        scope: &Scope,
        page: engine::Page<AuditCursor>,
    ) -> Result<Listed<AuditRecord, AuditCursor>, Failure> {
        let names = match self {
            Part::All => return app.backend().audit(page).await.map_err(status::unavailable),
            Part::Namespaces(names) => names,
        };
        let mut parts = Vec::with_capacity(names.len());
        for name in names {
            let scope = Scope::new(name.clone(), scope.identity.clone());
            match app.ask(scope, None, Command::ListAudit(page.clone())).await.map_err(status::unavailable)? {
                Outcome::Audit(part) => parts.push(part),
                other => {
                    return Err(status::answer(Ok(other), StatusCode::OK)
                        .err()
                        .unwrap_or_else(status::unreadable));
                }
            }
        }
        Ok(audit::merge(parts, page.limit()))
    }
}

/// The longest time to collect a page. Then the page ends early and says where the next one begins.
const MAX_TIME: Duration = Duration::from_secs(1);
/// So many records are read at a time at least, because the client may not see most of them.
const MIN_PART: usize = 64;

/// Collects a page of what the client may see. What it may not see is passed over here, and no `next` shows anything of it.
async fn list(
    app: App,
    scope: Scope,
    page: engine::Page<AuditPlace>,
    part: Part,
) -> Result<Response, Failure> {
    let secret = app.backend().shared_secret();
    let secret = secret.ok_or_else(|| status::unavailable(Unavailable::ShardUnavailable))?;
    let end = Instant::now() + MAX_TIME;
    let shown = page.limit();
    let mut after = page.after.map(|place| place.open(&secret));
    let began_at = after.as_ref().map(|after| after.time);
    let mut found: Vec<AuditRecord> = Vec::new();
    loop {
        // One more than is shown says whether there is a next page.
        let wanted = (shown + 1 - found.len()).max(MIN_PART);
        let listed = part.read(&app, &scope, engine::Page::new(after, wanted)?).await?;
        found.extend(listed.items.into_iter().filter(|record| may_see(&scope, record)));
        after = listed.next;
        let has_advanced = after.as_ref().map(|after| after.time) > began_at;
        if found.len() > shown || after.is_none() || (has_advanced && Instant::now() >= end) {
            break;
        }
    }
    let has_more = found.len() > shown;
    found.truncate(shown);
    let last = found.last().map(AuditRecord::cursor);
    let next = match after {
        _ if has_more => last.map(AuditPlace::Record),
        // Records of this time that were shown must not be shown again.
        Some(read) => Some(match last.filter(|last| last.time == read.time) {
            Some(last) => AuditPlace::Record(last),
            None => AuditPlace::sealed(read.time, &secret),
        }),
        None => None,
    };
    let next = next.map(|place| place.to_string());
    let items = found.into_iter().map(to_wire::record).collect();
    Ok(json(StatusCode::OK, &Page::<wire::AuditRecord> { items, next }))
}

fn may_see(scope: &Scope, record: &AuditRecord) -> bool {
    let namespace = record.namespace.as_str();
    scope.identity.allows(match family_of(record.action) {
        Some(family) => Need::Family(namespace, family, Manage),
        None => Need::Namespace(namespace, Manage),
    })
}

/// The family of an action. `None` if it is about the whole namespace.
fn family_of(action: Action) -> Option<Family> {
    match action {
        Action::CreateRule
        | Action::PutRule
        | Action::PatchRule
        | Action::DeleteRule
        | Action::CreateOverride
        | Action::PutOverride
        | Action::PatchOverride
        | Action::DeleteOverride
        | Action::PutRuleSet
        | Action::DeleteRuleSet
        | Action::SetCounter
        | Action::ForceReleaseLease => Some(Family::Limiter),
        Action::CreateLimit | Action::PatchLimit | Action::DeleteLimit => Some(Family::Ledger),
        Action::PutStream | Action::DeleteStream => Some(Family::Events),
        Action::ForceReleaseLock => Some(Family::Locks),
        Action::DeleteNamespace => None,
    }
}
