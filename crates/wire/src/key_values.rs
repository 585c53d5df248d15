//! Key-values: what limits and locks are about.

use crate::object::too_many_keys;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, MapAccess, Visitor},
};
use serde_json::value::RawValue;
use std::{borrow::Cow, fmt};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        RefOr, Schema,
        schema::{AdditionalProperties, ObjectBuilder, OneOfBuilder, Type},
    },
};

/// The most keys of key-values, and of a selection. Reading stops at the first key beyond that.
pub(crate) const MAX_KEYS: usize = 64;

/// Values by key, in the order in which they were written. A key may stand twice: whoever takes them has to look.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KeyValues<'a>(pub Vec<(Cow<'a, str>, KeyValue<'a>)>);

/// A value. Its type is part of it: `1`, `1.0`, `"1"` and `true` are four different ones.
#[derive(Debug, Clone, PartialEq)]
pub enum KeyValue<'a> {
    /// A text.
    String(Cow<'a, str>),
    /// A whole number, written without a point and without an exponent.
    Integer(i64),
    /// Any other number; finite.
    Float(f64),
    /// Yes or no.
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

/// A text that is copied only where it was written with escapes.
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

/// The text of the JSON is looked at, since a parser gives integers beyond 64 bits as floats.
impl<'de: 'a, 'a> Deserialize<'de> for KeyValue<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<KeyValue<'a>, D::Error> {
        let json = <&RawValue>::deserialize(deserializer)?;
        KeyValue::from_json(json.get()).map_err(de::Error::custom)
    }
}

impl<'a> KeyValue<'a> {
    /// Takes the text of a JSON value that is known to be well-formed, without space around it.
    pub(crate) fn from_json(json: &'a str) -> Result<KeyValue<'a>, InvalidValue> {
        match json.as_bytes().first() {
            Some(b'"') => text(json).map(KeyValue::String),
            Some(b'-' | b'0'..=b'9') => number(json),
            Some(b't') => Ok(KeyValue::Boolean(true)),
            Some(b'f') => Ok(KeyValue::Boolean(false)),
            Some(b'{') => {
                let typed: Typed<'a> =
                    serde_json::from_str(json).map_err(|error| InvalidValue::NotTyped(reason(&error)))?;
                typed.value()
            }
            Some(b'[') => Err(InvalidValue::Kind("an array")),
            _ => Err(InvalidValue::Kind("null")),
        }
    }
}

/// Without the place, which would be one within the value alone.
pub(crate) fn reason(error: &serde_json::Error) -> String {
    let message = error.to_string();
    message.rsplit_once(" at line ").map_or(message.as_str(), |(reason, _)| reason).to_owned()
}

/// The content of a JSON string.
pub(crate) fn text(json: &str) -> Result<Cow<'_, str>, InvalidValue> {
    let inner = &json[1..json.len() - 1];
    if inner.contains('\\') {
        // Half a surrogate pair is well-formed JSON, and no text.
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

/// Takes the two members of the typed form, the second as JSON.
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
            InvalidValue::Kind(found) => {
                write!(f, "a value is a string, a number or a boolean, and not {found}")
            }
            InvalidValue::NotText => f.write_str("the string's escapes are not Unicode"),
            InvalidValue::IntegerRange => f.write_str("an integer must fit into 64 bits with a sign"),
            InvalidValue::FloatRange => f.write_str("the number is out of range"),
            InvalidValue::NotTyped(why) => {
                write!(f, "an object is a value only as {{\"DataType\": …, \"Value\": …}}: {why}")
            }
            InvalidValue::UnknownType(data_type) => {
                write!(
                    f,
                    "there is no DataType {data_type}: 0–4 are unsigned integers, 5–9 signed ones, 10 and 11 floats, 12 strings"
                )
            }
            InvalidValue::TypedKind(12) => f.write_str("with DataType 12 the Value must be a string"),
            InvalidValue::TypedKind(data_type) => {
                write!(f, "with DataType {data_type} the Value must be a string or a number")
            }
            InvalidValue::OutOfType(data_type) => {
                write!(
                    f,
                    "the Value is not within what DataType {data_type} holds, or not within 64 bits with a sign"
                )
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

impl PartialSchema for KeyValue<'_> {
    fn schema() -> RefOr<Schema> {
        let typed = ObjectBuilder::new()
            .property("DataType", ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).maximum(Some(12)))
            .property("Value", OneOfBuilder::new()
                .item(ObjectBuilder::new().schema_type(Type::String))
                .item(ObjectBuilder::new().schema_type(Type::Number)))
            .required("DataType")
            .required("Value")
            .additional_properties(Some(AdditionalProperties::FreeForm(false)))
            .description(Some(
                "Only in requests. 0–4: unsigned integers of 8, 16, 32, 64 bits and machine size; 5–9: signed ones; \
                 10 and 11: floats of 32 and 64 bits; 12: string.",
            ));
        OneOfBuilder::new()
            .item(ObjectBuilder::new().schema_type(Type::String))
            .item(
                ObjectBuilder::new()
                    .schema_type(Type::Number)
                    .description(Some("Without a point and an exponent an integer of 64 bits, else a float.")),
            )
            .item(ObjectBuilder::new().schema_type(Type::Boolean))
            .item(typed)
            .description(Some(
                "A string of up to 1,024 bytes, an integer, a float or a boolean. The type is part of the value.",
            ))
            .into()
    }
}

impl ToSchema for KeyValue<'_> {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("KeyValue")
    }
}

