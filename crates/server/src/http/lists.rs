//! Lists that are collected from several requests to the engine, because each request reads only a part.

use super::{App, problem::Failure, status};
use crate::access::Scope;
use axum::{http::StatusCode, response::Response};
use limina_engine::{
    Command, Listed, Name, Outcome, Page, Position, answer_size,
    decisions::{self, Decision},
    events::{self, StreamInfo},
    ledger::{self, Limit, Nearness, Operation},
    limiter::{self, Counter, CounterId, Lease, Override, Rule, RuleSetInfo},
    locks::{self, GrantInfo},
};
use serde::Serialize;
use std::time::Duration;
use tokio::time::Instant;

/// The longest time to collect a page. Then the page ends early and says where the next one begins.
const MAX_TIME: Duration = Duration::from_secs(1);

/// The size at which a page ends early and says where the next one begins. The last part, which has at most as many bytes, is
/// returned whole.
const PAGE_BYTES: usize = answer_size::PAGE_BYTES / 2;

/// An item of a list.
pub(super) trait Item: Serialize + Sized {
    type Cursor: Clone;

    /// The part of the list that the outcome contains, or the outcome itself if it is another one.
    fn part_of(outcome: Outcome) -> Result<Listed<Self, Self::Cursor>, Box<Outcome>>;

    fn outcome(listed: Listed<Self, Self::Cursor>) -> Outcome;
}

macro_rules! items {
    ($($item:ty, $cursor:ty, $family:ident, $reply:path;)*) => {$(
        impl Item for $item {
            type Cursor = $cursor;

            fn part_of(outcome: Outcome) -> Result<Listed<$item, $cursor>, Box<Outcome>> {
                match outcome {
                    Outcome::$family(Ok($reply(listed))) => Ok(listed),
                    other => Err(Box::new(other)),
                }
            }

            fn outcome(listed: Listed<$item, $cursor>) -> Outcome {
                Outcome::$family(Ok($reply(listed)))
            }
        }
    )*};
}

items! {
    Rule, Name, Limiter, limiter::Reply::Rules;
    Override, Name, Limiter, limiter::Reply::Overrides;
    Counter, CounterId, Limiter, limiter::Reply::Counters;
    Lease, Name, Limiter, limiter::Reply::Leases;
    RuleSetInfo, Name, Limiter, limiter::Reply::RuleSets;
    GrantInfo, Position, Locks, locks::Reply::Grants;
    StreamInfo, Name, Events, events::Reply::Streams;
    Operation, Name, Ledger, ledger::Reply::Operations;
    Decision, Position, Decisions, decisions::Reply::Decisions;
}

/// Requests part after part until the page has enough items or bytes, the list ends, or [`MAX_TIME`] has passed. Each part
/// is short, so that other requests of the shard do not wait long.
pub(super) async fn list<T: Item>(
    app: App,
    namespace: Scope,
    mut page: Page<T::Cursor>,
    command: impl Fn(Page<T::Cursor>) -> Command,
) -> Result<Response, Failure> {
    let end = Instant::now() + MAX_TIME;
    let mut items = Vec::new();
    let mut bytes = 0;
    loop {
        let outcome = app.ask(namespace.clone(), None, command(page.clone())).await;
        let mut part = match outcome.map(T::part_of) {
            Ok(Ok(part)) => part,
            Ok(Err(other)) => return status::answer(Ok(*other), StatusCode::OK),
            Err(unavailable) => return status::answer(Err(unavailable), StatusCode::OK),
        };
        let left = page.limit().saturating_sub(part.items.len());
        bytes += answer_size::estimate(&part.items);
        items.append(&mut part.items);
        if left == 0 || bytes >= PAGE_BYTES || part.next.is_none() || Instant::now() >= end {
            let listed = Listed { items, next: part.next };
            return status::answer(Ok(T::outcome(listed)), StatusCode::OK);
        }
        page = Page::new(part.next, left)?;
    }
}

/// The longest time to look for the limits nearest to their ceilings. Then those that were found so far are returned.
const MAX_SEARCH_TIME: Duration = Duration::from_secs(5);

/// The limits nearest to their ceilings. Each request looks at a part of the limits, so that other requests of the shard do not
/// wait long; the limits may change meanwhile.
pub(super) async fn limits_by_use(app: App, scope: Scope, most: usize) -> Result<Response, Failure> {
    let end = Instant::now() + MAX_SEARCH_TIME;
    let mut nearest: Vec<Limit> = Vec::new();
    let mut after = None;
    loop {
        let command = ledger::Command::ListLimitsByUse(Page::new(after, most)?);
        let outcome = app.ask(scope.clone(), None, Command::Ledger(command)).await;
        let part = match outcome {
            Ok(Outcome::Ledger(Ok(ledger::Reply::LimitsByUse(part)))) => part,
            other => return status::answer(other, StatusCode::OK),
        };
        nearest.extend(part.items);
        nearest
            .sort_unstable_by(|a, b| Nearness::of(a).cmp(&Nearness::of(b)).then_with(|| a.name.cmp(&b.name)));
        nearest.truncate(most);
        let mut bytes = 0;
        let fits = |limit: &Limit| {
            bytes += answer_size::estimate(limit);
            bytes <= answer_size::PAGE_BYTES
        };
        let fitting = nearest.iter().map(fits).take_while(|fits| *fits).count();
        nearest.truncate(fitting.max(1));
        after = part.next;
        if after.is_none() || Instant::now() >= end {
            let listed = Listed { items: nearest, next: None };
            return status::answer(
                Ok(Outcome::Ledger(Ok(ledger::Reply::LimitsByUse(listed)))),
                StatusCode::OK,
            );
        }
    }
}
