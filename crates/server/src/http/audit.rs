//! The audit.

use super::{
    App,
    extract::{Namespace, Paging},
    json,
    problem::Failure,
    status,
    to_wire::audit as to_wire,
};
use crate::access::Scope;
use axum::{extract::State, http::StatusCode, response::Response};
use limina_access::{Family, Level::Manage, Need};
use limina_engine::{
    self as engine, Command, Listed, Name, Outcome, Position, Time,
    audit::{Action, AuditCursor, AuditRecord},
};
use limina_wire::{Page, audit as wire};
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
    Paging(page): Paging<AuditCursor>,
) -> Result<Response, Failure> {
    list(app, scope, page, Part::All).await
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
    Paging(page): Paging<AuditCursor>,
) -> Result<Response, Failure> {
    list(app, scope, page, Part::Namespace).await
}

/// What is listed.
#[derive(Clone, Copy)]
enum Part {
    All,
    Namespace,
}

impl Part {
    /// The place before all records of this time. It names no namespace that the client may not see.
    fn begin_at(self, time: Time, scope: &Scope) -> AuditCursor {
        let namespace = match self {
            Part::All => Name::new(" ").expect("the smallest name"),
            Part::Namespace => scope.namespace.clone(),
        };
        AuditCursor { time, namespace, position: Position(0), is_deletion: false }
    }

    async fn read(
        self,
        app: &App,
        scope: &Scope,
        page: engine::Page<AuditCursor>,
    ) -> Result<Listed<AuditRecord, AuditCursor>, Failure> {
        if let Part::All = self {
            return app.backend().audit(page).await.map_err(status::unavailable);
        }
        match app.ask(scope.clone(), None, Command::ListAudit(page)).await.map_err(status::unavailable)? {
            Outcome::Audit(listed) => Ok(listed),
            other => Err(status::answer(Ok(other), StatusCode::OK).err().unwrap_or_else(status::unreadable)),
        }
    }
}

/// The longest time to collect a page. Then the page ends early and says where the next one begins.
const MAX_TIME: Duration = Duration::from_secs(1);
/// So many records are read at a time at least, because the client may not see most of them.
const MIN_PART: usize = 64;

/// Collects a page of what the client may see. What it may not see is passed over here, so that no `next` names it.
async fn list(
    app: App,
    scope: Scope,
    page: engine::Page<AuditCursor>,
    part: Part,
) -> Result<Response, Failure> {
    let end = Instant::now() + MAX_TIME;
    let shown = page.limit();
    let began_at = page.after.as_ref().map(|after| after.time);
    let mut found: Vec<AuditRecord> = Vec::new();
    let mut after = page.after;
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
        _ if has_more => last,
        // Records of this time that were shown must not be shown again.
        Some(read) => {
            last.filter(|last| last.time == read.time).or_else(|| Some(part.begin_at(read.time, &scope)))
        }
        None => None,
    };
    let next = next.map(|cursor| to_wire::cursor(&cursor));
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