impl PartialSchema for KeyValues<'_> {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .additional_properties(Some(AdditionalProperties::RefOr(RefOr::Ref(
                utoipa::openapi::Ref::from_schema_name("KeyValue"),
            ))))
            .description(Some("At most 64 keys of 1–256 bytes."))
            .examples([serde_json::json!({"card": "4711", "attempt": 3})])
            .into()
    }
}

impl ToSchema for KeyValues<'_> {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("KeyValues")
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push(("KeyValue".to_owned(), KeyValue::schema()));
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
        check("9223372036854775808", Err("64 bits"));
        check("-9223372036854775809", Err("64 bits"));
        check("18446744073709551616", Err("64 bits"));
        check("100000000000000000000000000000", Err("64 bits"));
        check("1e999", Err("out of range"));
        check("null", Err("not null"));
        check("[1]", Err("not an array"));
        check("{}", Err("missing field"));
        check(r#"{"a": 1}"#, Err("unknown field"));
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
                err(data_type, &beyond, "not within");
                err(data_type, &format!("\"{beyond}\""), "not within");
            }
            err(data_type, "1.0", "not within");
            err(data_type, "\"x\"", "not within");
            err(data_type, "\"\"", "not within");
            err(data_type, "true", "a string or a number");
        }
        ok(10, "0.1", "0.1");
        ok(10, "\"1.5\"", "1.5");
        ok(10, "2", "2.0");
        ok(11, "1e300", "1e+300");
        err(10, "1e300", "not within");
        err(11, "1e999", "not within");
        err(11, "\"NaN\"", "not within");
        err(11, "\"inf\"", "not within");
        ok(12, "\"string1\"", "\"string1\"");
        ok(12, "\"a\\nb\"", "\"a\\nb\"");
        err(12, "5", "must be a string");
        err(13, "5", "no DataType 13");
        check(r#"{"Value": "5", "DataType": 12}"#, Ok("\"5\""));
        check(r#"{"DataType": 12}"#, Err("missing field `Value`"));
        check(r#"{"DataType": "12", "Value": "x"}"#, Err("invalid type"));
        check(r#"{"DataType": 12, "Value": "x", "more": 1}"#, Err("unknown field"));
        check(r#"{"DataType": 12, "DataType": 12, "Value": "x"}"#, Err("duplicate field"));
        check(r#"{"DataType": 12, "Value": {"DataType": 12, "Value": "x"}}"#, Err("must be a string"));
    }

    #[test]
    fn keys_are_kept_as_they_are_written() {
        let found: KeyValues<'_> = serde_json::from_str(r#"{"b": 1, "a": 2, "b": 3, "\u0061": 4}"#).unwrap();
        let keys: Vec<&str> = found.0.iter().map(|(key, _)| &**key).collect();
        assert_eq!(keys, ["b", "a", "b", "a"]);
        assert!(matches!(found.0[0].0, Cow::Borrowed(_)));
    }
}
