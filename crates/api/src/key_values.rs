//! Key-values: they identify what a limit or a lock applies to.

use crate::{JsonFault, object::too_many_keys};
use alloc::borrow::Cow;
use alloc::{borrow::ToOwned, string::String, string::ToString, vec::Vec};
use core::fmt;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// The maximum number of keys in key-values and in a selection. Reading stops at the first key beyond that.
pub(crate) const MAX_KEYS: usize = 64;

/// Values by key, in the order in which they were written. A key may occur twice; the reader must check that.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KeyValues<'a>(pub Vec<(Cow<'a, str>, KeyValue<'a>)>);

/// A value. The type is part of the value: `1`, `1.0`, `"1"` and `true` are four different values.
#[derive(Debug, Clone, PartialEq)]
pub enum KeyValue<'a> {
    /// A string.
    String(Cow<'a, str>),
    /// A number that is written without a point and without an exponent.
    Integer(i64),
    /// Any other number. It is finite.
    Float(f64),
    /// `true` or `false`.
    Boolean(bool),
}

impl<'de: 'a, 'a> Deserialize<'de> for KeyValues<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<KeyValues<'a>, D::Error> {
        struct KeyValuesVisitor;

        impl<'de> Visitor<'de> for KeyValuesVisitor {
            type Value = KeyValues<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of key-values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<KeyValues<'de>, A::Error> {
                let mut pairs = Vec::with_capacity(4);
                while let Some((Text(key), value)) = map.next_entry()? {
                    if pairs.len() == MAX_KEYS {
                        return Err(too_many_keys(MAX_KEYS));
                    }
                    pairs.push((key, value));
                }
                Ok(KeyValues(pairs))
            }
        }
        deserializer.deserialize_map(KeyValuesVisitor)
    }
}

impl Serialize for KeyValues<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

/// A string that is copied only if it was written with escapes.
pub(crate) struct Text<'a>(pub(crate) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text<'a>, D::Error> {
        struct TextVisitor;

        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// Reads the raw text of the number, because serde_json returns integers beyond 64 bits as floats.
impl<'de: 'a, 'a> Deserialize<'de> for KeyValue<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<KeyValue<'a>, D::Error> {
        let json = <&RawValue>::deserialize(deserializer)?;
        KeyValue::from_json(json.get()).map_err(de::Error::custom)
    }
}

impl<'a> KeyValue<'a> {
    /// `json` must be a well-formed JSON value without whitespace around it.
    pub(crate) fn from_json(json: &'a str) -> Result<KeyValue<'a>, InvalidValue> {
        match json.as_bytes().first() {
            Some(b'"') => text(json).map(KeyValue::String),
            Some(b'-' | b'0'..=b'9') => number(json),
            Some(b't') => Ok(KeyValue::Boolean(true)),
            Some(b'f') => Ok(KeyValue::Boolean(false)),
            Some(b'{') => {
                let typed: Typed<'a> = serde_json::from_str(json)
                    .map_err(|error| InvalidValue::NotTyped(JsonFault::of(&error).to_string()))?;
                typed.value()
            }
            Some(b'[') => Err(InvalidValue::Kind("an array")),
            _ => Err(InvalidValue::Kind("null")),
        }
    }
}

/// The content of a JSON string.
pub(crate) fn text(json: &str) -> Result<Cow<'_, str>, InvalidValue> {
    let inner = &json[1..json.len() - 1];
    if inner.contains('\\') {
        // An escape of half a surrogate pair is well-formed JSON, but not a valid string.
        serde_json::from_str(json).map(Cow::Owned).map_err(|_| InvalidValue::NotText)
    } else {
        Ok(Cow::Borrowed(inner))
    }
}

fn number<'a>(json: &str) -> Result<KeyValue<'a>, InvalidValue> {
    if json.contains(['.', 'e', 'E']) {
        let number = json.parse().ok().filter(|number: &f64| number.is_finite());
        number.map(KeyValue::Float).ok_or(InvalidValue::FloatRange)
    } else {
        json.parse().map(KeyValue::Integer).map_err(|_| InvalidValue::IntegerRange)
    }
}

/// The typed form of a value: `{"DataType": 12, "Value": "string1"}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Typed<'a> {
    #[serde(rename = "DataType")]
    data_type: u64,
    #[serde(rename = "Value", borrow)]
    value: &'a RawValue,
}

impl<'a> Typed<'a> {
    fn value(self) -> Result<KeyValue<'a>, InvalidValue> {
        typed_value(self.data_type, self.value.get())
    }
}

