//! Conditions on key-values: which ones a rule applies to, and which ones a query finds.

use crate::key_values::{KeyValues, OwnedValue, ValueRef};
use alloc::{
    boxed::Box,
    vec::{self, Vec},
};
use serde::{Deserialize, Serialize};

/// Conditions, all of which must hold. Without any, everything is selected.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "Conditions")]
pub struct Selection {
    /// In the order of the keys, each key once.
    conditions: Conditions,
}

/// Each key with what is asked of its value.
type Conditions = Vec<(Box<str>, Vec<Test>)>;

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
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(into = "Vec<Part>", try_from = "Vec<Part>")]
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
    pub fn new(mut conditions: Conditions) -> Selection {
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

impl TryFrom<Conditions> for Selection {
    type Error = &'static str;

    fn try_from(conditions: Conditions) -> Result<Selection, &'static str> {
        match conditions.is_sorted_by(|(a, _), (b, _)| a < b) {
            true => Ok(Selection { conditions }),
            false => Err("the keys of a selection are not in order"),
        }
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
    /// How deep it may be.
    pub const MAX_DEPTH: usize = 8;
    /// How many queries it may consist of, itself included.
    pub const MAX_PARTS: usize = 64;

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

/// A query without those within it, which follow it: first `any`, then `all`. A query is read and written as the list of
/// its parts, so that no bytes decide how deep the stack gets.
#[derive(Serialize, Deserialize)]
struct Part {
    selection: Selection,
    min_keys: Option<usize>,
    max_keys: Option<usize>,
    any: usize,
    all: usize,
}

impl From<Query> for Vec<Part> {
    fn from(query: Query) -> Vec<Part> {
        fn push(query: Query, parts: &mut Vec<Part>) {
            let Query { selection, min_keys, max_keys, any, all } = query;
            parts.push(Part { selection, min_keys, max_keys, any: any.len(), all: all.len() });
            any.into_iter().chain(all).for_each(|query| push(query, parts));
        }
        let mut parts = Vec::new();
        push(query, &mut parts);
        parts
    }
}

impl TryFrom<Vec<Part>> for Query {
    type Error = &'static str;

    fn try_from(parts: Vec<Part>) -> Result<Query, &'static str> {
        fn take(parts: &mut vec::IntoIter<Part>, depth: usize) -> Result<Query, &'static str> {
            if depth > Query::MAX_DEPTH {
                return Err("a query is too deep");
            }
            let Part { selection, min_keys, max_keys, any, all } =
                parts.next().ok_or("a part of a query is missing")?;
            let any = (0..any).map(|_| take(parts, depth + 1)).collect::<Result<_, _>>()?;
            let all = (0..all).map(|_| take(parts, depth + 1)).collect::<Result<_, _>>()?;
            Ok(Query { selection, min_keys, max_keys, any, all })
        }
        if parts.len() > Query::MAX_PARTS {
            return Err("a query has too many parts");
        }
        let mut parts = parts.into_iter();
        let query = take(&mut parts, 1)?;
        parts.next().map_or(Ok(query), |_| Err("a query has parts to spare"))
    }
}
