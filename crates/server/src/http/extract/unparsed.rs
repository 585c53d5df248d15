//! Bodies that the handler parses. A wire type that borrows its strings from the body cannot be returned by an extractor.

use super::{
    MAX_BATCH_BODY, MAX_BODY, RequestBody,
    json::parse,
    query::{DryRun, PAGE_PARAMETERS},
};
use crate::http::problem::Failure;
use bytes::Bytes;
use limina_api::{
    AtMost, MAX_BATCH, Object,
    limiter::{Check, CheckBatch},
};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::marker::PhantomData;

/// The bytes of a JSON body.
pub(crate) struct Unparsed<K> {
    bytes: Bytes,
    kind: PhantomData<K>,
}

/// Which conventions apply to the request, see [`RequestBody`].
pub(crate) trait Kind {
    const MAX_BYTES: usize = MAX_BODY;
    const TAKES_KEY: bool = false;
    const PARAMETERS: &'static [&'static str] = &[];
}

/// A POST or PUT that changes something.
pub(crate) struct Changing;

impl Kind for Changing {
    const TAKES_KEY: bool = true;
}

/// A POST with many items that changes something.
pub(crate) struct Batched;

impl Kind for Batched {
    const MAX_BYTES: usize = MAX_BATCH_BODY;
    const TAKES_KEY: bool = true;
}

/// A PUT of many items as one, which may be a dry run.
pub(crate) struct Replacing;

impl Kind for Replacing {
    const MAX_BYTES: usize = MAX_BATCH_BODY;
    const TAKES_KEY: bool = true;
    const PARAMETERS: &'static [&'static str] = DryRun::PARAMETERS;
}

/// A request without an idempotency key: a PATCH, or a POST that changes nothing.
pub(crate) struct Reading;

impl Kind for Reading {}

/// A query: a POST that changes nothing and returns a page.
pub(crate) struct Searching;

impl Kind for Searching {
    const PARAMETERS: &'static [&'static str] = PAGE_PARAMETERS;
}

impl<K: Kind> RequestBody for Unparsed<K> {
    const MAX_BYTES: usize = K::MAX_BYTES;
    const TAKES_KEY: bool = K::TAKES_KEY;
    const PARAMETERS: &'static [&'static str] = K::PARAMETERS;

    fn parse(bytes: &Bytes) -> Result<Unparsed<K>, Failure> {
        Ok(Unparsed { bytes: bytes.clone(), kind: PhantomData })
    }
}

impl<K> Unparsed<K> {
    /// Parses the body as one JSON object.
    pub(crate) fn json<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Failure> {
        parse(&self.bytes)
    }
}

impl Unparsed<Batched> {
    /// The checks of a batch. A check that does not parse fails alone.
    pub(crate) fn checks(&self) -> Result<Vec<Result<Check, Failure>>, Failure> {
        if let Ok(Object(batch)) = serde_json::from_slice::<Object<CheckBatch>>(&self.bytes) {
            return Ok(batch.checks.into_iter().map(Ok).collect());
        }
        let RawChecks { checks: AtMost(checks) } = parse(&self.bytes)?;
        Ok(checks.into_iter().map(|item| parse(item.get().as_bytes())).collect())
    }
}

/// A batch with unparsed checks. It is used when some check does not parse, to find out which.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawChecks<'a> {
    #[serde(borrow)]
    checks: AtMost<MAX_BATCH, &'a RawValue>,
}
