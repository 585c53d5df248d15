//! From the wire's types to the engine's. The engine checks its own limits; here its [`Invalid`] becomes an answer, under
//! the field's name in the API. Checked here is only what the engine cannot express, such as two fields that exclude each
//! other.

pub(crate) mod events;
mod key_values;
pub(crate) mod ledger;
pub(crate) mod limiter;
pub(crate) mod locks;
mod selection;

pub(crate) use selection::{query, rule_query};

use super::{extract::shortened, problem::Failure};
use limina_engine::{Invalid, Millis, Name, Reason};
use limina_wire::{Duration, MAX_BATCH, Problem};

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

fn name(field: &str, text: &str) -> Result<Name, Invalid> {
    Name::new(text).map_err(|reason| Invalid::new(field, Reason::Name(reason)))
}

fn optional_name(field: &str, text: Option<&str>) -> Result<Option<Name>, Invalid> {
    text.map(|text| name(field, text)).transpose()
}

fn millis(given: Duration) -> Millis {
    Millis(given.millis)
}
