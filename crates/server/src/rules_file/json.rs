//! TOML as the JSON that says the same.

use serde_json::Value as Json;
use toml::de::{DeTable, DeValue};

/// What JSON cannot say.
pub(super) struct Wrong {
    /// Where, as a request's failure would name it.
    pub(super) field: String,
    pub(super) detail: String,
}

/// The text of a table without the key `but`.
pub(super) fn of_table(table: &DeTable<'_>, but: &str) -> Result<String, Wrong> {
    let mut json = String::new();
    write_table(&mut json, "", table, but)?;
    Ok(json)
}

fn write_table(json: &mut String, path: &str, table: &DeTable<'_>, but: &str) -> Result<(), Wrong> {
    json.push('{');
    for (key, value) in table.iter().filter(|(key, _)| key.get_ref() != but) {
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
        // Whether it fits is for the reader of the JSON to say; here it only has to be a number.
        DeValue::Integer(number) => match i128::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => json.push_str(&number.to_string()),
            Err(_) => return wrong("the number is out of range"),
        },
        DeValue::Float(number) => match number.as_str().parse::<f64>() {
            // Written so that it stays a float: 1.0 is not 1.
            Ok(number) if number.is_finite() => json.push_str(&Json::from(number).to_string()),
            _ => return wrong("must be a finite number"),
        },
        DeValue::Boolean(flag) => json.push_str(if *flag { "true" } else { "false" }),
        DeValue::Datetime(_) => {
            return wrong("dates and times have no meaning here; as a string it needs quotes");
        }
        DeValue::Array(items) => {
            json.push('[');
            for (place, item) in items.iter().enumerate() {
                if place > 0 {
                    json.push(',');
                }
                write_value(json, &format!("{path}[{place}]"), item.get_ref())?;
            }
            json.push(']');
        }
        DeValue::Table(table) => write_table(json, path, table, "")?,
    }
    Ok(())
}
