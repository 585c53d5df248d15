//! Schemas for the API reference: types that exist only to describe fields, with every limit that the server checks.
//!
//! JSON Schema cannot express some limits. They have keywords of their own, which `crates/limina/tests/schemathesis/hooks.py`
//! interprets:
//!
//! - `x-max-bytes`: the longest string in bytes of UTF-8. `maxLength` counts characters.
//! - `x-range-ms`: the shortest and the longest duration, in milliseconds.
//! - `x-unique-by`: the items of a list must differ in this field.
//! - `x-integer-range`: the range of a number that is written without a point and without an exponent.
//! - `x-number-range`: the range of the number that a string contains.
//! - `x-max-parts`, `x-max-depth`: the size of a query with all queries inside it.
//! - `x-at-most-one`: of each list of fields, an object may have only one.

mod key_values;

use crate::{Context, Name, RequestId};
use alloc::borrow::Cow;
use alloc::format;
use serde_json::json;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        RefOr, Schema,
        extensions::Extensions,
        schema::{AdditionalProperties, ObjectBuilder, OneOfBuilder, Type},
    },
};

impl PartialSchema for Name {
    fn schema() -> RefOr<Schema> {
        text(1, 256)
            .pattern(Some(r"^(?!\.{1,2}$)[^\u0000-\u001f\u007f-\u009f]+$"))
            .description(Some("1–256 bytes of UTF-8 without control characters, not `.` or `..`."))
            .into()
    }
}

impl ToSchema for Name {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Name")
    }
}

impl PartialSchema for RequestId {
    fn schema() -> RefOr<Schema> {
        let visible_ascii = text(1, RequestId::MAX_BYTES).pattern(Some("^[!-~]+$"));
        visible_ascii.description(Some("1–64 visible ASCII characters.")).into()
    }
}

impl ToSchema for RequestId {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("RequestId")
    }
}

/// A key of key-values: 1–256 bytes.
pub struct Key;

impl PartialSchema for Key {
    fn schema() -> RefOr<Schema> {
        text(1, 256).description(Some("1–256 bytes.")).into()
    }
}

impl ToSchema for Key {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Key")
    }
}

impl PartialSchema for Context {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::Object)
            .property_names(Some(text(1, 256)))
            .max_properties(Some(64))
            .additional_properties(Some(AdditionalProperties::RefOr(text(0, 1024).into())))
            .description(Some("At most 64 entries, keys of 1–256 bytes, values of up to 1,024 bytes."))
            .into()
    }
}

impl ToSchema for Context {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Context")
    }
}

/// A string of so many bytes.
pub(crate) fn text(min: usize, max: usize) -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length((min > 0).then_some(min))
        .max_length(Some(max))
        .extensions(extension("x-max-bytes", json!(max)))
}

/// One keyword of this document's own. A schema has at most one, because their order is not fixed.
pub(crate) fn extension(keyword: &str, value: serde_json::Value) -> Option<Extensions> {
    Some([(keyword, value)].into_iter().collect())
}

const DAY: u64 = 86_400_000;

/// Durations with their limits. Each is a [`Duration`](crate::Duration) whose range the reference names.
macro_rules! durations {
    ($($(#[$comment:meta])* $name:ident: $min:expr, $max:expr, $text:literal, $example:literal;)*) => {$(
        $(#[$comment])*
        pub struct $name;

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                duration($min, $max, $text, $example)
            }
        }

        impl ToSchema for $name {
            fn name() -> Cow<'static, str> {
                Cow::Borrowed(stringify!($name))
            }
        }
    )*};
}

durations! {
    /// How long a lock or a lease is held without a heartbeat.
    Ttl: 100, DAY, "100 ms–24 h", "30s";
    /// How long a request waits.
    Wait: 0, 300_000, "0–5 min", "10s";
    /// The length of a window.
    WindowLength: 1, 366 * DAY, "1 ms–366 d", "1m";
    /// The time after which holds are rolled back.
    Expiry: 1, 366 * DAY, "1 ms–366 d", "15m";
    /// How long an event blocks duplicates of itself.
    StreamDuration: 10, 30 * DAY, "10 ms–30 d", "10s";
    /// How often followers receive all incubating events.
    KeyFrameInterval: 100, DAY, "100 ms–24 h", "10s";
}

fn duration(min: u64, max: u64, range: &str, example: &str) -> RefOr<Schema> {
    let text = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some("^(?!$)([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$"))
        .extensions(extension("x-range-ms", json!([min, max])));
    let description = format!(
        "{range}: a string with units (`d`, `h`, `m`, `s`, `ms`; each at most once, larger units first). Any number except 0 \
         must have a unit."
    );
    if min > 0 {
        return text.description(Some(description)).examples([example]).into();
    }
    let zero = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).maximum(Some(0));
    OneOfBuilder::new().item(text).item(zero).description(Some(description)).examples([example]).into()
}
