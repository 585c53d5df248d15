//! Converts TOML to JSON.

use serde_json::Value as Json;
use toml::de::{DeTable, DeValue};

/// A value that has no equivalent in JSON.
pub(super) struct Wrong {
    /// The path of the value within the table, as a failed request would name it.
    pub(super) field: String,
    pub(super) detail: String,
}

/// The JSON of a table without the key `except`.
pub(super) fn of_table(table: &DeTable<'_>, except: &str) -> Result<String, Wrong> {
    let mut json = String::new();
    write_table(&mut json, "", table, except)?;
    Ok(json)
}

fn write_table(json: &mut String, path: &str, table: &DeTable<'_>, except: &str) -> Result<(), Wrong> {
    json.push('{');
    for (key, value) in table.iter().filter(|(key, _)| key.get_ref() != except) {
        if !json.ends_with('{') {
            json.push(',');
        }
        let key = key.get_ref();
        json.push_str(&Json::from(&**key).to_string());
        json.push(':');
        let path = if path.is_empty() { key.to_string() } else { format!("{path}.{key}") };
        write_value(json, &path, value.get_ref())?;
    }
    json.push('}');
    Ok(())
}

fn write_value(json: &mut String, path: &str, value: &DeValue<'_>) -> Result<(), Wrong> {
    let wrong = |detail: &str| Err(Wrong { field: path.to_owned(), detail: detail.to_owned() });
    match value {
        DeValue::String(text) => json.push_str(&Json::from(&**text).to_string()),
        // The reader of the JSON checks the range. Here any number is accepted.
        DeValue::Integer(number) => match i128::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => json.push_str(&number.to_string()),
            Err(_) => return wrong("must be a number that fits into 64 bits"),
        },
        DeValue::Float(number) => match number.as_str().parse::<f64>() {
            // `1.0` is written with its point, because `1` would be an integer.
            Ok(number) if number.is_finite() => json.push_str(&Json::from(number).to_string()),
            _ => return wrong("must be a finite number"),
        },
        DeValue::Boolean(flag) => json.push_str(if *flag { "true" } else { "false" }),
        DeValue::Datetime(_) => {
            return wrong("must not be a date or time; put it in quotes if it is a string");
        }
        DeValue::Array(items) => {
            json.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    json.push(',');
                }
                write_value(json, &format!("{path}[{index}]"), item.get_ref())?;
            }
            json.push(']');
        }
        DeValue::Table(table) => write_table(json, path, table, "")?,
    }
    Ok(())
}
