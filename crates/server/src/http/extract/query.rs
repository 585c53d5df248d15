//! Query parameters. Each must be known and given at most once.

use super::{
    super::{App, audit_place::AuditPlace, problem::Failure},
    json::shortened,
    path::Namespace,
};
use axum::{extract::FromRequestParts, http::request::Parts};
use limina_access::Level;
use limina_api::Duration;
use limina_engine::{Millis, Name, Page, Position, ledger::OperationFilter, limiter::CounterId};
use percent_encoding::percent_decode_str;

/// The query parameters of every list.
pub(super) const PAGE_PARAMETERS: &[&str] = &["limit", "after"];
const DEFAULT_PAGE: usize = 100;
const MAX_PAGE: usize = 1000;

/// Refuses every query parameter.
pub(crate) struct NoQuery;

impl FromRequestParts<App> for NoQuery {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<NoQuery, Failure> {
        Query::parse(parts, &[]).map(|_| NoQuery)
    }
}

/// The page of a list that the client asks for.
pub(crate) struct Paging<C>(pub(crate) Page<C>);

impl<C: Cursor> FromRequestParts<App> for Paging<C> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Paging<C>, Failure> {
        Query::parse(parts, PAGE_PARAMETERS)?.page().map(Paging)
    }
}

/// The query parameters of `GET /ledger/operations`.
pub(crate) struct OperationsQuery {
    pub(crate) filter: OperationFilter,
    pub(crate) page: Page<Name>,
}

impl FromRequestParts<App> for OperationsQuery {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<OperationsQuery, Failure> {
        let query = Query::parse(parts, &["limit", "after", "state", "older_than", "limit_name"])?;
        let only_held = match query.get("state") {
            None => false,
            Some("held") => true,
            Some(_) => {
                return Err(Failure::invalid_parameter(
                    "state",
                    "must be `held`, or absent for all operations",
                ));
            }
        };
        let older_than = query.duration("older_than")?;
        let limit_name = query.get("limit_name").map(Name::new).transpose();
        let limit_name =
            limit_name.map_err(|error| Failure::invalid_parameter("limit_name", error.to_string()))?;
        let filter = OperationFilter { only_held, older_than, limit_name };
        Ok(OperationsQuery { filter, page: query.page()? })
    }
}

/// The query parameters of `GET /ledger/limits`.
pub(crate) struct LimitsQuery {
    /// `order=used`: the limits nearest to their ceilings, instead of all limits by name.
    pub(crate) by_use: bool,
    pub(crate) page: Page<Name>,
}

impl FromRequestParts<App> for LimitsQuery {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<LimitsQuery, Failure> {
        let query = Query::parse(parts, &["limit", "after", "order"])?;
        let by_use = match query.get("order") {
            None => false,
            Some("used") => true,
            Some(_) => {
                return Err(Failure::invalid_parameter(
                    "order",
                    "must be `used`, or absent for the order of names",
                ));
            }
        };
        if by_use && query.get("after").is_some() {
            return Err(Failure::invalid_parameter(
                "after",
                "must be absent with `order=used`, which has one page",
            ));
        }
        Ok(LimitsQuery { by_use, page: query.page()? })
    }
}

/// The query parameters of `GET /limiter/leases`.
pub(crate) struct LeasesQuery {
    /// Only the leases of this owner; `None` for all.
    pub(crate) owner: Option<Name>,
    pub(crate) page: Page<Name>,
}

impl FromRequestParts<App> for LeasesQuery {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<LeasesQuery, Failure> {
        let query = Query::parse(parts, &["limit", "after", "owner"])?;
        Ok(LeasesQuery { owner: query.name("owner")?, page: query.page()? })
    }
}

/// The query parameters of `GET /decisions`. Only open decisions are listed.
pub(crate) struct DecisionsQuery {
    /// Only the decisions of this owner; `None` for all.
    pub(crate) owner: Option<Name>,
    pub(crate) older_than: Option<Millis>,
    pub(crate) page: Page<Position>,
}

impl FromRequestParts<App> for DecisionsQuery {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<DecisionsQuery, Failure> {
        let query = Query::parse(parts, &["limit", "after", "state", "owner", "older_than"])?;
        match query.get("state") {
            None | Some("open") => {}
            Some(_) => return Err(Failure::invalid_parameter("state", "must be `open`, or absent")),
        }
        let (owner, older_than) = (query.name("owner")?, query.duration("older_than")?);
        Ok(DecisionsQuery { owner, older_than, page: query.page()? })
    }
}

/// The query parameters of `GET /limiter/rules/{name}/groups`: how many groups. The only order is `used`.
pub(crate) struct GroupsQuery(pub(crate) usize);

impl FromRequestParts<App> for GroupsQuery {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<GroupsQuery, Failure> {
        let query = Query::parse(parts, &["order", "limit"])?;
        match query.get("order") {
            None | Some("used") => Ok(GroupsQuery(query.limit()?)),
            Some(_) => Err(Failure::invalid_parameter("order", "must be `used`, or absent")),
        }
    }
}

