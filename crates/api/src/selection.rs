//! Conditions on key-values, and queries made of them.

use crate::{
    JsonFault,
    key_values::{InvalidValue, KeyValue, MAX_KEYS, Text, typed_value},
    object::{self, Object, too_many_keys},
};
use alloc::borrow::Cow;
use alloc::{borrow::ToOwned, boxed::Box, vec::Vec};
use core::fmt;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, MapAccess, Visitor},
};
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// Conditions by key, in the order in which they were written. All of them must hold. A key may occur twice; the reader
/// must check that.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Selection<'a>(pub Vec<(Cow<'a, str>, Condition<'a>)>);

/// A condition on the value of one key.
#[derive(Debug, Clone, PartialEq)]
pub enum Condition<'a> {
    /// The value equals this one; short for `eq`.
    Equals(KeyValue<'a>),
    /// All of these tests hold.
    Tests(Box<Tests<'a>>),
}

/// Tests on the value of one key. All given tests must hold. If the key is absent, only `exists: false` holds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(min_properties = 1)]
pub struct Tests<'a> {
    /// The value equals this one, including its type.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub eq: Option<KeyValue<'a>>,
    /// The value differs from this one. A value of another type differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub ne: Option<KeyValue<'a>>,
    /// The value is less than this one: numbers are compared by number, strings by bytes. Values of other types never
    /// are.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub lt: Option<KeyValue<'a>>,
    /// The value is less than or equal to this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub lte: Option<KeyValue<'a>>,
    /// The value is greater than this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub gt: Option<KeyValue<'a>>,
    /// The value is greater than or equal to this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub gte: Option<KeyValue<'a>>,
    /// The value equals one of these.
    #[serde(rename = "in", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_items = 1024)]
    pub one_of: Option<Vec<KeyValue<'a>>>,
    /// The value is a string that starts with this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_length = 1024, extensions(("x-max-bytes" = json!(1024))))]
    pub prefix: Option<Cow<'a, str>>,
    /// `true`: the key is present. `false`: the key is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub exists: Option<bool>,
}

/// What a query looks for. All given fields must hold. An empty query finds everything.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Query<'a> {
    /// Conditions on the key-values of an object. For rules, only `exists` is allowed, on `group_by` keys.
    #[serde(rename = "where", borrow, default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Selection<'a>>,
    /// The object has at least this many keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_keys: Option<u32>,
    /// The object has at most this many keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_keys: Option<u32>,
    /// At least one of these queries holds. Empty or absent: no condition.
    #[serde(
        borrow,
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "object::list::<64, _, _>"
    )]
    #[schema(no_recursion, max_items = 63)]
    pub any: Vec<Query<'a>>,
    /// Every one of these queries holds.
    #[serde(
        borrow,
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "object::list::<64, _, _>"
    )]
    #[schema(no_recursion, max_items = 63)]
    pub all: Vec<Query<'a>>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Selection<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Selection<'a>, D::Error> {
        struct SelectionVisitor;

        impl<'de> Visitor<'de> for SelectionVisitor {
            type Value = Selection<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of conditions")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Selection<'de>, A::Error> {
                let mut conditions = Vec::new();
                while let Some((Text(key), condition)) = map.next_entry()? {
                    if conditions.len() == MAX_KEYS {
                        return Err(too_many_keys(MAX_KEYS));
                    }
                    conditions.push((key, condition));
                }
                Ok(Selection(conditions))
            }
        }
        deserializer.deserialize_map(SelectionVisitor)
    }
}

impl Serialize for Selection<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, condition)| (key, condition)))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Condition<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Condition<'a>, D::Error> {
        let json = <&RawValue>::deserialize(deserializer)?.get();
        if !json.starts_with('{') {
            return KeyValue::from_json(json).map(Condition::Equals).map_err(de::Error::custom);
        }
        let Object(members): Object<Members<'a>> = serde_json::from_str(json).map_err(|error| {
            de::Error::custom(format_args!("is not a valid condition: {}", JsonFault::of(&error)))
        })?;
        members.condition().map_err(de::Error::custom)
    }
}

/// All fields that a condition can have: tests, or a value in its typed form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Members<'a> {
    #[serde(rename = "DataType", default, deserialize_with = "object::present")]
    data_type: Option<u64>,
    #[serde(rename = "Value", borrow, default, deserialize_with = "object::present")]
    value: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "object::present")]
    eq: Option<KeyValue<'a>>,
    #[serde(borrow, default, deserialize_with = "object::present")]
    ne: Option<KeyValue<'a>>,
    #[serde(borrow, default, deserialize_with = "object::present")]
    lt: Option<KeyValue<'a>>,
    #[serde(borrow, default, deserialize_with = "object::present")]
    lte: Option<KeyValue<'a>>,
    #[serde(borrow, default, deserialize_with = "object::present")]
    gt: Option<KeyValue<'a>>,
    #[serde(borrow, default, deserialize_with = "object::present")]
    gte: Option<KeyValue<'a>>,
    #[serde(rename = "in", borrow, default, deserialize_with = "object::present")]
    one_of: Option<Vec<KeyValue<'a>>>,
    #[serde(borrow, default, deserialize_with = "object::present")]
    prefix: Option<Text<'a>>,
    #[serde(default, deserialize_with = "object::present")]
    exists: Option<bool>,
}

impl<'a> Members<'a> {
    fn condition(self) -> Result<Condition<'a>, InvalidValue> {
        let Members { data_type, value, eq, ne, lt, lte, gt, gte, one_of, prefix, exists } = self;
        let prefix = prefix.map(|Text(prefix)| prefix);
        let tests = Tests { eq, ne, lt, lte, gt, gte, one_of, prefix, exists };
        match (data_type, value) {
            (None, None) => Ok(Condition::Tests(Box::new(tests))),
            (Some(data_type), Some(value)) if tests == Tests::default() => {
                typed_value(data_type, value.get()).map(Condition::Equals)
            }
            _ => Err(InvalidValue::NotTyped(
                "the two fields are required, and no others are allowed".to_owned(),
            )),
        }
    }
}

impl Serialize for Condition<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Condition::Equals(value) => value.serialize(serializer),
            Condition::Tests(tests) => tests.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, expect: Result<&str, &str>) {
        let json = format!(r#"{{"k": {json}}}"#);
        match (serde_json::from_str::<Selection<'_>>(&json), expect) {
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
        check(r#"{"eq": {"DataType": 12, "Value": "x"}}"#, Ok(r#"{"eq":"x"}"#));
        check(r#"{"in": [1, {"DataType": 11, "Value": 1}, "1"]}"#, Ok(r#"{"in":[1,1.0,"1"]}"#));
        check(r#"{"lt": 1, "gte": -1.5}"#, Ok(r#"{"lt":1,"gte":-1.5}"#));
        check(r#"{"lte": "b", "gt": "a", "ne": "x"}"#, Ok(r#"{"ne":"x","lte":"b","gt":"a"}"#));
        check(r#"{"prefix": "a\n"}"#, Ok(r#"{"prefix":"a\n"}"#));
        check(r#"{"exists": false}"#, Ok(r#"{"exists":false}"#));
        check("{}", Ok("{}"));
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
