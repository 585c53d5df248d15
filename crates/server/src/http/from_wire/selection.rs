//! Selections and queries.

use super::{super::problem::Failure, key_values::value};
use limina_api::selection as wire;
use limina_engine::{
    Invalid,
    limiter::RuleQuery,
    selection::{Query, Selection, Test},
};

/// A selection, in the field of this name.
pub(super) fn selection(wire::Selection(conditions): wire::Selection<'_>) -> Result<Selection, Invalid> {
    let mut converted = Vec::with_capacity(conditions.len());
    for (key, condition) in conditions {
        let tests = tests(condition).map_err(|invalid| invalid.within(&format!("selection.{key}")))?;
        converted.push((key.into(), tests));
    }
    Selection::new(converted)
}

/// The tests of one condition.
fn tests(condition: wire::Condition<'_>) -> Result<Vec<Test>, Invalid> {
    let wire::Tests { eq, ne, lt, lte, gt, gte, one_of, prefix, exists } = match condition {
        wire::Condition::Equals(equal) => {
            // The engine would call the field `eq`, which the request does not contain.
            let equal = value(equal);
            equal.as_ref().validate()?;
            return Ok(vec![Test::Eq(equal)]);
        }
        wire::Condition::Tests(tests) => *tests,
    };
    let mut tests = Vec::new();
    tests.extend(eq.map(|other| Test::Eq(value(other))));
    tests.extend(ne.map(|other| Test::Ne(value(other))));
    tests.extend(lt.map(|other| Test::Lt(value(other))));
    tests.extend(lte.map(|other| Test::Lte(value(other))));
    tests.extend(gt.map(|other| Test::Gt(value(other))));
    tests.extend(gte.map(|other| Test::Gte(value(other))));
    tests.extend(one_of.map(|list| Test::In(list.into_iter().map(value).collect())));
    tests.extend(prefix.map(|prefix| Test::Prefix(prefix.into())));
    tests.extend(exists.map(Test::Exists));
    Ok(tests)
}

/// The body of a query for objects with key-values.
pub(crate) fn query(query: wire::Query<'_>) -> Result<Query, Failure> {
    Ok(part_of_query(query)?)
}

/// The body of a query for rules.
pub(crate) fn rule_query(query: wire::Query<'_>) -> Result<RuleQuery, Failure> {
    Ok(RuleQuery::new(part_of_query(query)?)?)
}

fn part_of_query(query: wire::Query<'_>) -> Result<Query, Invalid> {
    let wire::Query { conditions, min_keys, max_keys, any, all } = query;
    let parts = |list: &str, parts: Vec<wire::Query<'_>>| {
        let part =
            |(index, part)| part_of_query(part).map_err(|invalid: Invalid| invalid.within_item(list, index));
        parts.into_iter().enumerate().map(part).collect::<Result<Vec<Query>, Invalid>>()
    };
    let selection =
        selection(conditions.unwrap_or_default()).map_err(|invalid| invalid.with_root("where"))?;
    Query::new(selection)
        .with_min_keys(min_keys.map(|keys| keys as usize))
        .with_max_keys(max_keys.map(|keys| keys as usize))
        .with_any(parts("any", any)?)?
        .with_all(parts("all", all)?)
}
