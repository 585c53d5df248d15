//! What is wrong with JSON that does not fit its type, in the words of the API instead of serde's.

use alloc::{borrow::ToOwned, format, string::String, string::ToString, vec::Vec};
use core::fmt;

/// Why JSON was not accepted.
///
/// Its `Display` text names the field: "the field `limit` is required". [`reason`](JsonFault::reason) is only the predicate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JsonFault {
    /// The text is not JSON. Contains the parser's message, with line and column.
    Syntax(String),
    /// A required field is absent. serde reports it as an error of the object that lacks the field.
    Missing(String),
    /// A field is given twice. serde reports it as an error of the object that has the field.
    Repeated(String),
    /// The object has no field of this name. serde reports it as an error of the field itself.
    Unknown {
        /// The name that the client sent.
        name: String,
        /// The names of the object's fields in backquotes, separated by commas; `None` if it has no fields.
        known: Option<String>,
    },
    /// A value is wrong. Contains a predicate, such as "must be an integer".
    Value(String),
    /// A value within this one is wrong.
    Within {
        /// The path of the wrong value, such as `in[3]`.
        field: String,
        /// A predicate, such as "must not have more than 1024 bytes".
        reason: String,
    },
}

impl JsonFault {
    /// Takes the message of the error apart, because serde_json does not expose its parts.
    pub fn of(error: &serde_json::Error) -> JsonFault {
        let message = error.to_string();
        let text = match message.rsplit_once(" at line ") {
            Some((text, _position)) if error.line() > 0 => text,
            _ => &message,
        };
        if text == "number out of range" {
            return JsonFault::Value("must be a number that fits into 64 bits".to_owned());
        }
        if error.is_syntax() || error.is_eof() {
            return JsonFault::Syntax(format!("{text} (line {}, column {})", error.line(), error.column()));
        }
        let quoted = |prefix: &str| text.strip_prefix(prefix)?.strip_suffix('`').map(str::to_owned);
        if let Some(name) = quoted("missing field `") {
            return JsonFault::Missing(name);
        }
        if let Some(name) = quoted("duplicate field `") {
            return JsonFault::Repeated(name);
        }
        if let Some(rest) = text.strip_prefix("unknown field `") {
            return unknown_field(rest);
        }
        let within = text.strip_prefix("invalid field `").and_then(|rest| rest.split_once("`: "));
        if let Some((field, reason)) = within {
            return JsonFault::Within { field: field.to_owned(), reason: reason.to_owned() };
        }
        let wrong = text.strip_prefix("invalid type: ").or_else(|| text.strip_prefix("invalid value: "));
        JsonFault::Value(match wrong.and_then(|rest| rest.rsplit_once(", expected ")) {
            Some((found, expected)) => format!("must be {}, not {}", type_name(expected), value_name(found)),
            None => text.to_owned(),
        })
    }

    /// What is wrong, as a predicate of the field or of the body: "must be an integer", "is required".
    pub fn reason(&self) -> String {
        match self {
            JsonFault::Syntax(message) => format!("is not valid JSON: {message}"),
            JsonFault::Missing(_) => "is required".to_owned(),
            JsonFault::Repeated(_) => "is given twice".to_owned(),
            JsonFault::Unknown { .. } => "is not a known field".to_owned(),
            JsonFault::Value(reason) | JsonFault::Within { reason, .. } => reason.clone(),
        }
    }
}

impl fmt::Display for JsonFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JsonFault::Missing(name)
            | JsonFault::Repeated(name)
            | JsonFault::Unknown { name, .. }
            | JsonFault::Within { field: name, .. } => {
                write!(f, "the field `{name}` {}", self.reason())
            }
            JsonFault::Syntax(_) | JsonFault::Value(_) => f.write_str(&self.reason()),
        }
    }
}

/// Takes the rest of serde's message, after the opening backquote: "x`, expected one of `a`, `b`, `c`".
fn unknown_field(rest: &str) -> JsonFault {
    match rest.rsplit_once("`, expected ") {
        Some((name, known)) => {
            let known = known.strip_prefix("one of ").unwrap_or(known).replace("` or `", "`, `");
            let names: Vec<&str> = known.split(", ").collect();
            let is_recommended = |name: &&&str| !is_alias(name) && !is_in_millis(name, &names);
            let known = names.iter().filter(is_recommended).copied().collect::<Vec<_>>().join(", ");
            JsonFault::Unknown { name: name.to_owned(), known: Some(known) }
        }
        None => {
            let name = rest.strip_suffix("`, there are no fields").unwrap_or(rest);
            JsonFault::Unknown { name: name.to_owned(), known: None }
        }
    }
}

/// Whether a name in backquotes is one of the capitalized names that some objects accept besides their own. Messages do not
/// recommend them.
fn is_alias(quoted: &str) -> bool {
    quoted.trim_start_matches('`').starts_with(|first: char| first.is_ascii_uppercase())
}

