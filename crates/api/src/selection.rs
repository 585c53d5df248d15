//! Conditions on key-values: which ones a rule applies to, and which ones a query finds.

use crate::{
    Invalid, JsonFault, Object, Reason,
    invalid::{check_bytes, check_items, key_path},
    key_values::{KeyValues, OwnedValue, RawPair, ValueRef, check_key},
    object::{self, too_many_keys},
    raw::{Raw, Text},
    value::{InvalidValue, from_json, typed_value},
};
use alloc::{borrow::ToOwned, boxed::Box, format, vec, vec::Vec};
use core::{fmt, ops::Deref};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, DeserializeSeed, MapAccess},
    ser::SerializeMap,
};
use serde_json::value::RawValue;
use utoipa::ToSchema;

pub use crate::query::{Query, RuleQuery};

/// Conditions, all of which must hold. A selection without conditions selects everything.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Selection {
    /// In the order of the keys, each key once.
    conditions: Conditions,
}

/// The work of walking over the pairs of an object once, in comparisons.
pub(crate) const WALK_WEIGHT: usize = 16;

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
    pub fn validate(&self) -> Result<(), Invalid> {
        check_items("selection", self.conditions.len(), 0..=Selection::MAX_KEYS)?;
        for (place, (key, tests)) in self.conditions.iter().enumerate() {
            let path = || key_path("selection", key);
            let wrong = |invalid: Invalid| invalid.within(&path());
            check_key(key).map_err(wrong)?;
            if place > 0 && self.conditions[place - 1].0 == *key {
                return Err(Invalid::new(path(), Reason::Repeated));
            }
            check_tests(tests).map_err(wrong)?;
        }
        Ok(())
    }

    /// The conditions, by key.
    pub fn conditions(&self) -> impl ExactSizeIterator<Item = (&str, &[Test])> {
        self.conditions.iter().map(|(key, tests)| (&**key, &**tests))
    }

    /// The most comparisons of two values that [`Selection::selects`] makes.
    pub fn comparisons(&self) -> usize {
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
    pub(crate) fn selects_keys<K: AsRef<str>>(&self, keys: &[K]) -> bool {
        self.conditions.iter().all(|(key, tests)| {
            let is_there = keys.iter().any(|other| other.as_ref() == &**key);
            tests.iter().all(|test| *test == Test::Exists(is_there))
        })
    }
}

/// Checks the tests of one key.
fn check_tests(tests: &[Test]) -> Result<(), Invalid> {
    if tests.is_empty() {
        return Err(Invalid::new("", Reason::NoTest));
    }
    tests.iter().try_for_each(Test::validate)
}

impl Test {
    fn validate(&self) -> Result<(), Invalid> {
        let value = |word: &str, value: &OwnedValue| {
            value.as_ref().validate().map_err(|invalid| invalid.within(word))
        };
        match self {
            Test::Eq(other)
            | Test::Ne(other)
            | Test::Lt(other)
            | Test::Lte(other)
            | Test::Gt(other)
            | Test::Gte(other) => value(self.word(), other),
            Test::In(others) => {
                check_items(self.word(), others.len(), 0..=Selection::MAX_IN)?;
                let mut others = others.iter().enumerate();
                others.try_for_each(|(index, other)| value(&format!("in[{index}]"), other))
            }
            Test::Prefix(prefix) => check_bytes(self.word(), prefix, 0..=KeyValues::MAX_STRING_BYTES),
            Test::Exists(_) => Ok(()),
        }
    }

    /// The tests in the order in which JSON has them.
    const WORDS: [&str; 9] = ["eq", "ne", "lt", "lte", "gt", "gte", "in", "prefix", "exists"];

    /// What JSON calls the test.
    fn word(&self) -> &'static str {
        match self {
            Test::Eq(_) => "eq",
            Test::Ne(_) => "ne",
            Test::Lt(_) => "lt",
            Test::Lte(_) => "lte",
            Test::Gt(_) => "gt",
            Test::Gte(_) => "gte",
            Test::In(_) => "in",
            Test::Prefix(_) => "prefix",
            Test::Exists(_) => "exists",
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

/// Nodes send the list of conditions, and the store has it. JSON has an object.
impl Serialize for Selection {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match serializer.is_human_readable() {
            true => serializer.collect_map(self.conditions().map(|(key, tests)| (key, TestsAsJson(tests)))),
            false => self.conditions.serialize(serializer),
        }
    }
}

/// The tests of one key. One that is only `eq` is written as the value alone.
struct TestsAsJson<'a>(&'a [Test]);

