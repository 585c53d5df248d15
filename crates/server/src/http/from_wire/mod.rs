//! From the wire's types to the engine's. The engine checks its own limits; here its [`Invalid`] becomes an answer, under
//! the field's name in the API. Checked here is only what the engine cannot express, such as two fields that exclude each
//! other.

pub(crate) mod events;
pub(crate) mod limiter;

use super::{extract::shortened, problem::Failure};
use limina_api::{Duration, MAX_BATCH, Problem};
use limina_engine::{Invalid, Millis, Name, Reason};

/// A batch of which some items may not parse or validate.
pub(crate) struct CheckedBatch<T> {
    /// The valid items, in order.
    pub(crate) items: Vec<T>,
    /// The problems of the other items, with their indexes in the request.
    pub(crate) problems: Vec<(usize, Problem)>,
}

pub(crate) fn batch<I, T>(
    field: &'static str,
    items: Vec<Result<I, Failure>>,
    convert: impl Fn(I) -> Result<T, Failure>,
) -> Result<CheckedBatch<T>, Failure> {
    // The engine sees the valid items alone.
    if !(1..=MAX_BATCH).contains(&items.len()) {
        return Err(Invalid::new(field, Reason::Items { min: 1, max: MAX_BATCH, found: items.len() }).into());
    }
    let mut checked = Vec::with_capacity(items.len());
    let mut problems = Vec::new();
    for (place, item) in items.into_iter().enumerate() {
        match item.and_then(&convert) {
            Ok(item) => checked.push(item),
            Err(failure) => problems.push((place, failure.into_problem())),
        }
    }
    Ok(CheckedBatch { items: checked, problems })
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Failure {
        let field = match invalid.field() {
            "" => "body".to_owned(),
            field => shortened(field),
        };
        Failure::invalid(field, invalid.reason().to_string())
    }
}

pub(crate) fn name(field: &str, text: &str) -> Result<Name, Invalid> {
    Name::new(text).map_err(|reason| Invalid::new(field, Reason::Name(reason)))
}

fn optional_name(field: &str, text: Option<&str>) -> Result<Option<Name>, Invalid> {
    text.map(|text| name(field, text)).transpose()
}

/// A duration that a request may give under two names: with units, or in milliseconds under the name that replies use, which
/// ends in `_ms`.
struct Span {
    field: &'static str,
    millis: Option<Millis>,
    is_ms: bool,
}

impl Span {
    fn new(field: &'static str, given: Option<Duration>, millis: Option<u64>) -> Result<Span, Failure> {
        if given.is_some() && millis.is_some() {
            let reason = format!("must be absent, because `{field}` is given");
            return Err(Failure::invalid(format!("{field}_ms"), reason));
        }
        let is_ms = millis.is_some();
        let millis = millis.or(given.map(|given| given.millis)).map(Millis);
        Ok(Span { field, millis, is_ms })
    }

    fn required(&self) -> Result<Millis, Failure> {
        self.millis.ok_or_else(|| Failure::invalid(self.field, "is required"))
    }

    /// Names the field as the client did. The engine knows it under its first name.
    fn as_sent(&self, invalid: Invalid) -> Invalid {
        match self.is_ms && invalid.field() == self.field {
            true => invalid.renamed(format!("{}_ms", self.field)),
            false => invalid,
        }
    }
}

/// Checks the name in a body whose path contains it too.
fn check_same_name(name: &Name, text: Option<&str>) -> Result<(), Failure> {
    match text {
        Some(text) if text != name.as_str() => {
            Err(Failure::invalid("name", "must be the name in the path, or absent"))
        }
        _ => Ok(()),
    }
}