/// Reads the typed form of a value. `json` is the raw JSON of its `Value`.
pub(crate) fn typed_value(data_type: u64, json: &str) -> Result<KeyValue<'_>, InvalidValue> {
    let given = match json.as_bytes().first() {
        Some(b'"') => text(json)?,
        Some(b'-' | b'0'..=b'9') if data_type != 12 => Cow::Borrowed(json),
        _ => return Err(InvalidValue::TypedKind(data_type)),
    };
    let integer = |least: i64, most: i64| {
        let number = given.parse().ok().filter(|number| (least..=most).contains(number));
        number.map(KeyValue::Integer).ok_or(InvalidValue::OutOfType(data_type))
    };
    let float = |most: f64| {
        let number = given.parse().ok().filter(|number: &f64| number.is_finite() && number.abs() <= most);
        number.map(KeyValue::Float).ok_or(InvalidValue::OutOfType(data_type))
    };
    match data_type {
        0 => integer(0, u8::MAX.into()),
        1 => integer(0, u16::MAX.into()),
        2 => integer(0, u32::MAX.into()),
        3 | 4 => integer(0, i64::MAX),
        5 => integer(i8::MIN.into(), i8::MAX.into()),
        6 => integer(i16::MIN.into(), i16::MAX.into()),
        7 => integer(i32::MIN.into(), i32::MAX.into()),
        8 | 9 => integer(i64::MIN, i64::MAX),
        10 => float(f32::MAX.into()),
        11 => float(f64::MAX),
        12 => Ok(KeyValue::String(given)),
        _ => Err(InvalidValue::UnknownType(data_type)),
    }
}

/// Why something is not a [`KeyValue`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InvalidValue {
    Kind(&'static str),
    NotText,
    IntegerRange,
    FloatRange,
    NotTyped(String),
    UnknownType(u64),
    TypedKind(u64),
    OutOfType(u64),
}

impl fmt::Display for InvalidValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidValue::Kind(found) => write!(f, "must be a string, a number or a boolean, not {found}"),
            InvalidValue::NotText => f.write_str("must not contain an escape of half a surrogate pair"),
            InvalidValue::IntegerRange => {
                f.write_str("must be an integer from −2^63 to 2^63−1; a float needs a point or an exponent")
            }
            InvalidValue::FloatRange => f.write_str("must be a number that fits into a 64-bit float"),
            InvalidValue::NotTyped(why) => {
                write!(f, "must be {{\"DataType\": …, \"Value\": …}} if it is an object: {why}")
            }
            InvalidValue::UnknownType(data_type) => write!(
                f,
                "must have a DataType from 0 to 12, not {data_type}: \
                 0–4 are unsigned integers, 5–9 signed integers, 10 and 11 floats, 12 strings"
            ),
            InvalidValue::TypedKind(12) => f.write_str("must have a string as Value, because DataType is 12"),
            InvalidValue::TypedKind(data_type) => {
                write!(f, "must have a string or a number as Value, because DataType is {data_type}")
            }
            InvalidValue::OutOfType(data_type @ 3..=4) => {
                write!(f, "must have a Value that fits DataType {data_type} and is at most 2^63−1")
            }
            InvalidValue::OutOfType(data_type) => {
                write!(f, "must have a Value that fits DataType {data_type}")
            }
        }
    }
}

