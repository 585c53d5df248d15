//! Compares outcomes with what a conformance script expects: see `clients/conformance/README.md`.

use serde_json::{Map, Value};
use std::collections::HashMap;

pub(crate) type Variables = HashMap<String, Value>;

/// Fails with the reason if `actual` is not as expected.
pub(crate) fn compare(expected: &Value, actual: &Value, variables: &mut Variables) -> Result<(), String> {
    let differs = || Err(format!("expected {expected}, got {actual}"));
    match expected {
        Value::String(text) if is_variable(text) && !variables.contains_key(text) => {
            if actual.is_null() {
                return differs();
            }
            variables.insert(text.clone(), actual.clone());
            Ok(())
        }
        Value::String(_) if substitute(expected, variables) == *actual => Ok(()),
        Value::Number(number) if number.as_f64() == actual.as_f64() => Ok(()),
        Value::Null | Value::Bool(_) if expected == actual => Ok(()),
        Value::Array(items) => match actual {
            Value::Array(found) if found.len() == items.len() => {
                items.iter().zip(found).try_for_each(|(item, found)| compare(item, found, variables))
            }
            _ => differs(),
        },
        Value::Object(fields) if fields.keys().any(|name| name.starts_with('$')) => {
            let holds = |(name, argument): (&String, &Value)| special(name, argument, actual, variables);
            if fields.iter().all(holds) { Ok(()) } else { differs() }
        }
        Value::Object(fields) if actual.is_object() => fields.iter().try_for_each(|(name, value)| {
            compare(value, &actual[name], variables).map_err(|why| format!(".{name}: {why}"))
        }),
        _ => differs(),
    }
}

fn special(name: &str, argument: &Value, actual: &Value, variables: &mut Variables) -> bool {
    match name {
        "$gte" => actual.as_f64().is_some_and(|number| number >= argument.as_f64().unwrap()),
        "$lte" => actual.as_f64().is_some_and(|number| number <= argument.as_f64().unwrap()),
        "$length" => {
            let length = actual.as_array().map(Vec::len).or(actual.as_str().map(|text| text.chars().count()));
            compare(argument, &length.into(), variables).is_ok()
        }
        "$every" => actual
            .as_array()
            .is_some_and(|items| items.iter().all(|item| compare(argument, item, variables).is_ok())),
        "$absent" => actual.is_null(),
        "$set" => {
            let mut left = actual.as_array().cloned().unwrap_or_default();
            let found = argument.as_array().unwrap().iter().all(|item| {
                let place =
                    left.iter().position(|found| compare(item, found, &mut variables.clone()).is_ok());
                place.map(|place| left.remove(place)).is_some()
            });
            found && left.is_empty()
        }
        _ => panic!("the script has an unknown form {name}"),
    }
}

/// Replaces the variables in a part of a script.
pub(crate) fn substitute(part: &Value, variables: &Variables) -> Value {
    match part {
        Value::String(text) => match variables.get(text) {
            Some(value) => value.clone(),
            None => Value::String(substitute_text(text, variables)),
        },
        Value::Array(items) => items.iter().map(|item| substitute(item, variables)).collect(),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (name.clone(), substitute(value, variables)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        _ => part.clone(),
    }
}

pub(crate) fn substitute_text(text: &str, variables: &Variables) -> String {
    let mut parts = text.split('$');
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !is_word(c)).unwrap_or(part.len());
        match variables.get(&format!("${}", &part[..end])) {
            Some(Value::String(value)) => whole.push_str(value),
            Some(value) => whole.push_str(&value.to_string()),
            None => whole.push_str(&format!("${}", &part[..end])),
        }
        whole.push_str(&part[end..]);
    }
    whole
}

fn is_variable(text: &str) -> bool {
    text.strip_prefix('$').is_some_and(|name| !name.is_empty() && name.chars().all(is_word))
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}
