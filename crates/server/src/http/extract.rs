//! The conventions of requests: names in paths, query parameters, headers, bodies. [`Call`] combines them.

mod body;
mod headers;
mod json;
mod path;
mod query;
mod unparsed;

pub(crate) use body::{discard_body, discard_request, read_body};
pub(crate) use headers::{LastEventId, without_items};
pub(crate) use json::{parse, shortened};
pub(crate) use path::{
    DecisionId, LeaseId, LimitName, LockId, Namespace, OperationId, OverrideName, RuleName, RuleSetName,
    StreamName, default_namespace, empty_name, path_namespace,
};
pub(crate) use query::{
    ClusterQuery, DecisionsQuery, DryRun, GroupsQuery, LeasesQuery, LimitsQuery, NoQuery, OperationsQuery,
    Paging, ReleaseQuery,
};
pub(crate) use unparsed::{Batched, Changing, Reading, Replacing, Searching, Unparsed};

use super::{App, problem::Failure, status::unavailable};
use crate::access::Scope;
use axum::extract::{FromRequest, FromRequestParts, Request};
use bytes::Bytes;
use headers::{check_media_type, fingerprint, idempotency_key};
use limina_api::{AtMost, Heartbeat, MAX_BATCH, Object, decisions, ledger, locks};
use limina_engine::{Idempotency, Invalid};
use query::Query;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;

/// The largest body in bytes, except for batches.
pub(super) const MAX_BODY: usize = 1 << 20;
/// The largest body of a batch in bytes.
const MAX_BATCH_BODY: usize = 16 << 20;
/// A body of more bytes is parsed only if its shard would accept the request now. Parsing a smaller one costs no more than
/// refusing it.
const LARGE_BODY: usize = 4 << 10;

/// A request with a body: its namespace and client, its idempotency key, and the parsed body.
pub(crate) struct Call<T> {
    pub(crate) namespace: Scope,
    pub(crate) idempotency: Option<Idempotency>,
    pub(crate) body: T,
}

impl<T: RequestBody> FromRequest<App> for Call<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &App) -> Result<Call<T>, Failure> {
        let (mut parts, body) = request.into_parts();
        // The body is read first, because an error that leaves it unread closes the connection.
        let bytes = read_body(&parts, body, T::MAX_BYTES, app.body_timeout()).await?;
        let Namespace(namespace) = Namespace::from_request_parts(&mut parts, app).await?;
        Query::parse(&parts, T::PARAMETERS)?;
        if T::IS_JSON {
            check_media_type(&parts.headers)?;
        }
        let key = if T::TAKES_KEY { idempotency_key(&parts.headers)? } else { None };
        if bytes.len() > LARGE_BODY {
            app.backend().check_load(&namespace, bytes.len(), T::MAKES_ROOM).map_err(unavailable)?;
        }
        let body = T::parse(&bytes)?;
        let idempotency = key.map(|key| {
            let fingerprint = fingerprint(&parts.method, &namespace, parts.uri.path(), &bytes);
            Idempotency { owner: namespace.identity.actor().cloned(), key, fingerprint }
        });
        Ok(Call { namespace, idempotency, body })
    }
}

/// A type that a request body is read as.
pub(crate) trait RequestBody: Sized {
    /// The largest body, in bytes.
    const MAX_BYTES: usize;
    /// Whether the header `Idempotency-Key` is read: for every POST and PUT that changes something.
    const TAKES_KEY: bool;
    /// The query parameters that another extractor of the handler reads. All others are refused.
    const PARAMETERS: &'static [&'static str] = &[];
    /// Whether `Content-Type`, if present, must be JSON.
    const IS_JSON: bool = true;
    /// Whether the request frees what an earlier one took, so that an overloaded shard still accepts it.
    const MAKES_ROOM: bool = false;

    fn parse(bytes: &Bytes) -> Result<Self, Failure>;
}

/// A body that is one JSON object.
pub(crate) trait JsonBody: DeserializeOwned {
    const TAKES_KEY: bool = true;
    const MAKES_ROOM: bool = false;

    /// Checks what parsing does not: what concerns several fields, and lengths.
    fn validate(&self) -> Result<(), Invalid> {
        Ok(())
    }
}

/// Requests that are the engine's own, and can check themselves.
macro_rules! engines_own {
    ($($request:ty { $($constant:item)* })*) => {$(
        impl JsonBody for $request {
            $($constant)*

            fn validate(&self) -> Result<(), Invalid> {
                <$request>::validate(self)
            }
        }
    )*};
}

engines_own! {
    ledger::NewLimit {}
    ledger::Hold {}
    ledger::Finalization { const MAKES_ROOM: bool = true; }
    ledger::Extend { const MAKES_ROOM: bool = true; }
    ledger::LimitPatch { const TAKES_KEY: bool = false; }
    ledger::Values { const TAKES_KEY: bool = false; }
    locks::Acquire {}
    decisions::Settle { const MAKES_ROOM: bool = true; }
}

impl JsonBody for Heartbeat {}

/// Reading it checks all of it.
impl JsonBody for decisions::Decide {}

/// Reading it checks all of it.
impl JsonBody for decisions::DecideNow {}

impl JsonBody for decisions::CommitDecision {
    const MAKES_ROOM: bool = true;
}

impl JsonBody for decisions::RollbackItem {
    const MAKES_ROOM: bool = true;
}

impl JsonBody for decisions::NoFields {
    const MAKES_ROOM: bool = true;
}

impl<T: JsonBody> RequestBody for T {
    const MAX_BYTES: usize = MAX_BODY;
    const TAKES_KEY: bool = T::TAKES_KEY;
    const MAKES_ROOM: bool = T::MAKES_ROOM;

    fn parse(bytes: &Bytes) -> Result<T, Failure> {
        valid(parse(bytes)?)
    }
}

/// The bytes of a body of any content type.
pub(crate) struct Raw(pub(crate) Bytes);

impl RequestBody for Raw {
    const MAX_BYTES: usize = MAX_BODY;
    const TAKES_KEY: bool = true;
    const IS_JSON: bool = false;

    fn parse(bytes: &Bytes) -> Result<Raw, Failure> {
        Ok(Raw(bytes.clone()))
    }
}

/// The items of a batch. An item that does not parse fails alone.
pub(crate) struct Items<I>(pub(crate) Vec<Result<I, Failure>>);

/// A batch with unparsed items. It is used when some item does not parse, to find out which.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBatch<'a> {
    #[serde(borrow)]
    operations: AtMost<MAX_BATCH, &'a RawValue>,
}

impl<I: JsonBody> RequestBody for Items<I> {
    const MAX_BYTES: usize = MAX_BATCH_BODY;
    const TAKES_KEY: bool = true;
    const MAKES_ROOM: bool = I::MAKES_ROOM;

    fn parse(bytes: &Bytes) -> Result<Items<I>, Failure> {
        if let Ok(Object(batch)) = serde_json::from_slice::<Object<ledger::Batch<I>>>(bytes) {
            return Ok(Items(batch.operations.into_iter().map(valid).collect()));
        }
        let RawBatch { operations: AtMost(operations) } = parse(bytes)?;
        let item = |item: &RawValue| parse(item.get().as_bytes()).and_then(valid);
        Ok(Items(operations.into_iter().map(item).collect()))
    }
}

/// The body, if it is valid besides being of its type.
pub(crate) fn valid<T: JsonBody>(body: T) -> Result<T, Failure> {
    body.validate()?;
    Ok(body)
}