impl Serialize for TestsAsJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let [Test::Eq(only)] = self.0 {
            return only.serialize(serializer);
        }
        let mut map = serializer.serialize_map(None)?;
        for word in Test::WORDS {
            match self.0.iter().rfind(|test| test.word() == word) {
                None => {}
                Some(
                    Test::Eq(other)
                    | Test::Ne(other)
                    | Test::Lt(other)
                    | Test::Lte(other)
                    | Test::Gt(other)
                    | Test::Gte(other),
                ) => map.serialize_entry(word, other)?,
                Some(Test::In(others)) => map.serialize_entry(word, &**others)?,
                Some(Test::Prefix(prefix)) => map.serialize_entry(word, prefix)?,
                Some(Test::Exists(is_there)) => map.serialize_entry(word, is_there)?,
            }
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Selection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Selection, D::Error> {
        struct SelectionVisitor;

        impl<'de> de::Visitor<'de> for SelectionVisitor {
            type Value = Selection;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of conditions")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Selection, A::Error> {
                let mut conditions = Conditions::new();
                while let Some((place, key)) = map.next_key_seed(NewKey(&conditions))? {
                    if conditions.len() == Selection::MAX_KEYS {
                        return Err(too_many_keys(Selection::MAX_KEYS));
                    }
                    let Condition(tests) = map.next_value()?;
                    conditions.insert(place, (key, tests));
                }
                Ok(Selection { conditions })
            }
        }
        if deserializer.is_human_readable() {
            return deserializer.deserialize_map(SelectionVisitor);
        }
        let conditions = Conditions::deserialize(deserializer)?;
        match conditions.is_sorted_by(|(a, _), (b, _)| a < b) {
            true => Ok(Selection { conditions }),
            false => Err(de::Error::custom("the keys of a selection are not in order")),
        }
    }
}

/// Reads a key that these conditions do not have yet, and its place among them. An error is raised while the key is read, so that
/// the path of the error contains the key.
struct NewKey<'a>(&'a Conditions);

impl<'de> DeserializeSeed<'de> for NewKey<'_> {
    type Value = (usize, Box<str>);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let Text(key) = Text::deserialize(deserializer)?;
        check_key(&key).map_err(de::Error::custom)?;
        match self.0.binary_search_by(|(known, _)| (**known).cmp(&key)) {
            Err(place) => Ok((place, key.into())),
            Ok(_) => Err(de::Error::custom(Reason::Repeated)),
        }
    }
}

/// The tests of one key: a value, which the key's value must equal, or an object of tests. An error is raised while the condition
/// is read, so that the path of the error contains its key.
struct Condition(Vec<Test>);

impl<'de> Deserialize<'de> for Condition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Condition, D::Error> {
        let Raw(json) = Raw::deserialize(deserializer)?;
        if !json.starts_with('{') {
            let value = from_json(&json).map_err(de::Error::custom)?;
            return equals(value.as_ref()).map_err(Invalid::into_serde);
        }
        let Object(tests): Object<Tests<'_>> = serde_json::from_str(&json).map_err(|error| {
            de::Error::custom(format_args!("is not a valid condition: {}", JsonFault::of(&error)))
        })?;
        if let Some((data_type, json)) = tests.typed().map_err(de::Error::custom)? {
            let value = typed_value(data_type, json.get()).map_err(de::Error::custom)?;
            return equals(value.as_ref()).map_err(Invalid::into_serde);
        }
        let tests = tests.list();
        check_tests(&tests).map_err(Invalid::into_serde)?;
        Ok(Condition(tests))
    }
}

/// The condition that the key's value is this one. The path of an error does not contain `eq`, because the request does not.
fn equals(value: ValueRef<'_>) -> Result<Condition, Invalid> {
    value.validate()?;
    Ok(Condition(vec![Test::Eq(value.to_owned())]))
}

/// Tests on the value of one key. All given tests must hold. If the key is absent, only `exists: false` holds.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(min_properties = 1)]
pub(crate) struct Tests<'a> {
    /// The typed form of a value has this field and the next one, and no others.
    #[serde(rename = "DataType", default, deserialize_with = "object::present")]
    #[schema(ignore)]
    data_type: Option<u64>,
    #[serde(rename = "Value", borrow, default, deserialize_with = "object::present")]
    #[schema(ignore)]
    value: Option<&'a RawValue>,
    /// The value equals this one, including its type.
    #[serde(default, deserialize_with = "object::present")]
    #[schema(nullable = false)]
    eq: Option<OwnedValue>,
    /// The value differs from this one. A value of another type differs.
    #[serde(default, deserialize_with = "object::present")]
    #[schema(nullable = false)]
    ne: Option<OwnedValue>,
    /// The value is less than this one: numbers are compared by number, strings by bytes. Values of other types never
    /// are.
    #[serde(default, deserialize_with = "object::present")]
    #[schema(nullable = false)]
    lt: Option<OwnedValue>,
    /// The value is less than or equal to this one.
    #[serde(default, deserialize_with = "object::present")]
    #[schema(nullable = false)]
    lte: Option<OwnedValue>,
    /// The value is greater than this one.
    #[serde(default, deserialize_with = "object::present")]
    #[schema(nullable = false)]
    gt: Option<OwnedValue>,
    /// The value is greater than or equal to this one.
    #[serde(default, deserialize_with = "object::present")]
    #[schema(nullable = false)]
    gte: Option<OwnedValue>,
    /// The value equals one of these.
    #[serde(rename = "in", default, deserialize_with = "object::present")]
    #[schema(nullable = false, max_items = 1024)]
    one_of: Option<Vec<OwnedValue>>,
    /// The value is a string that starts with this one.
    #[serde(default, deserialize_with = "object::present")]
    #[schema(value_type = Option<String>, nullable = false, max_length = 1024, extensions(("x-max-bytes" = json!(1024))))]
    prefix: Option<Box<str>>,
    /// `true`: the key is present. `false`: the key is absent.
    #[serde(default, deserialize_with = "object::present")]
    #[schema(nullable = false)]
    exists: Option<bool>,
}

