//! Locks on sets of key-values.

#[cfg(feature = "openapi")]
use crate::Name;
#[cfg(feature = "openapi")]
use crate::schema::{Ttl, Wait};
use crate::{Duration, KeyValues, object, words::from_word};
use alloc::borrow::Cow;
use alloc::{string::String, vec::Vec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `POST /locks`: acquire one lock (`key_values`, `mode`), or several at once (`locks`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewLock {
    /// The key-values that identify the lock, at least one. Not together with `locks`.
    #[serde(default, alias = "KeyValues", skip_serializing_if = "Option::is_none")]
    #[schema(example = json!({"order": 4711}))]
    pub key_values: Option<KeyValues>,
    /// The mode of the one lock. Default: `exclusive`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Several locks, granted all at once or not at all. Not together with `key_values` and `mode`.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object::optional_list::<64, _, _>"
    )]
    #[schema(min_items = 1, max_items = 64)]
    pub locks: Option<Vec<WantedLock>>,
    /// How long the lock is held without a heartbeat: 100 ms–24 h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Ttl)]
    pub ttl: Option<Duration>,
    /// The ttl in milliseconds, in place of `ttl`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 100, maximum = 86_400_000)]
    pub ttl_ms: Option<u64>,
    /// How long to wait for the lock: 0–5 min. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Wait>)]
    pub wait: Option<Duration>,
    /// The wait in milliseconds, in place of `wait`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 300_000)]
    pub wait_ms: Option<u64>,
    /// The client's name for itself, which everybody can read. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Name>, example = "worker-3")]
    pub owner: Option<String>,
}

/// One of several locks to acquire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WantedLock {
    /// The key-values that identify the lock, at least one.
    #[serde(alias = "KeyValues")]
    pub key_values: KeyValues,
    /// The mode. Default: `exclusive`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
}

/// How a lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", try_from = "Cow<'_, str>")]
#[schema(as = LockMode)]
pub enum Mode {
    /// There is no other holder.
    Exclusive,
    /// Other holders may hold the lock too, if they also share it.
    Shared,
}

from_word!(Mode: "exclusive" => Exclusive, "shared" => Shared);

/// A grant: one or more locks that are held together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Granted<'a> {
    /// The id of the grant.
    pub lock_id: Cow<'a, str>,
    /// A secret of the holder. Heartbeats and the release need it.
    pub session_id: Cow<'a, str>,
    /// A number that grows with every grant of the namespace. The protected resource should reject a token that is
    /// smaller than one it has seen.
    pub fencing_token: u64,
    /// The time until the grant expires without a heartbeat, in milliseconds.
    pub expires_in_ms: u64,
    /// The locks that are held.
    pub locks: Vec<HeldLock>,
}

/// One of the locks of a grant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HeldLock {
    /// The key-values that identify the lock.
    pub key_values: KeyValues,
    /// How the lock is held.
    pub mode: Mode,
}

/// A grant, as everybody can read it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Lock<'a> {
    /// The id of the grant.
    pub lock_id: Cow<'a, str>,
    /// The decision that the grant is a part of, or `null`.
    #[schema(required)]
    pub operation_id: Option<Cow<'a, str>>,
    /// The holder's name for itself, or `null`.
    #[schema(required)]
    pub owner: Option<Cow<'a, str>>,
    /// The locks that are held.
    pub locks: Vec<HeldLock>,
    /// The time since the grant, in milliseconds.
    pub held_ms: u64,
    /// The time until the grant expires without a heartbeat, in milliseconds.
    pub expires_in_ms: u64,
    /// The ttl in milliseconds: a heartbeat extends the grant to this time from now.
    pub ttl_ms: u64,
    /// A number that grows with every grant of the namespace.
    pub fencing_token: u64,
    /// The number of requests that wait for any of these locks.
    pub waiting: usize,
}