impl Serialize for KeyValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            KeyValue::String(text) => serializer.serialize_str(text),
            KeyValue::Integer(number) => serializer.serialize_i64(*number),
            KeyValue::Float(number) => serializer.serialize_f64(*number),
            KeyValue::Boolean(flag) => serializer.serialize_bool(*flag),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, expect: Result<&str, &str>) {
        let json = format!(r#"{{"k": {json}}}"#);
        match (serde_json::from_str::<KeyValues<'_>>(&json), expect) {
            (Ok(found), Ok(expect)) => {
                assert_eq!(serde_json::to_string(&found).unwrap(), format!(r#"{{"k":{expect}}}"#), "{json}");
            }
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{json} gave {error}"),
            (found, _) => panic!("{json} gave {found:?}"),
        }
    }

    #[test]
    fn plain_values() {
        check(r#""string1""#, Ok(r#""string1""#));
        check(r#""""#, Ok(r#""""#));
        check(r#""\u00e9\n\"\\ 🌮""#, Ok(r#""é\n\"\\ 🌮""#));
        check("1", Ok("1"));
        check("-0", Ok("0"));
        check("1.0", Ok("1.0"));
        check("1e3", Ok("1000.0"));
        check("1E-2", Ok("0.01"));
        check("0.1", Ok("0.1"));
        check("1.7976931348623157e308", Ok("1.7976931348623157e+308"));
        check("1e20", Ok("1e+20"));
        check("true", Ok("true"));
        check("false", Ok("false"));
        check("9223372036854775807", Ok("9223372036854775807"));
        check("-9223372036854775808", Ok("-9223372036854775808"));
        check("9223372036854775808", Err("2^63−1"));
        check("-9223372036854775809", Err("2^63−1"));
        check("18446744073709551616", Err("2^63−1"));
        check("100000000000000000000000000000", Err("2^63−1"));
        check("1e999", Err("fits into a 64-bit float"));
        check("null", Err("not null"));
        check("[1]", Err("not an array"));
        check("{}", Err("the field `DataType` is required"));
        check(r#"{"a": 1}"#, Err("the field `a` is not a known field"));
        check(r#""\ud800""#, Err(""));
        check("01", Err(""));
        check("nul", Err(""));
    }

    #[test]
    fn typed_values() {
        let typed = |data_type: u64, value: &str| format!(r#"{{"DataType": {data_type}, "Value": {value}}}"#);
        let ok = |data_type, value: &str, expect: &str| check(&typed(data_type, value), Ok(expect));
        let err = |data_type, value: &str, part: &str| check(&typed(data_type, value), Err(part));
        for (data_type, least, most) in [
            (0, "0", "255"),
            (1, "0", "65535"),
            (2, "0", "4294967295"),
            (3, "0", "9223372036854775807"),
            (4, "0", "9223372036854775807"),
            (5, "-128", "127"),
            (6, "-32768", "32767"),
            (7, "-2147483648", "2147483647"),
            (8, "-9223372036854775808", "9223372036854775807"),
            (9, "-9223372036854775808", "9223372036854775807"),
        ] {
            for bound in [least, most] {
                ok(data_type, bound, bound);
                ok(data_type, &format!("\"{bound}\""), bound);
            }
            let below = (least.parse::<i128>().unwrap() - 1).to_string();
            let above = (most.parse::<i128>().unwrap() + 1).to_string();
            for beyond in [below, above] {
                err(data_type, &beyond, "a Value that fits DataType");
                err(data_type, &format!("\"{beyond}\""), "a Value that fits DataType");
            }
            err(data_type, "1.0", "a Value that fits DataType");
            err(data_type, "\"x\"", "a Value that fits DataType");
            err(data_type, "\"\"", "a Value that fits DataType");
            err(data_type, "true", "a string or a number as Value");
        }
        ok(10, "0.1", "0.1");
        ok(10, "\"1.5\"", "1.5");
        ok(10, "2", "2.0");
        ok(11, "1e300", "1e+300");
        err(10, "1e300", "a Value that fits DataType");
        err(11, "1e999", "a Value that fits DataType");
        err(11, "\"NaN\"", "a Value that fits DataType");
        err(11, "\"inf\"", "a Value that fits DataType");
        ok(12, "\"string1\"", "\"string1\"");
        ok(12, "\"a\\nb\"", "\"a\\nb\"");
        err(12, "5", "must have a string as Value");
        err(13, "5", "from 0 to 12, not 13");
        check(r#"{"Value": "5", "DataType": 12}"#, Ok("\"5\""));
        check(r#"{"DataType": 12}"#, Err("the field `Value` is required"));
        check(
            r#"{"DataType": "12", "Value": "x"}"#,
            Err("must be an integer from 0 to 2^64−1, not the string"),
        );
        check(r#"{"DataType": 12, "Value": "x", "more": 1}"#, Err("the field `more` is not a known field"));
        check(
            r#"{"DataType": 12, "DataType": 12, "Value": "x"}"#,
            Err("the field `DataType` is given twice"),
        );
        check(
            r#"{"DataType": 12, "Value": {"DataType": 12, "Value": "x"}}"#,
            Err("must have a string as Value"),
        );
    }

    #[test]
    fn keys_are_kept_as_they_are_written() {
        let found: KeyValues<'_> = serde_json::from_str(r#"{"b": 1, "a": 2, "b": 3, "\u0061": 4}"#).unwrap();
        let keys: Vec<&str> = found.0.iter().map(|(key, _)| &**key).collect();
        assert_eq!(keys, ["b", "a", "b", "a"]);
        assert!(matches!(found.0[0].0, Cow::Borrowed(_)));
    }
}
