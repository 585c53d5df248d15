//! The dynamic metadata of a response.

use crate::{
    messages::{DynamicKind, DynamicValue, ListValue, RateLimitDescriptor, RateLimitRequest, Struct},
    yaml::{Kind, Node, Value},
};

/// The pairs of a map as protobuf's struct.
pub(crate) fn from_yaml(pairs: &[(Node, Node)]) -> Struct {
    let key = |node: &Node| match &node.value {
        Value::Scalar { text, .. } => text.clone(),
        Value::List(_) | Value::Map(_) => String::new(),
    };
    Struct { fields: pairs.iter().map(|(name, value)| (key(name), value_of(value))).collect() }
}

fn value_of(node: &Node) -> DynamicValue {
    let kind = match &node.value {
        Value::Scalar { kind: Kind::Null, .. } => DynamicKind::NullValue(0),
        Value::Scalar { kind: Kind::Boolean(flag), .. } => DynamicKind::BoolValue(*flag),
        Value::Scalar { kind: Kind::Integer(number), .. } => DynamicKind::NumberValue(*number as f64),
        Value::Scalar { kind: Kind::Number(number), .. } => DynamicKind::NumberValue(*number),
        Value::Scalar { text, kind: Kind::Text } => DynamicKind::StringValue(text.clone()),
        Value::List(items) => {
            DynamicKind::ListValue(ListValue { values: items.iter().map(value_of).collect() })
        }
        Value::Map(pairs) => DynamicKind::StructValue(from_yaml(pairs)),
    };
    kind.into()
}

/// Adds the fields of `more`. A field that is there already keeps its value, unless both values are structs.
pub(crate) fn merge(into: &mut Struct, more: &Struct) {
    for (key, value) in &more.fields {
        match into.fields.get_mut(key) {
            None => {
                into.fields.insert(key.clone(), value.clone());
            }
            Some(DynamicValue { kind: Some(DynamicKind::StructValue(into)) }) => {
                if let Some(DynamicKind::StructValue(more)) = &value.kind {
                    merge(into, more);
                }
            }
            Some(_) => {}
        }
    }
}

/// The part of the metadata that repeats the request.
pub(crate) fn of_request(request: &RateLimitRequest) -> Struct {
    let mut metadata = Struct::default();
    let mut add = |key: &str, kind: DynamicKind| metadata.fields.insert(key.to_owned(), kind.into());
    add("domain", DynamicKind::StringValue(request.domain.clone()));
    let values = request.descriptors.iter().map(|descriptor| of_descriptor(descriptor).into()).collect();
    add("descriptors", DynamicKind::ListValue(ListValue { values }));
    if request.hits_addend != 0 {
        add("hitsAddend", DynamicKind::NumberValue(f64::from(request.hits_addend)));
    }
    metadata
}

fn of_descriptor(descriptor: &RateLimitDescriptor) -> DynamicKind {
    let mut fields = Struct::default();
    let entries = descriptor.entries.iter();
    let texts = entries.map(|entry| DynamicKind::StringValue(format!("{}={}", entry.key, entry.value)));
    let values = texts.map(DynamicValue::from).collect();
    fields.fields.insert("entries".to_owned(), DynamicKind::ListValue(ListValue { values }).into());
    if let Some(limit) = &descriptor.limit {
        let text = format!("requests_per_unit:{} unit:{}", limit.requests_per_unit, limit.unit().word());
        fields.fields.insert("limit".to_owned(), DynamicKind::StringValue(text).into());
    }
    if let Some(hits) = &descriptor.hits_addend {
        fields.fields.insert("hitsAddend".to_owned(), DynamicKind::NumberValue(hits.value as f64).into());
    }
    DynamicKind::StructValue(fields)
}
