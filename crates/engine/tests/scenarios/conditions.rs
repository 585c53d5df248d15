//! Values and conditions as text.
//!
//! A value is `1`, `1.5`, `true`, or else a string; `"1"` is a string too.
//!
//! | conditions | meaning |
//! |---|---|
//! | `user=ann`, `user!=ann`, `size<3`, `size<=3`, `size>3`, `size>=3` | compare the value of a key |
//! | `plan=free\|trial` | one of these values |
//! | `path^=/api/` | a string that begins so |
//! | `path?`, `!path` | the key is there, is not there |
//! | `keys>=2`, `keys<=2` | the number of keys |
//! | `any(A;B)`, `all(A;B)` | at least one of these, all of these |
//! | `A,B` | both |

use limina_engine::{
    KeyValues,
    key_values::{Value, ValueRef},
    selection::{Query, Selection, Test},
};
use std::collections::BTreeMap;

pub(crate) fn query(text: &str) -> Query {
    let mut conditions: BTreeMap<Box<str>, Vec<Test>> = BTreeMap::new();
    let (mut any, mut all, mut min_keys, mut max_keys) = (Vec::new(), Vec::new(), None, None);
    for term in split(text, ',') {
        if let Some(list) = within(term, "any(") {
            any = split(list, ';').into_iter().map(query).collect();
        } else if let Some(list) = within(term, "all(") {
            all = split(list, ';').into_iter().map(query).collect();
        } else if let Some(count) = term.strip_prefix("keys>=") {
            min_keys = Some(count.parse().unwrap());
        } else if let Some(count) = term.strip_prefix("keys<=") {
            max_keys = Some(count.parse().unwrap());
        } else {
            let (key, test) = condition(term);
            conditions.entry(key.into()).or_default().push(test);
        }
    }
    let selection = Selection::new(conditions.into_iter().collect()).unwrap();
    let query = Query::new(selection).with_min_keys(min_keys).with_max_keys(max_keys);
    query.with_any(any).and_then(|query| query.with_all(all)).unwrap()
}

/// How a condition is written, and the test that it makes of the text behind it.
type Operator = (&'static str, fn(&str) -> Test);

fn condition(term: &str) -> (&str, Test) {
    if let Some(key) = term.strip_prefix('!') {
        return (key, Test::Exists(false));
    }
    if let Some(key) = term.strip_suffix('?') {
        return (key, Test::Exists(true));
    }
    let (key, rest) = term.split_at(term.find(['!', '<', '>', '^', '=']).unwrap());
    let operators: [Operator; 7] = [
        ("!=", |text| Test::Ne(value(text).to_owned())),
        ("<=", |text| Test::Lte(value(text).to_owned())),
        (">=", |text| Test::Gte(value(text).to_owned())),
        ("^=", |text| Test::Prefix(text.trim_matches('"').into())),
        ("<", |text| Test::Lt(value(text).to_owned())),
        (">", |text| Test::Gt(value(text).to_owned())),
        ("=", |text| match text.contains('|') {
            true => Test::In(text.split('|').map(|text| value(text).to_owned()).collect()),
            false => Test::Eq(value(text).to_owned()),
        }),
    ];
    let found = operators.iter().find_map(|(operator, test)| Some(test(rest.strip_prefix(operator)?)));
    (key, found.unwrap())
}

/// The parts between separators that are not inside parentheses.
fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            c if c == separator && depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.retain(|part| !part.is_empty());
    parts
}

fn within<'a>(term: &'a str, opening: &str) -> Option<&'a str> {
    term.strip_prefix(opening)?.strip_suffix(')')
}

/// The words of the form `key=value`.
pub(crate) fn key_values<'a>(words: impl IntoIterator<Item = &'a str>) -> KeyValues {
    let pairs = words.into_iter().filter_map(|word| word.split_once('='));
    KeyValues::new(pairs.map(|(key, text)| (key, value(text))).collect()).unwrap()
}

pub(crate) fn value(text: &str) -> ValueRef<'_> {
    if let Some(quoted) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        return Value::String(quoted);
    }
    let whole = text.parse().map(Value::Integer).ok();
    let float = || text.parse().map(Value::Float).ok();
    let flag = || text.parse().map(Value::Boolean).ok();
    whole.or_else(float).or_else(flag).unwrap_or(Value::String(text))
}
