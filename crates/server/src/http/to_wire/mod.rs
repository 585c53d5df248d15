//! From the engine's types to the wire's.

mod key_values;
pub(crate) mod ledger;
pub(crate) mod limiter;

use limina_engine::{Name, outcome::NamespaceInfo};
use limina_wire::{Problem, namespace::Namespace};

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

fn text(name: &Name) -> String {
    name.as_str().to_owned()
}
