//! Key-values on the command line, written as HTTPie writes them: `tenant=acme attempt:=3 beta:=true`.

use crate::words;
use limina_api::key_values::{Pair, Value};
use limina_client::{KeyValue, KeyValues, Keys};
use std::str::FromStr;

/// One argument: `KEY=TEXT`, or `KEY:=JSON` for a number or a boolean. `\=`, `\:` and `\\` are for a key that has such a character.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyValueArg {
    key: String,
    value: KeyValue,
}

impl FromStr for KeyValueArg {
    type Err = String;

    fn from_str(text: &str) -> Result<KeyValueArg, String> {
        let (key, value) = match split(text)? {
            (key, Written::Text(text)) => (key, text.to_owned().into()),
            (key, Written::Json(json)) => (key, typed(json)?),
        };
        Ok(KeyValueArg { key, value })
    }
}

/// What is behind the key.
pub(crate) enum Written<'t> {
    /// `=`
    Text(&'t str),
    /// `:=`
    Json(&'t str),
}

/// Splits an argument into the key, without its escapes, and what is behind it.
pub(crate) fn split(text: &str) -> Result<(String, Written<'_>), String> {
    let mut key = String::new();
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match (c, chars.peek().copied()) {
            ('\\', Some((_, escaped @ ('=' | ':' | '\\')))) => {
                key.push(escaped);
                chars.next();
            }
            (':', Some((_, '='))) => return Ok((named(key)?, Written::Json(&text[at + 2..]))),
            ('=', _) => return Ok((named(key)?, Written::Text(&text[at + 1..]))),
            _ => key.push(c),
        }
    }
    Err("write KEY=TEXT, or KEY:=3 and KEY:=true for numbers and booleans".to_owned())
}

fn named(key: String) -> Result<String, String> {
    if key.is_empty() { Err("there is no key before the =".to_owned()) } else { Ok(key) }
}

fn typed(json: &str) -> Result<KeyValue, String> {
    let value: serde_json::Value = serde_json::from_str(json).map_err(|_| {
        format!("{json:?} is not a number, a boolean or a string in JSON; KEY=TEXT is for text")
    })?;
    match value {
        serde_json::Value::String(text) => Ok(text.into()),
        serde_json::Value::Bool(value) => Ok(value.into()),
        serde_json::Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => Ok(integer.into()),
            (None, Some(float)) if number.is_f64() => Ok(float.into()),
            _ => Err(format!("{json} is not within 64 bits")),
        },
        _ => Err(format!("{json} is not a number, a boolean or a string")),
    }
}

/// Joins the arguments. A key must not occur twice.
pub(crate) fn joined(arguments: &[KeyValueArg]) -> Result<KeyValues, crate::Failed> {
    for (place, KeyValueArg { key, .. }) in arguments.iter().enumerate() {
        if arguments[..place].iter().any(|known| known.key == *key) {
            return Err(crate::Failed::usage(format!("the key {key:?} is given twice")));
        }
    }
    let keys: Keys = arguments.iter().map(|argument| (&argument.key, argument.value.clone())).collect();
    keys.build().map_err(|invalid| crate::Failed::usage(invalid.to_string()))
}

/// The key-values as arguments, which can be pasted into a command.
pub(crate) fn shown(key_values: &KeyValues) -> String {
    let pairs = key_values.iter().map(|Pair { key, value }| {
        let key = key.replace('\\', "\\\\").replace('=', "\\=").replace(':', "\\:");
        words::shell_quoted(&match value {
            Value::String(text) => format!("{key}={text}"),
            Value::Integer(value) => format!("{key}:={value}"),
            Value::Float(value) => format!("{key}:={value:?}"),
            Value::Boolean(value) => format!("{key}:={value}"),
        })
    });
    pairs.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        #[track_caller]
        fn check(text: &str, expect: Result<(&str, KeyValue), &str>) {
            match (text.parse::<KeyValueArg>(), expect) {
                (Ok(found), Ok((key, value))) => {
                    assert_eq!(found, KeyValueArg { key: key.to_owned(), value });
                }
                (Err(found), Err(expect)) => assert!(found.contains(expect), "{found}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
        check("tenant=acme", Ok(("tenant", "acme".into())));
        check("tenant=", Ok(("tenant", "".into())));
        check("q=a=b:=c", Ok(("q", "a=b:=c".into())));
        check("attempt:=3", Ok(("attempt", 3_i64.into())));
        check("ratio:=0.5", Ok(("ratio", 0.5.into())));
        check("beta:=true", Ok(("beta", true.into())));
        check("text:=\"3\"", Ok(("text", "3".into())));
        check("urn:x=1", Ok(("urn:x", "1".into())));
        check("a\\==b", Ok(("a=", "b".into())));
        check("a\\:=b", Ok(("a:", "b".into())));
        check("c:\\dir=b", Ok(("c:\\dir", "b".into())));
        check("acme", Err("KEY=TEXT"));
        check("=acme", Err("no key"));
        check("a:=acme", Err("KEY=TEXT is for text"));
        check("a:=[1]", Err("not a number, a boolean or a string"));
        check("a:=18446744073709551615", Err("64 bits"));
    }

    #[test]
    fn printed_key_values_can_be_pasted() {
        #[track_caller]
        fn check(argument: &str, expect: &str) {
            assert_eq!(shown(&joined(&[argument.parse().unwrap()]).unwrap()), expect);
        }
        check("tenant=acme", "tenant=acme");
        check("attempt:=3", "attempt:=3");
        check("ratio:=2.0", "ratio:=2.0");
        check("name=two words", "'name=two words'");
        check("a\\:=b", "'a\\:=b'");
        check("beep=\u{7}", "'beep=\\u{7}'");
    }
}