/// The session that releases a lock or a lease; `None` for an operator's forced release, which needs the right to manage.
pub(crate) struct ReleaseQuery(pub(crate) Option<Name>);

impl FromRequestParts<App> for ReleaseQuery {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<ReleaseQuery, Failure> {
        let query = Query::parse(parts, &["session_id", "force"])?;
        let is_forced = match query.get("force") {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => return Err(Failure::invalid_parameter("force", "must be `true` or `false`")),
        };
        if is_forced {
            let Namespace(scope) = Namespace::from_request_parts(parts, app).await?;
            scope.require(Level::Manage)?;
        }
        match (query.name("session_id")?, is_forced) {
            (_, true) => Ok(ReleaseQuery(None)),
            (Some(session), false) => Ok(ReleaseQuery(Some(session))),
            (None, false) => {
                Err(Failure::invalid_parameter("session_id", "is required, except with `force=true`"))
            }
        }
    }
}

/// Whether `dry_run=true` was given.
pub(crate) struct DryRun(pub(crate) bool);

impl DryRun {
    pub(super) const PARAMETERS: &'static [&'static str] = &["dry_run"];
}

impl FromRequestParts<App> for DryRun {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<DryRun, Failure> {
        match Query::parse(parts, DryRun::PARAMETERS)?.get("dry_run") {
            None | Some("false") => Ok(DryRun(false)),
            Some("true") => Ok(DryRun(true)),
            Some(_) => Err(Failure::invalid_parameter("dry_run", "must be `true` or `false`")),
        }
    }
}

/// The namespace whose shard is asked for; `None` for all shards.
pub(crate) struct ClusterQuery(pub(crate) Option<Name>);

impl FromRequestParts<App> for ClusterQuery {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<ClusterQuery, Failure> {
        let query = Query::parse(parts, &["namespace"])?;
        Ok(ClusterQuery(query.name("namespace")?))
    }
}

/// The position in a list after which a page begins: the text of `after`.
pub(crate) trait Cursor: Sized {
    fn from_text(text: &str) -> Option<Self>;
}

impl Cursor for Name {
    fn from_text(text: &str) -> Option<Name> {
        Name::new(text).ok()
    }
}

impl Cursor for Position {
    fn from_text(text: &str) -> Option<Position> {
        text.parse().ok().map(Position)
    }
}

impl Cursor for AuditPlace {
    fn from_text(text: &str) -> Option<AuditPlace> {
        AuditPlace::parse(text)
    }
}

impl Cursor for CounterId {
    fn from_text(text: &str) -> Option<CounterId> {
        text.parse().ok().map(CounterId)
    }
}

/// The query parameters with their decoded values.
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn parse(parts: &Parts, known: &[&str]) -> Result<Query, Failure> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in parts.uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decoded(name)
                .ok_or_else(|| Failure::invalid_parameter("query", "must be UTF-8 when percent-decoded"))?;
            if !known.contains(&name.as_str()) {
                return Err(Failure::invalid_parameter(shortened(&name), "is not known here"));
            }
            if pairs.iter().any(|(earlier, _)| *earlier == name) {
                return Err(Failure::invalid_parameter(name, "must be given only once"));
            }
            let Some(value) = decoded(value) else {
                return Err(Failure::invalid_parameter(name, "must be UTF-8 when percent-decoded"));
            };
            pairs.push((name, value));
        }
        Ok(Query(pairs))
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn name(&self, parameter: &'static str) -> Result<Option<Name>, Failure> {
        let name = self.get(parameter).map(Name::new).transpose();
        name.map_err(|error| Failure::invalid_parameter(parameter, error.to_string()))
    }

    fn duration(&self, parameter: &'static str) -> Result<Option<Millis>, Failure> {
        // As in bodies, 0 needs no unit.
        let text = self.get(parameter).map(|text| if text == "0" { "0ms" } else { text });
        let span = text.map(str::parse::<Duration>).transpose();
        let span = span.map_err(|error| Failure::invalid_parameter(parameter, error.to_string()))?;
        Ok(span.map(|span| Millis(span.millis)))
    }

    fn limit(&self) -> Result<usize, Failure> {
        match self.get("limit") {
            None => Ok(DEFAULT_PAGE),
            Some(text) => text.parse().ok().filter(|limit| (1..=MAX_PAGE).contains(limit)).ok_or_else(|| {
                Failure::invalid_parameter("limit", format!("must be an integer from 1 to {MAX_PAGE}"))
            }),
        }
    }

    fn page<C: Cursor>(&self) -> Result<Page<C>, Failure> {
        let limit = self.limit()?;
        let after = match self.get("after") {
            None => None,
            Some(text) => Some(C::from_text(text).ok_or_else(|| {
                Failure::invalid_parameter("after", "must be the `next` of the previous page")
            })?),
        };
        Ok(Page::new(after, limit)?)
    }
}

fn decoded(text: &str) -> Option<String> {
    let text = text.replace('+', " ");
    Some(percent_decode_str(&text).decode_utf8().ok()?.into_owned())
}
