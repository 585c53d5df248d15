//! Selections and queries.

use super::{
    super::{extract::shortened, problem::Failure},
    key_values::{key, short_text, value},
};
use limina_engine::{
    key_values::{KeyValues, OwnedValue},
    selection::{Query, Selection, Test},
};
use limina_wire::{key_values::KeyValue, selection as wire};
use std::collections::HashSet;

const MAX_KEYS: usize = KeyValues::MAX_KEYS;
const MAX_LIST: usize = 1024;
const MAX_DEPTH: usize = Query::MAX_DEPTH;
const MAX_PARTS: usize = Query::MAX_PARTS;

/// What is known of the objects that a query looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// Their keys and values.
    KeyValues,
    /// Their keys alone: only `exists` can be asked.
    Keys,
}

/// The selection in the field of this path.
pub(super) fn selection(field: &str, selection: wire::Selection<'_>) -> Result<Selection, Failure> {
    let wire::Selection(conditions) = selection;
    if conditions.len() > MAX_KEYS {
        return Err(Failure::invalid(field, format!("must not have more than {MAX_KEYS} keys")));
    }
    let path = |key: &str| shortened(&format!("{field}.{key}"));
    let mut seen = HashSet::new();
    if let Some((twice, _)) = conditions.iter().find(|(key, _)| !seen.insert(&**key)) {
        return Err(Failure::invalid(path(twice), "the key stands twice"));
    }
    let mut checked = Vec::with_capacity(conditions.len());
    for (text, condition) in conditions {
        let key = key(&text).map_err(|detail| Failure::invalid(path(&text), detail))?;
        let tests = tests(condition).map_err(|(test, detail)| {
            let path = path(&text);
            Failure::invalid(if test.is_empty() { path } else { format!("{path}.{test}") }, detail)
        })?;
        checked.push((key, tests));
    }
    Ok(Selection::new(checked))
}

/// Which test is wrong, if not all of them, and why.
type Wrong = (String, String);

/// The tests of one condition.
fn tests(condition: wire::Condition<'_>) -> Result<Vec<Test>, Wrong> {
    let wire::Tests { eq, ne, lt, lte, gt, gte, one_of, prefix, exists } = match condition {
        wire::Condition::Equals(equal) => {
            let test = value(equal).map(Test::Eq).map_err(|detail| (String::new(), detail))?;
            return Ok(vec![test]);
        }
        wire::Condition::Tests(tests) => *tests,
    };
    let mut tests = Vec::new();
    let mut compare =
        |word: &str, other: Option<KeyValue<'_>>, test: fn(OwnedValue) -> Test| -> Result<(), Wrong> {
            let test = other.map(|other| value(other).map(test)).transpose();
            tests.extend(test.map_err(|detail| (word.to_owned(), detail))?);
            Ok(())
        };
    compare("eq", eq, Test::Eq)?;
    compare("ne", ne, Test::Ne)?;
    compare("lt", lt, Test::Lt)?;
    compare("lte", lte, Test::Lte)?;
    compare("gt", gt, Test::Gt)?;
    compare("gte", gte, Test::Gte)?;
    if let Some(list) = one_of {
        if list.len() > MAX_LIST {
            return Err(("in".to_owned(), format!("must not have more than {MAX_LIST} items")));
        }
        let values = list
            .into_iter()
            .enumerate()
            .map(|(place, item)| value(item).map_err(|detail| (format!("in[{place}]"), detail)));
        tests.push(Test::In(values.collect::<Result<_, _>>()?));
    }
    if let Some(prefix) = prefix {
        tests.push(short_text(&prefix).map(Test::Prefix).map_err(|detail| ("prefix".to_owned(), detail))?);
    }
    tests.extend(exists.map(Test::Exists));
    if tests.is_empty() {
        return Err((String::new(), "a condition has at least one test".to_owned()));
    }
    Ok(tests)
}

/// The body of a query.
pub(crate) fn query(known: Known, query: wire::Query<'_>) -> Result<Query, Failure> {
    let mut nodes = 0;
    part_of_query(known, "", 1, &mut nodes, query)
}

fn part_of_query(
    known: Known,
    path: &str,
    depth: usize,
    nodes: &mut usize,
    query: wire::Query<'_>,
) -> Result<Query, Failure> {
    let here = || if path.is_empty() { "body".to_owned() } else { path.to_owned() };
    let below = |word: &str| if path.is_empty() { word.to_owned() } else { format!("{path}.{word}") };
    *nodes += 1;
    if depth > MAX_DEPTH {
        return Err(Failure::invalid(here(), format!("a query is at most {MAX_DEPTH} deep")));
    }
    if *nodes > MAX_PARTS {
        return Err(Failure::invalid(here(), format!("a query has at most {MAX_PARTS} parts")));
    }
    let wire::Query { conditions, min_keys, max_keys, any, all } = query;
    let field = below("where");
    let selection = selection(&field, conditions.unwrap_or_default())?;
    if known == Known::Keys {
        only_exists(&field, &selection)?;
    }
    let mut parts = |word: &str, parts: Vec<wire::Query<'_>>| -> Result<Vec<Query>, Failure> {
        let numbered = parts.into_iter().enumerate();
        let part = |(place, part): (usize, _)| {
            part_of_query(known, &format!("{}[{place}]", below(word)), depth + 1, nodes, part)
        };
        numbered.map(part).collect()
    };
    Ok(Query {
        selection,
        min_keys: min_keys.map(|keys| keys as usize),
        max_keys: max_keys.map(|keys| keys as usize),
        any: parts("any", any)?,
        all: parts("all", all)?,
    })
}

fn only_exists(field: &str, selection: &Selection) -> Result<(), Failure> {
    let mut conditions = selection.conditions();
    match conditions.find(|(_, tests)| tests.iter().any(|test| !matches!(test, Test::Exists(_)))) {
        None => Ok(()),
        Some((key, _)) => Err(Failure::invalid(
            shortened(&format!("{field}.{key}")),
            "rules are found by their group_by keys: only exists can be asked",
        )),
    }
}
