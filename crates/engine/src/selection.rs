//! Conditions on key-values: which ones a rule applies to, and which ones a query finds.

use crate::key_values::{KeyValues, OwnedValue, ValueRef};
use alloc::{boxed::Box, vec::Vec};
use serde::{Deserialize, Serialize};

/// Conditions, all of which must hold. Without any, everything is selected.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Selection {
    /// In the order of the keys, each key once.
    conditions: Vec<(Box<str>, Vec<Test>)>,
}

/// What is asked of one key's value. Only `Exists(false)` holds for a key that is not there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Test {
    /// It is this value, type included.
    Eq(OwnedValue),
    /// It is not this value; one of another type is not.
    Ne(OwnedValue),
    /// It comes before this one.
    Lt(OwnedValue),
    /// It comes before this one, or is as large.
    Lte(OwnedValue),
    /// It comes after this one.
    Gt(OwnedValue),
    /// It comes after this one, or is as large.
    Gte(OwnedValue),
    /// It is one of these.
    In(Vec<OwnedValue>),
    /// It is a text that begins so.
    Prefix(Box<str>),
    /// Whether the key is there.
    Exists(bool),
}

/// What a query looks for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Query {
    /// Conditions on the object's key-values.
    pub selection: Selection,
    /// At least so many keys.
    pub min_keys: Option<usize>,
    /// At most so many keys.
    pub max_keys: Option<usize>,
    /// At least one of these, if there are any.
    pub any: Vec<Query>,
    /// Every one of these.
    pub all: Vec<Query>,
}

impl Selection {
    /// Takes the conditions, in any order; each key once.
    pub fn new(mut conditions: Vec<(Box<str>, Vec<Test>)>) -> Selection {
        conditions.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        Selection { conditions }
    }

    /// The conditions, by key.
    pub fn conditions(&self) -> impl Iterator<Item = (&str, &[Test])> {
        self.conditions.iter().map(|(key, tests)| (&**key, &**tests))
    }

    /// Whether it selects these.
    pub fn selects(&self, key_values: &KeyValues) -> bool {
        self.conditions.iter().all(|(key, tests)| {
            let value = key_values.get(key);
            tests.iter().all(|test| test.holds(value))
        })
    }

    /// Whether it selects an object of which only the keys are known, as those that a rule groups by.
    fn selects_keys<K: AsRef<str>>(&self, keys: &[K]) -> bool {
        self.conditions.iter().all(|(key, tests)| {
            let is_there = keys.iter().any(|other| other.as_ref() == &**key);
            tests.iter().all(|test| *test == Test::Exists(is_there))
        })
    }
}

impl Test {
    fn holds(&self, value: Option<ValueRef<'_>>) -> bool {
        let Some(value) = value else { return *self == Test::Exists(false) };
        let order = |other: &OwnedValue| value.order(other.as_ref());
        match self {
            Test::Eq(other) => value == other.as_ref(),
            Test::Ne(other) => value != other.as_ref(),
            Test::Lt(other) => order(other).is_some_and(|order| order.is_lt()),
            Test::Lte(other) => order(other).is_some_and(|order| order.is_le()),
            Test::Gt(other) => order(other).is_some_and(|order| order.is_gt()),
            Test::Gte(other) => order(other).is_some_and(|order| order.is_ge()),
            Test::In(others) => others.iter().any(|other| value == other.as_ref()),
            Test::Prefix(prefix) => matches!(value, ValueRef::String(text) if text.starts_with(&**prefix)),
            Test::Exists(is_there) => *is_there,
        }
    }
}

impl Query {
    /// Whether it finds these key-values.
    pub fn finds(&self, key_values: &KeyValues) -> bool {
        self.holds(key_values.len(), &|selection| selection.selects(key_values))
    }

    /// Whether it finds an object of which only the keys are known.
    pub fn finds_keys<K: AsRef<str>>(&self, keys: &[K]) -> bool {
        self.holds(keys.len(), &|selection| selection.selects_keys(keys))
    }

    fn holds(&self, keys: usize, selects: &dyn Fn(&Selection) -> bool) -> bool {
        selects(&self.selection)
            && self.min_keys.is_none_or(|min| keys >= min)
            && self.max_keys.is_none_or(|max| keys <= max)
            && (self.any.is_empty() || self.any.iter().any(|query| query.holds(keys, selects)))
            && self.all.iter().all(|query| query.holds(keys, selects))
    }
}
