//! Converts the engine's types to wire types.

pub(crate) mod audit;
pub(crate) mod decisions;
pub(crate) mod events;
pub(crate) mod ledger;
pub(crate) mod limiter;

use limina_api::{Problem, namespace::Namespace, refusals as wire};
use limina_engine::{Name, Time, outcome::NamespaceInfo};
use limina_node::RefusedRequest;
use std::borrow::Cow;

pub(crate) fn namespace(info: NamespaceInfo) -> Namespace {
    Namespace { namespace: text(&info.name), position: info.position.0 }
}

pub(crate) fn refused(refused: &RefusedRequest) -> wire::RefusedRequest<'_> {
    wire::RefusedRequest {
        time: refused.time,
        namespace: borrowed(&refused.namespace),
        family: refused.family.as_ref().into(),
        code: refused.code.as_ref().into(),
        rule: refused.rule.as_ref().map(borrowed),
        limit_name: refused.limit_name.as_ref().map(borrowed),
        stream: refused.stream.as_ref().map(borrowed),
        key_values: refused.key_values.clone(),
        operation_id: refused.operation_id.as_ref().map(borrowed),
    }
}

/// Merges the results of a batch with the problems of its invalid items, which were not submitted. Each problem goes to the index
/// of its item, and the results fill the gaps in order.
fn in_request_order<R>(
    mut results: impl ExactSizeIterator<Item = R>,
    problems: Vec<(usize, Problem)>,
    refused: impl Fn(Problem) -> R,
) -> Vec<R> {
    let mut merged = Vec::with_capacity(results.len() + problems.len());
    for (index, problem) in problems {
        merged.extend(results.by_ref().take(index.saturating_sub(merged.len())));
        merged.push(refused(problem));
    }
    merged.extend(results);
    merged
}

/// The milliseconds from one instant to another; 0 if the second is earlier.
fn span(from: Time, to: Time) -> u64 {
    to.0.saturating_sub(from.0)
}

fn borrowed(name: &Name) -> Cow<'_, str> {
    Cow::Borrowed(name.as_str())
}

fn text(name: &Name) -> String {
    name.as_str().to_owned()
}
