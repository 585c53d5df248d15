//! Which key-values a selection or a query matches, implemented again from the words of the API.

use limina_engine::{
    KeyValues,
    key_values::{OwnedValue, Value, ValueRef},
    selection::{Query, Selection, Test},
};
use std::cmp::Ordering;

/// What is known of a key.
#[derive(Clone, Copy)]
enum KeyState<'a> {
    Absent,
    Value(ValueRef<'a>),
    /// The key exists; there is no value to compare.
    Key,
}

pub(super) fn selects(selection: &Selection, key_values: &KeyValues) -> bool {
    all_hold(selection, &|key| value(key_values, key).map_or(KeyState::Absent, KeyState::Value))
}

pub(super) fn finds(query: &Query, key_values: &KeyValues) -> bool {
    let see = |key: &str| value(key_values, key).map_or(KeyState::Absent, KeyState::Value);
    holds(query, key_values.iter().count(), &see)
}

/// For a rule, of which only the keys are compared.
pub(super) fn finds_keys(query: &Query, keys: &[Box<str>]) -> bool {
    let see = |key: &str| if keys.iter().any(|k| **k == *key) { KeyState::Key } else { KeyState::Absent };
    holds(query, keys.len(), &see)
}

/// Whether `whole` contains every pair of `part`.
pub(super) fn contains(whole: &KeyValues, part: &KeyValues) -> bool {
    part.iter().all(|pair| value(whole, pair.key) == Some(pair.value))
}

/// The pairs with these keys, if all of them exist.
pub(super) fn project(key_values: &KeyValues, keys: &[Box<str>]) -> Option<KeyValues> {
    let pairs = keys.iter().map(|key| Some((key.clone(), value(key_values, key)?)));
    Some(KeyValues::new(pairs.collect::<Option<Vec<_>>>()?).expect("parts of key-values are such"))
}

fn value<'a>(key_values: &'a KeyValues, key: &str) -> Option<ValueRef<'a>> {
    key_values.iter().find(|pair| pair.key == key).map(|pair| pair.value)
}

fn holds<'a>(query: &Query, keys: usize, see: &dyn Fn(&str) -> KeyState<'a>) -> bool {
    let within = query.min_keys().unwrap_or(0)..=query.max_keys().unwrap_or(usize::MAX);
    all_hold(query.selection(), see)
        && within.contains(&keys)
        && (query.any().is_empty() || query.any().iter().any(|part| holds(part, keys, see)))
        && query.all().iter().all(|part| holds(part, keys, see))
}

fn all_hold<'a>(selection: &Selection, see: &dyn Fn(&str) -> KeyState<'a>) -> bool {
    selection.conditions().all(|(key, tests)| tests.iter().all(|test| is_met(test, see(key))))
}

fn is_met(test: &Test, seen: KeyState<'_>) -> bool {
    let value = match (test, seen) {
        (Test::Exists(wanted), KeyState::Absent) => return !wanted,
        (Test::Exists(wanted), _) => return *wanted,
        (_, KeyState::Absent | KeyState::Key) => return false,
        (_, KeyState::Value(value)) => value,
    };
    let is = |other: &OwnedValue| value == other.as_ref();
    let order = |other: &OwnedValue| compare(value, other.as_ref());
    match test {
        Test::Eq(other) => is(other),
        Test::Ne(other) => !is(other),
        Test::Lt(other) => order(other) == Some(Ordering::Less),
        Test::Lte(other) => matches!(order(other), Some(Ordering::Less | Ordering::Equal)),
        Test::Gt(other) => order(other) == Some(Ordering::Greater),
        Test::Gte(other) => matches!(order(other), Some(Ordering::Greater | Ordering::Equal)),
        Test::In(others) => others.iter().any(is),
        Test::Prefix(prefix) => matches!(value, Value::String(text) if text.starts_with(&**prefix)),
        Test::Exists(_) => unreachable!("answered above"),
    }
}

/// Numbers are compared by value, whatever their type, and texts by bytes. Other values are not comparable.
fn compare(a: ValueRef<'_>, b: ValueRef<'_>) -> Option<Ordering> {
    // Twice the number, plus one if there is a fraction: exact for every integer, and enough for any float.
    let doubled = |value: ValueRef<'_>| match value {
        Value::Integer(number) => Some(2 * i128::from(number)),
        Value::Float(number) => {
            let whole = number.floor();
            Some(2 * (whole as i128).clamp(-(1 << 70), 1 << 70) + i128::from(whole != number))
        }
        _ => None,
    };
    match (a, b) {
        (Value::String(a), Value::String(b)) => Some(a.as_bytes().cmp(b.as_bytes())),
        (Value::Float(a), Value::Float(b)) => a.partial_cmp(&b),
        _ => Some(doubled(a)?.cmp(&doubled(b)?)),
    }
}