/// Whether a name in backquotes is the other name of a duration: `ttl_ms` besides `ttl`. Messages do not recommend it.
fn is_in_millis(quoted: &str, names: &[&str]) -> bool {
    let with_units = quoted.strip_suffix("_ms`").map(|name| format!("{name}`"));
    with_units.is_some_and(|with_units| names.contains(&with_units.as_str()))
}

/// What serde calls a Rust type or what a visitor expects, as JSON has it.
fn type_name(expected: &str) -> &str {
    match expected {
        "u8" => "an integer from 0 to 255",
        "u16" => "an integer from 0 to 65,535",
        "u32" => "an integer from 0 to 4,294,967,295",
        "u64" | "usize" => "an integer from 0 to 2^64−1",
        "i64" => "an integer from −2^63 to 2^63−1",
        "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "an object",
        name if name.starts_with("struct ") => "an object",
        other => other,
    }
}

/// What serde calls a value that it found, as JSON has it.
fn value_name(found: &str) -> String {
    let quoted = |prefix: &str| found.strip_prefix(prefix)?.strip_suffix('`').map(str::to_owned);
    match found {
        "sequence" => "a list".to_owned(),
        "map" => "an object".to_owned(),
        _ => quoted("integer `")
            .or_else(|| quoted("floating point `"))
            .or_else(|| quoted("boolean `"))
            .or_else(|| found.strip_prefix("string ").map(|text| format!("the string {text}")))
            .unwrap_or_else(|| found.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only whether it can be read matters")]
    struct Sample {
        count: u32,
        #[serde(default)]
        value: i64,
        #[serde(default)]
        flag: bool,
        #[serde(default)]
        list: Vec<String>,
        #[serde(default)]
        part: Option<Part>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only whether it can be read matters")]
    struct Part {
        #[serde(alias = "One")]
        one: u64,
        two: u64,
    }

    #[test]
    fn no_text_contains_a_word_of_serde_or_rust() {
        #[track_caller]
        fn check(json: &str, expect: &str) {
            let error = serde_json::from_str::<Sample>(json).expect_err(json);
            assert_eq!(JsonFault::of(&error).to_string(), expect, "{json} gave {error}");
        }
        check("{}", "the field `count` is required");
        check(r#"{"count": 1, "count": 1}"#, "the field `count` is given twice");
        check(r#"{"count": 1, "cuont": 1}"#, "the field `cuont` is not a known field");
        check(r#"{"count": "1"}"#, r#"must be an integer from 0 to 4,294,967,295, not the string "1""#);
        check(
            r#"{"count": "a`, expected u8"}"#,
            r#"must be an integer from 0 to 4,294,967,295, not the string "a`, expected u8""#,
        );
        check(r#"{"count": -1}"#, "must be an integer from 0 to 4,294,967,295, not -1");
        check(r#"{"count": 1, "value": 1.5}"#, "must be an integer from −2^63 to 2^63−1, not 1.5");
        check(
            r#"{"count": 1, "value": 9223372036854775808}"#,
            "must be an integer from −2^63 to 2^63−1, not 9223372036854775808",
        );
        check(r#"{"count": 1, "value": 1e999}"#, "must be a number that fits into 64 bits");
        check(r#"{"count": 1, "flag": null}"#, "must be true or false, not null");
        check(r#"{"count": 1, "list": {}}"#, "must be a list, not an object");
        check(r#"{"count": 1, "list": [[]]}"#, "must be a string, not a list");
        check(r#"{"count": 1, "list": [true]}"#, "must be a string, not true");
        check(r#"{"count": 1, "part": 1}"#, "must be an object, not 1");
        check(r#"{"count": 1"#, "is not valid JSON: EOF while parsing an object (line 1, column 11)");
        check("{\"count\":\n  x}", "is not valid JSON: expected value (line 2, column 3)");
    }

    #[test]
    fn unknown_fields_come_with_the_known_ones() {
        #[track_caller]
        fn check<'a, T: Deserialize<'a> + fmt::Debug>(json: &'a str, name: &str, known: Option<&str>) {
            let error = serde_json::from_str::<T>(json).expect_err(json);
            let expect = JsonFault::Unknown { name: name.to_owned(), known: known.map(str::to_owned) };
            assert_eq!(JsonFault::of(&error), expect, "{json} gave {error}");
        }
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Nothing {}
        check::<Sample>(r#"{"x": 1}"#, "x", Some("`count`, `value`, `flag`, `list`, `part`"));
        check::<Part>(r#"{"a`, expected b": 1}"#, "a`, expected b", Some("`one`, `two`"));
        check::<Nothing>(r#"{"x": 1}"#, "x", None);
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code, reason = "only whether it can be read matters")]
        struct Spans {
            ttl: Option<u64>,
            ttl_ms: Option<u64>,
            held_ms: Option<u64>,
        }
        check::<Spans>(r#"{"x": 1}"#, "x", Some("`ttl`, `held_ms`"));
    }
}
