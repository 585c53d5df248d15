//! The groups of a rule that use the most of their limits.

use super::{
    super::{
        App,
        extract::{GroupsQuery, Namespace, RuleName},
        json::json,
        status,
    },
    submit::Answer,
};
use axum::{extract::State, http::StatusCode};
#[cfg(feature = "openapi")]
use limina_api::{Problem, limiter as wire};
use limina_engine::{
    Command, Outcome,
    limiter::{MostUsed, Reply},
};
use std::time::Duration;
use tokio::time::Instant;

/// The longest time to look at groups. Then the answer says that it is not complete.
const MAX_TIME: Duration = Duration::from_secs(10);

/// List the groups of a rule that use the most of their limits.
///
/// The groups are looked at in parts, between other requests, so they show different instants.
#[utoipa::path(
    get, path = "/v1/limiter/rules/{name}/groups", tag = "limiter",
    params(("name" = String, Path), ("order" = Option<String>, Query, description = "`used`, the only order."), ("limit" = Option<u16>, Query)),
    responses(
        (status = 200, description = "The groups, at most `limit`.", body = wire::Groups),
        (status = 404, description = "`RuleNotFound`", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(in crate::http) async fn list_groups(
    State(app): State<App>,
    Namespace(namespace): Namespace,
    RuleName(rule): RuleName,
    GroupsQuery(limit): GroupsQuery,
) -> Answer {
    let end = Instant::now() + MAX_TIME;
    let mut most_used = MostUsed::new(rule, limit)?;
    while let Some(command) = most_used.command()
        && Instant::now() < end
    {
        match app.ask(namespace.clone(), None, Command::Limiter(command)).await {
            Ok(Outcome::Limiter(Ok(Reply::Groups(part)))) => most_used.add(part),
            other => return status::answer(other, StatusCode::OK),
        }
    }
    Ok(json(StatusCode::OK, &most_used.into_groups()))
}
