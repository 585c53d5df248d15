//! Lists that are put together from parts.

use super::{
    super::{App, status},
    Answer,
};
use axum::http::StatusCode;
use limina_engine::{
    self as engine, Name, Outcome, Page,
    limiter::{Command, CounterId, CounterInfo, LeaseInfo, Listed, OverrideInfo, Reply, RuleInfo},
};
use std::time::Duration;
use tokio::time::Instant;

/// A list is looked through for so long, and then answered as far as it goes.
const LIST_TIME: Duration = Duration::from_secs(1);

/// Something that is listed.
pub(super) trait Item: Sized {
    type Cursor: Clone;

    /// A part of the list, or another reply as it is.
    fn part_of(reply: Reply) -> Result<Listed<Self, Self::Cursor>, Box<Reply>>;

    fn reply(listed: Listed<Self, Self::Cursor>) -> Reply;
}

macro_rules! items {
    ($($item:ty, $cursor:ty, $reply:ident;)*) => {$(
        impl Item for $item {
            type Cursor = $cursor;

            fn part_of(reply: Reply) -> Result<Listed<$item, $cursor>, Box<Reply>> {
                match reply {
                    Reply::$reply(listed) => Ok(listed),
                    other => Err(Box::new(other)),
                }
            }

            fn reply(listed: Listed<$item, $cursor>) -> Reply {
                Reply::$reply(listed)
            }
        }
    )*};
}

items! {
    RuleInfo, Name, Rules;
    OverrideInfo, Name, Overrides;
    CounterInfo, CounterId, Counters;
    LeaseInfo, Name, Leases;
}

/// Asks for part after part, each of which holds nobody up, until the page is full, the list ends, or the client has
/// waited long enough.
pub(super) async fn list<T: Item>(
    app: App,
    namespace: Name,
    mut page: Page<T::Cursor>,
    command: impl Fn(Page<T::Cursor>) -> Command,
) -> Answer {
    let end = Instant::now() + LIST_TIME;
    let mut items = Vec::new();
    loop {
        let asked = engine::Command::Limiter(command(page.clone()));
        let reply = match app.ask(namespace.clone(), None, asked).await {
            Ok(Outcome::Limiter(Ok(reply))) => reply,
            other => return status::answer(other, StatusCode::OK),
        };
        let done = |reply| status::answer(Ok(Outcome::Limiter(Ok(reply))), StatusCode::OK);
        let mut part = match T::part_of(reply) {
            Ok(part) => part,
            Err(other) => return done(*other),
        };
        page.limit = page.limit.saturating_sub(part.items.len());
        items.append(&mut part.items);
        if page.limit == 0 || part.next.is_none() || Instant::now() >= end {
            return done(T::reply(Listed { items, next: part.next }));
        }
        page.after = part.next;
    }
}
