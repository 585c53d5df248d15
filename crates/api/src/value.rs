//! The value of a key, and the JSON that it is read from.

use crate::{Invalid, JsonFault, Reason, invalid::check_bytes, key_values::KeyValues, raw::Raw};
use alloc::{
    borrow::Cow,
    boxed::Box,
    string::{String, ToString},
};
use core::{cmp::Ordering, fmt};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::value::RawValue;

/// A value. The type is part of the value: `1`, `1.0`, `"1"` and `true` are four different values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<S> {
    /// A string.
    String(S),
    /// A number that JSON writes without a point and without an exponent.
    Integer(i64),
    /// Any other number. It is neither infinite nor NaN nor −0.0.
    Float(f64),
    /// `true` or `false`.
    Boolean(bool),
}

/// A value that owns its text.
pub type OwnedValue = Value<Box<str>>;

/// A value within [`KeyValues`].
pub type ValueRef<'a> = Value<&'a str>;

impl<S> Value<S> {
    /// The same value with another type of text.
    fn map_text<T>(self, text: impl FnOnce(S) -> T) -> Value<T> {
        match self {
            Value::String(string) => Value::String(text(string)),
            Value::Integer(number) => Value::Integer(number),
            Value::Float(number) => Value::Float(number),
            Value::Boolean(flag) => Value::Boolean(flag),
        }
    }
}

impl<S: AsRef<str>> Value<S> {
    /// The same value without owning its text.
    #[inline]
    pub fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Value::String(text) => Value::String(text.as_ref()),
            Value::Integer(number) => Value::Integer(*number),
            Value::Float(number) => Value::Float(*number),
            Value::Boolean(flag) => Value::Boolean(*flag),
        }
    }
}

impl ValueRef<'_> {
    /// Checks a value that has no key, such as one in a condition. The field is empty: the caller names it.
    pub fn validate(self) -> Result<(), Invalid> {
        match self {
            Value::String(text) => check_bytes("", text, 0..=KeyValues::MAX_STRING_BYTES),
            Value::Float(number) if !number.is_finite() => Err(Invalid::new("", Reason::NotFinite)),
            Value::Float(_) | Value::Integer(_) | Value::Boolean(_) => Ok(()),
        }
    }

    /// Numbers compare as numbers, whatever their type, and texts by their bytes. Nothing else has an order.
    pub fn order(self, other: ValueRef<'_>) -> Option<Ordering> {
        match (self, other) {
            (Value::String(a), Value::String(b)) => Some(a.as_bytes().cmp(b.as_bytes())),
            (Value::Integer(a), Value::Integer(b)) => Some(a.cmp(&b)),
            (Value::Float(a), Value::Float(b)) => a.partial_cmp(&b),
            (Value::Integer(a), Value::Float(b)) => Some(order_exactly(a, b)),
            (Value::Float(a), Value::Integer(b)) => Some(order_exactly(b, a).reverse()),
            _ => None,
        }
    }

    /// An order of all values: first by type, then within the type. Values are equal in this order exactly if `==` says so.
    pub(crate) fn total_order(self, other: ValueRef<'_>) -> Ordering {
        let tag = |value: ValueRef<'_>| match value {
            Value::String(_) => 0,
            Value::Integer(_) => 1,
            Value::Float(_) => 2,
            Value::Boolean(_) => 3,
        };
        match (self, other) {
            (Value::String(a), Value::String(b)) => a.cmp(b),
            (Value::Integer(a), Value::Integer(b)) => a.cmp(&b),
            // Adding 0.0 turns −0.0 into 0.0.
            (Value::Float(a), Value::Float(b)) => (a + 0.0).total_cmp(&(b + 0.0)),
            (Value::Boolean(a), Value::Boolean(b)) => a.cmp(&b),
            _ => tag(self).cmp(&tag(other)),
        }
    }

    /// Whether [`KeyValues::new`] would store exactly this value.
    pub(crate) fn is_storable(self) -> bool {
        match self {
            Value::String(text) => text.len() <= KeyValues::MAX_STRING_BYTES,
            Value::Float(number) => number.is_finite() && (number != 0.0 || number.is_sign_positive()),
            Value::Integer(_) | Value::Boolean(_) => true,
        }
    }

    /// The same value with a text of its own.
    pub fn to_owned(self) -> OwnedValue {
        self.map_text(Into::into)
    }
}

/// Without rounding the integer, as a conversion to a float would.
fn order_exactly(integer: i64, float: f64) -> Ordering {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if float >= LIMIT {
        return Ordering::Less;
    }
    if float < -LIMIT {
        return Ordering::Greater;
    }
    // Within these bounds the cast cuts off the fraction and does nothing else.
    let whole = float as i64;
    let fraction = float - whole as f64;
    let by_fraction = if fraction > 0.0 {
        Ordering::Less
    } else if fraction < 0.0 {
        Ordering::Greater
    } else {
        Ordering::Equal
    };
    integer.cmp(&whole).then(by_fraction)
}

