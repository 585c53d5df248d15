//! The messages of `envoy.service.ratelimit.v3` and `grpc.health.v1`, with the numbers of their fields.
//!
//! A dozen messages are written by hand, because the crates that generate all of Envoy's messages take longer to build than
//! this server. A test encodes with one and decodes with the other.

use prost::{Enumeration, Message, Oneof};
use std::collections::BTreeMap;

/// May these descriptors pass?
#[derive(Clone, PartialEq, Message)]
pub struct RateLimitRequest {
    /// The set of limits that is asked: a namespace here.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// Each of them is limited on its own; all must pass.
    #[prost(message, repeated, tag = "2")]
    pub descriptors: Vec<RateLimitDescriptor>,
    /// How much each descriptor takes that does not say so itself. 0 means 1.
    #[prost(uint32, tag = "3")]
    pub hits_addend: u32,
}

/// The entries that select one limit.
#[derive(Clone, PartialEq, Message)]
pub struct RateLimitDescriptor {
    /// The keys and values, from the outermost to the innermost.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
    /// A limit that replaces the one of the configuration.
    #[prost(message, optional, tag = "2")]
    pub limit: Option<RateLimitOverride>,
    /// How much it takes. 0 only looks.
    #[prost(message, optional, tag = "3")]
    pub hits_addend: Option<UInt64Value>,
    /// Whether the hits are given back.
    #[prost(bool, tag = "4")]
    pub is_negative_hits: bool,
}

/// One entry of a descriptor.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Entry {
    /// The key.
    #[prost(string, tag = "1")]
    pub key: String,
    /// The value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// A limit that comes with the request.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct RateLimitOverride {
    /// How much may pass.
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    /// In which time.
    #[prost(enumeration = "UnitCode", tag = "2")]
    pub unit: i32,
}

/// `google.protobuf.UInt64Value`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct UInt64Value {
    /// The number.
    #[prost(uint64, tag = "1")]
    pub value: u64,
}

/// The answer.
#[derive(Clone, PartialEq, Message)]
pub struct RateLimitResponse {
    /// Whether the request passes.
    #[prost(enumeration = "Code", tag = "1")]
    pub overall_code: i32,
    /// One for each descriptor, in the order of the request.
    #[prost(message, repeated, tag = "2")]
    pub statuses: Vec<DescriptorStatus>,
    /// What Envoy puts into its filter metadata.
    #[prost(message, optional, tag = "6")]
    pub dynamic_metadata: Option<Struct>,
}

/// What became of one descriptor.
#[derive(Clone, PartialEq, Message)]
pub struct DescriptorStatus {
    /// Whether the descriptor passes.
    #[prost(enumeration = "Code", tag = "1")]
    pub code: i32,
    /// The limit that applied.
    #[prost(message, optional, tag = "2")]
    pub current_limit: Option<CurrentLimit>,
    /// What is left of it.
    #[prost(uint32, tag = "3")]
    pub limit_remaining: u32,
    /// The time until the window ends.
    #[prost(message, optional, tag = "4")]
    pub duration_until_reset: Option<Duration>,
}

/// A limit in an answer.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CurrentLimit {
    /// Its name in the configuration.
    #[prost(string, tag = "3")]
    pub name: String,
    /// How much may pass.
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    /// In which time.
    #[prost(enumeration = "UnitCode", tag = "2")]
    pub unit: i32,
}

/// `google.protobuf.Duration`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Duration {
    /// Whole seconds.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// The rest.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// The codes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Code {
    /// Never in an answer of this server: Envoy lets such a request pass.
    Unknown = 0,
    /// Within the limits.
    Ok = 1,
    /// Over a limit.
    OverLimit = 2,
}

impl Code {
    /// The word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Code::Unknown => "UNKNOWN",
            Code::Ok => "OK",
            Code::OverLimit => "OVER_LIMIT",
        }
    }
}

/// The units of time. The numbers are the same in requests and in answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum UnitCode {
    /// None.
    Unknown = 0,
    /// A second.
    Second = 1,
    /// A minute.
    Minute = 2,
    /// An hour.
    Hour = 3,
    /// A day.
    Day = 4,
    /// 30 days.
    Month = 5,
    /// 365 days.
    Year = 6,
    /// Seven days.
    Week = 7,
}

impl UnitCode {
    const ALL: [UnitCode; 8] = [
        UnitCode::Unknown,
        UnitCode::Second,
        UnitCode::Minute,
        UnitCode::Hour,
        UnitCode::Day,
        UnitCode::Month,
        UnitCode::Year,
        UnitCode::Week,
    ];

    /// The word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            UnitCode::Unknown => "UNKNOWN",
            UnitCode::Second => "SECOND",
            UnitCode::Minute => "MINUTE",
            UnitCode::Hour => "HOUR",
            UnitCode::Day => "DAY",
            UnitCode::Month => "MONTH",
            UnitCode::Year => "YEAR",
            UnitCode::Week => "WEEK",
        }
    }

    /// The unit with this [`word`](UnitCode::word).
    pub fn from_word(word: &str) -> Option<UnitCode> {
        UnitCode::ALL.into_iter().find(|unit| unit.word() == word)
    }
}

/// `google.protobuf.Struct`.
#[derive(Clone, PartialEq, Message)]
pub struct Struct {
    /// The values by their names.
    #[prost(btree_map = "string, message", tag = "1")]
    pub fields: BTreeMap<String, DynamicValue>,
}

/// `google.protobuf.Value`.
#[derive(Clone, PartialEq, Message)]
pub struct DynamicValue {
    /// The value with its type.
    #[prost(oneof = "DynamicKind", tags = "1, 2, 3, 4, 5, 6")]
    pub kind: Option<DynamicKind>,
}

impl From<DynamicKind> for DynamicValue {
    fn from(kind: DynamicKind) -> DynamicValue {
        DynamicValue { kind: Some(kind) }
    }
}

/// The types of a [`DynamicValue`].
#[derive(Clone, PartialEq, Oneof)]
pub enum DynamicKind {
    /// Nothing; the number is 0.
    #[prost(int32, tag = "1")]
    NullValue(i32),
    /// A number.
    #[prost(double, tag = "2")]
    NumberValue(f64),
    /// A text.
    #[prost(string, tag = "3")]
    StringValue(String),
    /// A boolean.
    #[prost(bool, tag = "4")]
    BoolValue(bool),
    /// Named values.
    #[prost(message, tag = "5")]
    StructValue(Struct),
    /// Values in order.
    #[prost(message, tag = "6")]
    ListValue(ListValue),
}

/// `google.protobuf.ListValue`.
#[derive(Clone, PartialEq, Message)]
pub struct ListValue {
    /// The values.
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<DynamicValue>,
}

/// `grpc.health.v1.HealthCheckRequest`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct HealthCheckRequest {
    /// The service; an empty one is the whole server.
    #[prost(string, tag = "1")]
    pub service: String,
}

/// `grpc.health.v1.HealthCheckResponse`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct HealthCheckResponse {
    /// Whether the service can be used.
    #[prost(enumeration = "ServingStatus", tag = "1")]
    pub status: i32,
}

/// Whether a service can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum ServingStatus {
    /// Not known.
    Unknown = 0,
    /// It can.
    Serving = 1,
    /// It cannot.
    NotServing = 2,
    /// There is no such service. Only a watch says so.
    ServiceUnknown = 3,
}
