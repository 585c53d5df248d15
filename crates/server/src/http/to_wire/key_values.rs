//! Key-values and selections. Strings are borrowed.

use limina_api::{
    key_values as wire,
    selection::{self as wire_selection, Condition, Tests},
};
use limina_engine::{
    key_values::{KeyValues, ValueRef},
    selection::{Selection, Test},
};
use std::borrow::Cow;

pub(in crate::http) fn key_values(key_values: &KeyValues) -> wire::KeyValues<'_> {
    let mut pairs = Vec::with_capacity(4);
    pairs.extend(key_values.iter().map(|pair| (Cow::Borrowed(pair.key), value(pair.value))));
    wire::KeyValues(pairs)
}

fn value(value: ValueRef<'_>) -> wire::KeyValue<'_> {
    match value {
        ValueRef::String(text) => wire::KeyValue::String(Cow::Borrowed(text)),
        ValueRef::Integer(number) => wire::KeyValue::Integer(number),
        ValueRef::Float(number) => wire::KeyValue::Float(number),
        ValueRef::Boolean(flag) => wire::KeyValue::Boolean(flag),
    }
}

/// A condition that is only `eq` is written as the value alone.
pub(super) fn selection(selection: &Selection) -> wire_selection::Selection<'_> {
    let conditions = selection.conditions().map(|(key, tests)| (Cow::Borrowed(key), condition(tests)));
    wire_selection::Selection(conditions.collect())
}

fn condition(tests: &[Test]) -> Condition<'_> {
    if let [Test::Eq(only)] = tests {
        return Condition::Equals(value(only.as_ref()));
    }
    let mut shown = Tests::default();
    for test in tests {
        match test {
            Test::Eq(other) => shown.eq = Some(value(other.as_ref())),
            Test::Ne(other) => shown.ne = Some(value(other.as_ref())),
            Test::Lt(other) => shown.lt = Some(value(other.as_ref())),
            Test::Lte(other) => shown.lte = Some(value(other.as_ref())),
            Test::Gt(other) => shown.gt = Some(value(other.as_ref())),
            Test::Gte(other) => shown.gte = Some(value(other.as_ref())),
            Test::In(others) => {
                shown.one_of = Some(others.iter().map(|other| value(other.as_ref())).collect());
            }
            Test::Prefix(prefix) => shown.prefix = Some(Cow::Borrowed(prefix)),
            Test::Exists(is_there) => shown.exists = Some(*is_there),
        }
    }
    Condition::Tests(Box::new(shown))
}