/// JSON is read from the raw text of the value, because serde_json returns integers beyond 64 bits as floats. The length of a
/// string is not checked: [`KeyValues`] and [`Selection`](crate::Selection) check it, and know the field.
impl<'de, S: Deserialize<'de> + From<Cow<'de, str>>> Deserialize<'de> for Value<S> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Value<S>, D::Error> {
        /// The same variants, as nodes send them and as the store has them.
        #[derive(Deserialize)]
        enum Encoded<S> {
            String(S),
            Integer(i64),
            Float(f64),
            Boolean(bool),
        }
        if deserializer.is_human_readable() {
            let value = match Raw::deserialize(deserializer)?.0 {
                Cow::Borrowed(json) => from_json(json).map(|value| value.map_text(S::from)),
                Cow::Owned(json) => from_json(&json)
                    .map(|value| value.map_text(|text| S::from(Cow::Owned(text.into_owned())))),
            };
            return value.map_err(de::Error::custom);
        }
        match Encoded::deserialize(deserializer)? {
            Encoded::String(text) => Ok(Value::String(text)),
            Encoded::Integer(number) => Ok(Value::Integer(number)),
            Encoded::Float(number) if number.is_finite() => Ok(Value::Float(number + 0.0)),
            Encoded::Float(_) => Err(de::Error::custom("not a finite number")),
            Encoded::Boolean(flag) => Ok(Value::Boolean(flag)),
        }
    }
}

impl<S: Serialize> Serialize for Value<S> {
    fn serialize<R: Serializer>(&self, serializer: R) -> Result<R::Ok, R::Error> {
        const NAME: &str = "Value";
        let is_json = serializer.is_human_readable();
        match self {
            Value::String(text) if is_json => text.serialize(serializer),
            Value::Integer(number) if is_json => serializer.serialize_i64(*number),
            Value::Float(number) if is_json => serializer.serialize_f64(*number),
            Value::Boolean(flag) if is_json => serializer.serialize_bool(*flag),
            Value::String(text) => serializer.serialize_newtype_variant(NAME, 0, "String", text),
            Value::Integer(number) => serializer.serialize_newtype_variant(NAME, 1, "Integer", number),
            Value::Float(number) => serializer.serialize_newtype_variant(NAME, 2, "Float", number),
            Value::Boolean(flag) => serializer.serialize_newtype_variant(NAME, 3, "Boolean", flag),
        }
    }
}

/// `json` must be a well-formed JSON value without whitespace around it.
pub(crate) fn from_json(json: &str) -> Result<Value<Cow<'_, str>>, InvalidValue> {
    match json.as_bytes().first() {
        Some(b'"') => text(json).map(Value::String),
        Some(b'-' | b'0'..=b'9') => number(json),
        Some(b't') => Ok(Value::Boolean(true)),
        Some(b'f') => Ok(Value::Boolean(false)),
        Some(b'{') => {
            let typed: Typed<'_> = serde_json::from_str(json)
                .map_err(|error| InvalidValue::NotTyped(JsonFault::of(&error).to_string()))?;
            typed.value()
        }
        Some(b'[') => Err(InvalidValue::Kind("an array")),
        _ => Err(InvalidValue::Kind("null")),
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

fn number<'a>(json: &str) -> Result<Value<Cow<'a, str>>, InvalidValue> {
    if json.contains(['.', 'e', 'E']) {
        let number = json.parse().ok().filter(|number: &f64| number.is_finite());
        // Adding 0.0 turns −0.0 into 0.0.
        number.map(|number| Value::Float(number + 0.0)).ok_or(InvalidValue::FloatRange)
    } else {
        json.parse().map(Value::Integer).map_err(|_| InvalidValue::IntegerRange)
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
    fn value(self) -> Result<Value<Cow<'a, str>>, InvalidValue> {
        typed_value(self.data_type, self.value.get())
    }
}

/// Reads the typed form of a value. `json` is the raw JSON of its `Value`.
pub(crate) fn typed_value(data_type: u64, json: &str) -> Result<Value<Cow<'_, str>>, InvalidValue> {
    let given = match json.as_bytes().first() {
        Some(b'"') => text(json)?,
        Some(b'-' | b'0'..=b'9') if data_type != 12 => Cow::Borrowed(json),
        _ => return Err(InvalidValue::TypedKind(data_type)),
    };
    let integer = |least: i64, most: i64| {
        let number = given.parse().ok().filter(|number| (least..=most).contains(number));
        number.map(Value::Integer).ok_or(InvalidValue::OutOfType(data_type))
    };
    let float = |most: f64| {
        let number = given.parse().ok().filter(|number: &f64| number.is_finite() && number.abs() <= most);
        number.map(|number| Value::Float(number + 0.0)).ok_or(InvalidValue::OutOfType(data_type))
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
        12 => Ok(Value::String(given)),
        _ => Err(InvalidValue::UnknownType(data_type)),
    }
}

/// Why something is not a [`Value`].
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

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, expect: Result<&str, &str>) {
        let json = format!(r#"{{"k": {json}}}"#);
        match (serde_json::from_str::<KeyValues>(&json), expect) {
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
}
