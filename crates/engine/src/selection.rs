//! Conditions on key-values: which ones a rule applies to, and which ones a query finds.

use crate::{
    Invalid, Reason,
    key_values::{KeyValues, OwnedValue, RawPair, ValueRef, check_key},
};
use alloc::{
    boxed::Box,
    format,
    vec::{self, Vec},
};
use core::ops::Deref;
use limina_api::invalid::{check_bytes, check_items, key_path};
use serde::{Deserialize, Serialize, Serializer};

/// Conditions, all of which must hold. A selection without conditions selects everything.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(try_from = "Conditions")]
pub struct Selection {
    /// In the order of the keys, each key once.
    conditions: Conditions,
}

/// It is written as it is read: as its conditions alone.
impl Serialize for Selection {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.conditions.serialize(serializer)
    }
}

/// The work of walking over the pairs of an object once, in comparisons.
const WALK_WEIGHT: usize = 16;

/// Each key with the tests that its value must pass.
type Conditions = Vec<(Box<str>, Vec<Test>)>;

/// A test of one key's value. Only `Exists(false)` holds if the key is missing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Test {
    /// The value is this one, type included.
    Eq(OwnedValue),
    /// The value is not this one. A value of another type is not this one.
    Ne(OwnedValue),
    /// The value is less than this one.
    Lt(OwnedValue),
    /// The value is less than this one or equal to it.
    Lte(OwnedValue),
    /// The value is greater than this one.
    Gt(OwnedValue),
    /// The value is greater than this one or equal to it.
    Gte(OwnedValue),
    /// The value is one of these.
    In(ValueSet),
    /// The value is a text that begins with this one.
    Prefix(Box<str>),
    /// Whether the key exists.
    Exists(bool),
}

/// The values of an `in`: a list as the client wrote it, and an index that finds a value without looking at every other.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(from = "Vec<OwnedValue>", into = "Vec<OwnedValue>")]
pub struct ValueSet {
    values: Vec<OwnedValue>,
    /// The places of the values in `values`, in [`ValueRef::total_order`].
    sorted: Vec<u32>,
}

/// The objects that a query finds: all conditions must hold.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(into = "Vec<Part>", try_from = "Vec<Part>")]
pub struct Query {
    selection: Selection,
    min_keys: Option<usize>,
    max_keys: Option<usize>,
    any: Vec<Query>,
    all: Vec<Query>,
}

impl Selection {
    /// The most keys.
    pub const MAX_KEYS: usize = KeyValues::MAX_KEYS;
    /// The most values of one [`Test::In`].
    pub const MAX_IN: usize = 1024;

    /// Takes the conditions in any order, each key once, with at least one test for each. The paths of errors begin
    /// with `selection`.
    pub fn new(mut conditions: Vec<(Box<str>, Vec<Test>)>) -> Result<Selection, Invalid> {
        conditions.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let selection = Selection { conditions };
        selection.validate()?;
        Ok(selection)
    }

    /// Also checks that no key is named twice, provided that the keys are in order.
    pub(crate) fn validate(&self) -> Result<(), Invalid> {
        check_items("selection", self.conditions.len(), 0..=Selection::MAX_KEYS)?;
        for (place, (key, tests)) in self.conditions.iter().enumerate() {
            let path = || key_path("selection", key);
            let wrong = |invalid: Invalid| invalid.within(&path());
            check_key(key).map_err(wrong)?;
            if place > 0 && self.conditions[place - 1].0 == *key {
                return Err(Invalid::new(path(), Reason::Repeated));
            }
            if tests.is_empty() {
                return Err(Invalid::new(path(), Reason::NoTest));
            }
            tests.iter().try_for_each(Test::validate).map_err(wrong)?;
        }
        Ok(())
    }

    /// The conditions, by key.
    pub fn conditions(&self) -> impl ExactSizeIterator<Item = (&str, &[Test])> {
        self.conditions.iter().map(|(key, tests)| (&**key, &**tests))
    }

    /// The most comparisons of two values that [`Selection::selects`] makes.
    pub(crate) fn comparisons(&self) -> usize {
        self.conditions.iter().flat_map(|(_, tests)| tests).map(Test::comparisons).sum()
    }