impl<'a> Tests<'a> {
    /// The parts of a value in its typed form, if this is one.
    fn typed(&self) -> Result<Option<(u64, &'a RawValue)>, InvalidValue> {
        let Tests { data_type, value, eq, ne, lt, lte, gt, gte, one_of, prefix, exists } = self;
        let has_values = [eq, ne, lt, lte, gt, gte].iter().any(|value| value.is_some());
        let has_tests = has_values || one_of.is_some() || prefix.is_some() || exists.is_some();
        match (data_type, value) {
            (None, None) => Ok(None),
            (Some(data_type), Some(value)) if !has_tests => Ok(Some((*data_type, value))),
            _ => Err(InvalidValue::NotTyped(
                "the two fields are required, and no others are allowed".to_owned(),
            )),
        }
    }

    fn list(self) -> Vec<Test> {
        let Tests { data_type: _, value: _, eq, ne, lt, lte, gt, gte, one_of, prefix, exists } = self;
        let tests = [
            eq.map(Test::Eq),
            ne.map(Test::Ne),
            lt.map(Test::Lt),
            lte.map(Test::Lte),
            gt.map(Test::Gt),
            gte.map(Test::Gte),
            one_of.map(|values| Test::In(values.into())),
            prefix.map(Test::Prefix),
            exists.map(Test::Exists),
        ];
        tests.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, expect: Result<&str, &str>) {
        let json = format!(r#"{{"k": {json}}}"#);
        match (serde_json::from_str::<Selection>(&json), expect) {
            (Ok(found), Ok(expect)) => {
                assert_eq!(serde_json::to_string(&found).unwrap(), format!(r#"{{"k":{expect}}}"#), "{json}");
            }
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{json} gave {error}"),
            (found, _) => panic!("{json} gave {found:?}"),
        }
    }

    #[test]
    fn conditions() {
        check("1", Ok("1"));
        check("1.0", Ok("1.0"));
        check("\"x\"", Ok("\"x\""));
        check(r#"{"DataType": 0, "Value": "7"}"#, Ok("7"));
        check(r#"{"eq": {"DataType": 12, "Value": "x"}}"#, Ok("\"x\""));
        check(r#"{"in": [1, {"DataType": 11, "Value": 1}, "1"]}"#, Ok(r#"{"in":[1,1.0,"1"]}"#));
        check(r#"{"lt": 1, "gte": -1.5}"#, Ok(r#"{"lt":1,"gte":-1.5}"#));
        check(r#"{"lte": "b", "gt": "a", "ne": "x"}"#, Ok(r#"{"ne":"x","lte":"b","gt":"a"}"#));
        check(r#"{"prefix": "a\n"}"#, Ok(r#"{"prefix":"a\n"}"#));
        check(r#"{"exists": false}"#, Ok(r#"{"exists":false}"#));
        check("{}", Err("must have at least one test"));
        check(r#"{"eq": "x"}"#, Ok("\"x\""));
        check("null", Err("not null"));
        check("[]", Err("not an array"));
        check(r#"{"eq": null}"#, Err("not null"));
        check(r#"{"exists": null}"#, Err("not null"));
        check(r#"{"in": null}"#, Err("not null"));
        check(r#"{"in": 1}"#, Err("must be a list, not 1"));
        check(r#"{"prefix": 1}"#, Err("must be a string, not 1"));
        check(r#"{"exists": 1}"#, Err("must be true or false, not 1"));
        check(r#"{"like": 1}"#, Err("the field `like` is not a known field"));
        check(r#"{"eq": 1, "eq": 1}"#, Err("the field `eq` is given twice"));
        check(r#"{"eq": 18446744073709551616}"#, Err("2^63−1"));
        check(r#"{"DataType": 0}"#, Err("the two fields are required, and no others are allowed"));
        check(r#"{"Value": 0}"#, Err("the two fields are required, and no others are allowed"));
        check(
            r#"{"DataType": 0, "Value": 0, "ne": 1}"#,
            Err("the two fields are required, and no others are allowed"),
        );
        check(r#"{"DataType": 0, "Value": 256}"#, Err("a Value that fits DataType 0"));
        check(r#"{"Value": {"eq": 1}, "DataType": 0}"#, Err("a string or a number"));
    }
}
