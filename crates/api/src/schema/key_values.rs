//! The schemas of key-values and of conditions on them, whose JSON forms are written by hand too.

use crate::{
    key_values::{KeyValues, OwnedValue},
    query::QueryAsJson,
    selection::{Query, Selection, Tests},
};
use alloc::borrow::Cow;
use alloc::{borrow::ToOwned, string::String, vec::Vec};
use serde_json::json;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        Ref, RefOr, Schema,
        schema::{AdditionalProperties, ObjectBuilder, OneOfBuilder, Type},
    },
};

impl PartialSchema for OwnedValue {
    fn schema() -> RefOr<Schema> {
        let number = ObjectBuilder::new()
            .schema_type(Type::Number)
            .extensions(super::extension("x-integer-range", json!([i64::MIN, i64::MAX])))
            .description(Some("A signed 64-bit integer if it is written without a point and without an exponent, otherwise a 64-bit float."));
        let mut forms = OneOfBuilder::new()
            .item(super::text(0, 1024))
            .item(number)
            .item(ObjectBuilder::new().schema_type(Type::Boolean));
        for (data_types, least, most) in [
            (&[0][..], 0, u8::MAX.into()),
            (&[1], 0, u16::MAX.into()),
            (&[2], 0, u32::MAX.into()),
            (&[3, 4], 0, i64::MAX),
            (&[5], i8::MIN.into(), i8::MAX.into()),
            (&[6], i16::MIN.into(), i16::MAX.into()),
            (&[7], i32::MIN.into(), i32::MAX.into()),
            (&[8, 9], i64::MIN, i64::MAX),
        ] {
            let integer =
                ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(least)).maximum(Some(most));
            forms = forms.item(typed_schema(data_types, Some(integer), INTEGER_TEXT, json!([least, most])));
        }
        for (data_type, most) in [(10, f64::from(f32::MAX)), (11, f64::MAX)] {
            let float =
                ObjectBuilder::new().schema_type(Type::Number).minimum(Some(-most)).maximum(Some(most));
            forms = forms.item(typed_schema(&[data_type], Some(float), FLOAT_TEXT, json!([-most, most])));
        }
        forms
            .item(typed_schema(&[12], None, "", json!(null)))
            .description(Some(
                "A string of up to 1,024 bytes, an integer, a float or a boolean. The type is part of the value: `1`, `1.0`, `\"1\"` \
                 and `true` differ. Requests may also use the typed form: `DataType` 0–4 are unsigned integers of 8, 16, 32 and \
                 64 bits and machine size, 5–9 signed integers of the same sizes, 10 and 11 floats of 32 and 64 bits, 12 strings.",
            ))
            .into()
    }
}

/// The texts that are parsed as numbers in the typed form.
const INTEGER_TEXT: &str = "^[+-]?[0-9]+$";
const FLOAT_TEXT: &str = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$";

const DATA_TYPE: &str = "0–4: an unsigned integer of 8, 16, 32, 64 bits or of a machine's size. 5–9: the same with a sign. 10 and 11: a \
    float of 32 or 64 bits. 12: a string.";
const VALUE: &str = "The value, as a string or as a number.";

/// The typed form for these types: a number, or its text. `number` is none for the type of strings.
fn typed_schema(
    data_types: &[u64],
    number: Option<ObjectBuilder>,
    pattern: &str,
    range: serde_json::Value,
) -> ObjectBuilder {
    let data_type = ObjectBuilder::new().schema_type(Type::Integer).enum_values(Some(data_types.to_vec()));
    let value: RefOr<Schema> = match number {
        Some(number) => {
            let text = ObjectBuilder::new()
                .schema_type(Type::String)
                .pattern(Some(pattern))
                .extensions(super::extension("x-number-range", range));
            OneOfBuilder::new().item(text).item(number).description(Some(VALUE)).into()
        }
        None => super::text(0, 1024).description(Some(VALUE)).into(),
    };
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .property("DataType", data_type.description(Some(DATA_TYPE)))
        .property("Value", value)
        .required("DataType")
        .required("Value")
        .additional_properties(Some(AdditionalProperties::FreeForm(false)))
}

impl ToSchema for OwnedValue {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("KeyValue")
    }
}

impl PartialSchema for KeyValues {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::Object)
            .property_names(Some(super::text(1, 256)))
            .max_properties(Some(KeyValues::MAX_KEYS))
            .additional_properties(Some(AdditionalProperties::RefOr(RefOr::Ref(Ref::from_schema_name(
                "KeyValue",
            )))))
            .description(Some("At most 64 keys of 1–256 bytes."))
            .examples([json!({"card": "4711", "attempt": 3})])
            .into()
    }
}

impl ToSchema for KeyValues {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("KeyValues")
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push(("KeyValue".to_owned(), OwnedValue::schema()));
    }
}

impl PartialSchema for Selection {
    fn schema() -> RefOr<Schema> {
        let condition = OneOfBuilder::new()
            .item(Ref::from_schema_name("KeyValue"))
            .item(Ref::from_schema_name("Tests"))
            .description(Some(
                "A value, which the key's value must equal, or an object of one or more tests.",
            ));
        ObjectBuilder::new()
            .schema_type(Type::Object)
            .property_names(Some(super::text(1, 256)))
            .max_properties(Some(KeyValues::MAX_KEYS))
            .additional_properties(Some(AdditionalProperties::RefOr(condition.into())))
            .description(Some("Conditions by key. All of them must hold. At most 64 keys of 1–256 bytes."))
            .examples([json!({"country": "de", "amount": {"gte": 100, "lt": 500}})])
            .into()
    }
}

impl ToSchema for Selection {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Selection")
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push(("KeyValue".to_owned(), OwnedValue::schema()));
        schemas.push(("Tests".to_owned(), Tests::schema()));
    }
}

impl PartialSchema for Query {
    fn schema() -> RefOr<Schema> {
        QueryAsJson::schema()
    }
}

impl ToSchema for Query {
    fn name() -> Cow<'static, str> {
        QueryAsJson::name()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        QueryAsJson::schemas(schemas);
    }
}