    /// Whether all conditions hold for these key-values.
    pub fn selects(&self, key_values: &KeyValues) -> bool {
        // Conditions and pairs are both in the order of their keys, so one walk over the pairs finds every value.
        let mut pairs = key_values.raw().peekable();
        self.conditions.iter().all(|(key, tests)| {
            while pairs.next_if(|pair| pair.key < key.as_bytes()).is_some() {}
            let value = pairs.peek().filter(|pair| pair.key == key.as_bytes()).map(RawPair::value);
            tests.iter().all(|test| test.holds(value))
        })
    }

    /// Whether all conditions hold for an object of which only the keys are known, such as the keys that a rule groups by.
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
    fn validate(&self) -> Result<(), Invalid> {
        let value = |word: &str, value: &OwnedValue| {
            value.as_ref().validate().map_err(|invalid| invalid.within(word))
        };
        match self {
            Test::Eq(other) => value("eq", other),
            Test::Ne(other) => value("ne", other),
            Test::Lt(other) => value("lt", other),
            Test::Lte(other) => value("lte", other),
            Test::Gt(other) => value("gt", other),
            Test::Gte(other) => value("gte", other),
            Test::In(others) => {
                check_items("in", others.len(), 0..=Selection::MAX_IN)?;
                let mut others = others.iter().enumerate();
                others.try_for_each(|(index, other)| value(&format!("in[{index}]"), other))
            }
            Test::Prefix(prefix) => check_bytes("prefix", prefix, 0..=KeyValues::MAX_STRING_BYTES),
            Test::Exists(_) => Ok(()),
        }
    }

    fn comparisons(&self) -> usize {
        match self {
            Test::In(others) => others.len().checked_ilog2().map_or(1, |halvings| halvings as usize + 1),
            _ => 1,
        }
    }

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
            Test::In(others) => others.contains(value),
            Test::Prefix(prefix) => matches!(value, ValueRef::String(text) if text.starts_with(&**prefix)),
            Test::Exists(is_there) => *is_there,
        }
    }
}

impl ValueSet {
    /// Whether the value is one of these.
    pub fn contains(&self, value: ValueRef<'_>) -> bool {
        let order = |place: &u32| self.values[*place as usize].as_ref().total_order(value);
        self.sorted.binary_search_by(order).is_ok()
    }
}

impl From<Vec<OwnedValue>> for ValueSet {
    fn from(values: Vec<OwnedValue>) -> ValueSet {
        let mut sorted: Vec<u32> = (0..values.len() as u32).collect();
        let value = |place: u32| values[place as usize].as_ref();
        sorted.sort_unstable_by(|a, b| value(*a).total_order(value(*b)));
        sorted.dedup_by(|a, b| value(*a).total_order(value(*b)).is_eq());
        ValueSet { values, sorted }
    }
}

impl From<ValueSet> for Vec<OwnedValue> {
    fn from(set: ValueSet) -> Vec<OwnedValue> {
        set.values
    }
}

impl FromIterator<OwnedValue> for ValueSet {
    fn from_iter<I: IntoIterator<Item = OwnedValue>>(values: I) -> ValueSet {
        Vec::from_iter(values).into()
    }
}

/// The list as it was written.
impl Deref for ValueSet {
    type Target = [OwnedValue];

    fn deref(&self) -> &[OwnedValue] {
        &self.values
    }
}

impl PartialEq for ValueSet {
    fn eq(&self, other: &ValueSet) -> bool {
        self.values == other.values
    }
}

impl Query {
    /// The deepest nesting. A query without queries within it is 1 deep.
    pub const MAX_DEPTH: usize = 8;
    /// The most queries that a query may consist of, itself included.
    pub const MAX_PARTS: usize = 64;

    /// Finds the objects whose key-values are selected.
    pub fn new(selection: Selection) -> Query {
        Query { selection, ..Query::default() }
    }

    /// Finds only objects with at least this many keys.
    #[must_use]
    pub fn with_min_keys(self, min_keys: Option<usize>) -> Query {
        Query { min_keys, ..self }
    }

    /// Finds only objects with at most this many keys.
    #[must_use]
    pub fn with_max_keys(self, max_keys: Option<usize>) -> Query {
        Query { max_keys, ..self }
    }

