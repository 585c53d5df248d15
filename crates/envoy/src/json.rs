//! The JSON of `POST /json`: protobuf's mapping, as the original reads and writes it.

use crate::messages::{
    Code, DescriptorStatus, DynamicKind, DynamicValue, Entry, RateLimitDescriptor, RateLimitOverride,
    RateLimitRequest, RateLimitResponse, Struct, UInt64Value, UnitCode,
};
use serde_json::{Map, Value, json};

/// Reads a request. Fields may have their names of protobuf or of JSON; a field that does not exist is an error, whose text
/// says where it is.
pub fn read_request(body: &[u8]) -> Result<RateLimitRequest, String> {
    let value: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let mut request = RateLimitRequest::default();
    for (name, value) in object(&value, "the request")? {
        match name.as_str() {
            "domain" => request.domain = text(value, name)?,
            "descriptors" => request.descriptors = list(value, name, descriptor)?,
            "hitsAddend" | "hits_addend" => request.hits_addend = small(value, name)?,
            _ => return Err(format!("the field {name:?} is unknown")),
        }
    }
    Ok(request)
}

fn descriptor(value: &Value) -> Result<RateLimitDescriptor, String> {
    let mut descriptor = RateLimitDescriptor::default();
    for (name, value) in object(value, "a descriptor")? {
        match name.as_str() {
            "entries" => descriptor.entries = list(value, name, entry)?,
            "limit" if value.is_null() => {}
            "limit" => descriptor.limit = Some(limit(value)?),
            "hitsAddend" | "hits_addend" if value.is_null() => {}
            "hitsAddend" | "hits_addend" => {
                descriptor.hits_addend = Some(UInt64Value { value: number(value, name)? });
            }
            "isNegativeHits" | "is_negative_hits" => descriptor.is_negative_hits = flag(value, name)?,
            _ => return Err(format!("the field {name:?} of a descriptor is unknown")),
        }
    }
    Ok(descriptor)
}

fn entry(value: &Value) -> Result<Entry, String> {
    let mut entry = Entry::default();
    for (name, value) in object(value, "an entry")? {
        match name.as_str() {
            "key" => entry.key = text(value, name)?,
            "value" => entry.value = text(value, name)?,
            _ => return Err(format!("the field {name:?} of an entry is unknown")),
        }
    }
    Ok(entry)
}

fn limit(value: &Value) -> Result<RateLimitOverride, String> {
    let mut limit = RateLimitOverride::default();
    for (name, value) in object(value, "a limit")? {
        match name.as_str() {
            "requestsPerUnit" | "requests_per_unit" => limit.requests_per_unit = small(value, name)?,
            "unit" => limit.unit = unit(value)?,
            _ => return Err(format!("the field {name:?} of a limit is unknown")),
        }
    }
    Ok(limit)
}

fn unit(value: &Value) -> Result<i32, String> {
    let known = match value {
        Value::Null => Some(0),
        Value::String(word) => UnitCode::from_word(word).map(i32::from),
        Value::Number(number) => number.as_i64().and_then(|number| i32::try_from(number).ok()),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    known.ok_or_else(|| format!("{value} is not a unit"))
}

fn object<'v>(value: &'v Value, what: &str) -> Result<&'v Map<String, Value>, String> {
    value.as_object().ok_or_else(|| format!("{what} must be an object"))
}

fn list<T>(value: &Value, name: &str, item: fn(&Value) -> Result<T, String>) -> Result<Vec<T>, String> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(items) => items.iter().map(item).collect(),
        _ => Err(format!("{name:?} must be a list")),
    }
}

fn text(value: &Value, name: &str) -> Result<String, String> {
    match value {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        _ => Err(format!("{name:?} must be a text")),
    }
}

fn flag(value: &Value, name: &str) -> Result<bool, String> {
    match value {
        Value::Null => Ok(false),
        Value::Bool(flag) => Ok(*flag),
        _ => Err(format!("{name:?} must be true or false")),
    }
}

/// Protobuf's JSON writes 64-bit numbers as texts, and reads both.
fn number(value: &Value, name: &str) -> Result<u64, String> {
    let number = match value {
        Value::Null => Some(0),
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.parse().ok(),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    number.ok_or_else(|| format!("{name:?} must be a whole number from 0 on"))
}

fn small(value: &Value, name: &str) -> Result<u32, String> {
    u32::try_from(number(value, name)?).map_err(|_| format!("{name:?} must be less than 2^32"))
}

/// Writes a response. Fields that have their default are left out.
pub fn write_response(response: &RateLimitResponse) -> String {
    let mut object = Map::new();
    object.insert("overallCode".to_owned(), response.overall_code().word().into());
    object.insert("statuses".to_owned(), response.statuses.iter().map(status).collect());
    if let Some(metadata) = &response.dynamic_metadata {
        object.insert("dynamicMetadata".to_owned(), of_struct(metadata));
    }
    Value::Object(object).to_string()
}

fn status(status: &DescriptorStatus) -> Value {
    let mut object = Map::new();
    if status.code() != Code::Unknown {
        object.insert("code".to_owned(), status.code().word().into());
    }
    if let Some(limit) = &status.current_limit {
        let mut shown = Map::new();
        if !limit.name.is_empty() {
            shown.insert("name".to_owned(), limit.name.as_str().into());
        }
        if limit.requests_per_unit > 0 {
            shown.insert("requestsPerUnit".to_owned(), limit.requests_per_unit.into());
        }
        shown.insert("unit".to_owned(), limit.unit().word().into());
        object.insert("currentLimit".to_owned(), Value::Object(shown));
    }
    if status.limit_remaining > 0 {
        object.insert("limitRemaining".to_owned(), status.limit_remaining.into());
    }
    if let Some(reset) = status.duration_until_reset {
        object.insert("durationUntilReset".to_owned(), format!("{}s", reset.seconds).into());
    }
    Value::Object(object)
}

fn of_struct(fields: &Struct) -> Value {
    Value::Object(fields.fields.iter().map(|(name, value)| (name.clone(), of_value(value))).collect())
}

fn of_value(value: &DynamicValue) -> Value {
    match &value.kind {
        None | Some(DynamicKind::NullValue(_)) => Value::Null,
        Some(DynamicKind::NumberValue(number)) => json!(number),
        Some(DynamicKind::StringValue(text)) => text.as_str().into(),
        Some(DynamicKind::BoolValue(flag)) => (*flag).into(),
        Some(DynamicKind::StructValue(fields)) => of_struct(fields),
        Some(DynamicKind::ListValue(list)) => list.values.iter().map(of_value).collect(),
    }
}
