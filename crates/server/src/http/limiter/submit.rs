//! How the calls of the limiter pass their commands to the engine.

use super::super::{
    App,
    extract::{Call, Unparsed},
    lists::{self, Item},
    problem::Failure,
};
use crate::access::Scope;
use axum::{http::StatusCode, response::Response};
use limina_engine::{
    self as engine, Idempotency, Page,
    limiter::{Command, RuleChange},
};

pub(super) type Answer = Result<Response, Failure>;

pub(super) async fn submit(
    app: App,
    namespace: Scope,
    idempotency: Option<Idempotency>,
    command: Command,
) -> Answer {
    app.submit(namespace, idempotency, engine::Command::Limiter(command), StatusCode::OK).await
}

pub(super) async fn list<T: Item>(
    app: App,
    namespace: Scope,
    page: Page<T::Cursor>,
    command: impl Fn(Page<T::Cursor>) -> Command,
) -> Answer {
    lists::list::<T>(app, namespace, page, |page| engine::Command::Limiter(command(page))).await
}

pub(super) async fn change<K>(
    app: App,
    call: Call<Unparsed<K>>,
    convert: impl FnOnce(&Unparsed<K>) -> Result<RuleChange, Failure>,
) -> Answer {
    let Call { namespace, idempotency, body } = call;
    let change = convert(&body)?;
    submit(app, namespace, idempotency, Command::Change(change)).await
}