    /// Finds only objects that at least one of these queries finds. An empty list changes nothing.
    pub fn with_any(self, any: Vec<Query>) -> Result<Query, Invalid> {
        Query { any, ..self }.checked()
    }

    /// Finds only objects that every one of these queries finds.
    pub fn with_all(self, all: Vec<Query>) -> Result<Query, Invalid> {
        Query { all, ..self }.checked()
    }

    /// The conditions on the object's key-values.
    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// The fewest keys of the object.
    pub fn min_keys(&self) -> Option<usize> {
        self.min_keys
    }

    /// The most keys of the object.
    pub fn max_keys(&self) -> Option<usize> {
        self.max_keys
    }

    /// At least one of these queries finds the object, if there are any.
    pub fn any(&self) -> &[Query] {
        &self.any
    }

    /// Every one of these queries finds the object.
    pub fn all(&self) -> &[Query] {
        &self.all
    }

    fn checked(self) -> Result<Query, Invalid> {
        self.check_size(1, &mut 0)?;
        Ok(self)
    }

    /// The queries within this one were checked when they were built, so the recursion is not deep.
    fn check_size(&self, depth: usize, parts: &mut usize) -> Result<(), Invalid> {
        *parts += 1;
        if depth > Query::MAX_DEPTH {
            return Err(Invalid::new("", Reason::TooDeep { max: Query::MAX_DEPTH }));
        }
        if *parts > Query::MAX_PARTS {
            return Err(Invalid::new("", Reason::TooManyParts { max: Query::MAX_PARTS }));
        }
        self.try_each_part(|part| part.check_size(depth + 1, parts))
    }

    fn try_each_part(&self, mut check: impl FnMut(&Query) -> Result<(), Invalid>) -> Result<(), Invalid> {
        for (list, parts) in [("any", &self.any), ("all", &self.all)] {
            for (index, part) in parts.iter().enumerate() {
                check(part).map_err(|invalid| invalid.within_item(list, index))?;
            }
        }
        Ok(())
    }

    /// Decoding has checked the depth and the number of parts already: it could not have built the query otherwise.
    pub(crate) fn validate(&self) -> Result<(), Invalid> {
        self.try_each_selection(&Selection::validate)
    }

    /// Checks that the query tests only whether keys exist.
    pub(crate) fn check_only_keys(&self) -> Result<(), Invalid> {
        self.try_each_selection(&|selection| {
            let tests_value = |tests: &[Test]| tests.iter().any(|test| !matches!(test, Test::Exists(_)));
            match selection.conditions().find(|(_, tests)| tests_value(tests)) {
                Some((key, _)) => Err(Invalid::new(key_path("selection", key), Reason::NotAboutKeys)),
                None => Ok(()),
            }
        })
    }

    fn try_each_selection(&self, check: &dyn Fn(&Selection) -> Result<(), Invalid>) -> Result<(), Invalid> {
        check(&self.selection).map_err(|invalid| invalid.with_root("where"))?;
        self.try_each_part(|part| part.try_each_selection(check))
    }

    /// Whether the query finds these key-values.
    pub fn finds(&self, key_values: &KeyValues) -> bool {
        self.holds(key_values.len(), &|selection| selection.selects(key_values))
    }

    /// Whether the query finds an object of which only the keys are known.
    pub fn finds_keys<K: AsRef<str>>(&self, keys: &[K]) -> bool {
        self.holds(keys.len(), &|selection| selection.selects_keys(keys))
    }

    /// About how much work it is to look at one object, in comparisons.
    pub(crate) fn weight(&self) -> usize {
        let parts = self.any.iter().chain(&self.all).map(Query::weight);
        WALK_WEIGHT + self.selection.comparisons() + parts.sum::<usize>()
    }

    fn holds(&self, keys: usize, selects: &dyn Fn(&Selection) -> bool) -> bool {
        selects(&self.selection)
            && self.min_keys.is_none_or(|min| keys >= min)
            && self.max_keys.is_none_or(|max| keys <= max)
            && (self.any.is_empty() || self.any.iter().any(|query| query.holds(keys, selects)))
            && self.all.iter().all(|query| query.holds(keys, selects))
    }
}

/// A query without the queries within it. These follow it in the list: first `any`, then `all`. A query is encoded as the
/// list of its parts, so that the bytes cannot make the decoder's stack deep.
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
