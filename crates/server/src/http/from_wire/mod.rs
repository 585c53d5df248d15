//! From the wire's types to the engine's: what the JSON form alone does not say about a valid request is checked here.

pub(crate) mod events;
mod key_values;
pub(crate) mod ledger;
pub(crate) mod limiter;
pub(crate) mod locks;
mod selection;

pub(crate) use selection::{Known, query};

use super::problem::Failure;
use limina_engine::{Millis, Name};
use limina_wire::{Duration, MAX_BATCH, Problem};
use std::collections::HashSet;

const MIN_TTL: Millis = Millis(100);
const MAX_TTL: Millis = Millis::DAY;

/// A batch of which some items may not parse or validate.
pub(crate) struct CheckedBatch<T> {
    /// What can be done, in order.
    pub(crate) items: Vec<T>,
    /// The problems of the other items, with their places in the request.
    pub(crate) problems: Vec<(usize, Problem)>,
}

pub(crate) fn batch<I, T>(
    field: &'static str,
    items: Vec<Result<I, Failure>>,
    convert: impl Fn(I) -> Result<T, Failure>,
) -> Result<CheckedBatch<T>, Failure> {
    check_count(field, items.len(), MAX_BATCH)?;
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

/// The path of a field, made only when it is needed.
trait Field {
    fn path(self) -> String;
}

impl Field for &'static str {
    fn path(self) -> String {
        self.to_owned()
    }
}

impl<F: FnOnce() -> String> Field for F {
    fn path(self) -> String {
        self()
    }
}

fn name(field: impl Field, text: &str) -> Result<Name, Failure> {
    Name::new(text).map_err(|error| Failure::invalid(field.path(), error.to_string()))
}

fn optional_name(field: impl Field, text: Option<&str>) -> Result<Option<Name>, Failure> {
    text.map(|text| name(field, text)).transpose()
}

fn ttl(given: Duration) -> Result<Millis, Failure> {
    within_span("ttl", given, MIN_TTL, MAX_TTL, "must be from 100 ms to 24 hours")
}

fn within_span(
    field: &'static str,
    given: Duration,
    least: Millis,
    most: Millis,
    detail: &str,
) -> Result<Millis, Failure> {
    let span = Millis(given.millis);
    if span < least || span > most { Err(Failure::invalid(field, detail)) } else { Ok(span) }
}

fn check_count(field: &str, count: usize, most: usize) -> Result<(), Failure> {
    if (1..=most).contains(&count) {
        Ok(())
    } else {
        Err(Failure::invalid(field, format!("must have 1–{most} items, and has {count}")))
    }
}

fn check_distinct<'n>(
    names: impl Iterator<Item = &'n str>,
    field: impl Fn(usize) -> String,
) -> Result<(), Failure> {
    let mut seen = HashSet::new();
    for (place, name) in names.enumerate() {
        if !seen.insert(name) {
            return Err(Failure::invalid(field(place), format!("{name:?} is named twice")));
        }
    }
    Ok(())
}
