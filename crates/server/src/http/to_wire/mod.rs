//! From the engine's types to the wire's.

pub(crate) mod events;
pub(crate) mod key_values;
pub(crate) mod ledger;
pub(crate) mod limiter;
pub(crate) mod locks;

use limina_engine::{Name, Time, outcome::NamespaceInfo};
use limina_wire::{Problem, namespace::Namespace};
use std::borrow::Cow;

pub(crate) fn namespace(info: NamespaceInfo) -> Namespace {
    Namespace { namespace: text(&info.name), position: info.position.0 }
}

/// The results of a batch of which some items were never submitted: each problem returns to its place, and the
/// results of the others fill the places between, in order.
fn in_places<R>(
    mut results: impl ExactSizeIterator<Item = R>,
    problems: Vec<(usize, Problem)>,
    refused: impl Fn(Problem) -> R,
) -> Vec<R> {
    let mut merged = Vec::with_capacity(results.len() + problems.len());
    for (place, problem) in problems {
        merged.extend(results.by_ref().take(place.saturating_sub(merged.len())));
        merged.push(refused(problem));
    }
    merged.extend(results);
    merged
}

/// From one instant to another, in milliseconds.
fn span(from: Time, to: Time) -> u64 {
    to.0.saturating_sub(from.0)
}

fn borrowed(name: &Name) -> Cow<'_, str> {
    Cow::Borrowed(name.as_str())
}

fn text(name: &Name) -> String {
    name.as_str().to_owned()
}
