//! Locks on sets of key-values.

use crate::{Duration, KeyValues, object, words::from_word};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use utoipa::ToSchema;

/// `POST /locks`: hold one lock (`key_values`, `mode`), or several at once (`locks`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewLock<'a> {
    /// The lock: exactly these key-values, at least one.
    #[serde(borrow, default, alias = "KeyValues", skip_serializing_if = "Option::is_none")]
    #[schema(example = json!({"order": 4711}))]
    pub key_values: Option<KeyValues<'a>>,
    /// How; exclusive if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Several locks, granted all at once or not at all, in place of the two above.
    #[serde(
        borrow,
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object::optional_values::<64, _, _>"
    )]
    #[schema(min_items = 1, max_items = 64)]
    pub locks: Option<Vec<WantedLock<'a>>>,
    /// For how long it is held without a heartbeat: 100 ms–24 h.
    pub ttl: Duration,
    /// For how long to wait for it: at most 5 min; if not said, not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Duration>,
    /// The client's word for itself, which everybody may see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 256, example = "worker-3")]
    pub owner: Option<String>,
}

/// One of several locks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WantedLock<'a> {
    /// The lock: exactly these key-values, at least one.
    #[serde(borrow, alias = "KeyValues")]
    pub key_values: KeyValues<'a>,
    /// How; exclusive if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
}

/// How a lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", try_from = "Cow<'_, str>")]
pub enum Mode {
    /// By nobody else.
    Exclusive,
    /// By others too who share it.
    Shared,
}

from_word!(Mode: "exclusive" => Exclusive, "shared" => Shared);

/// `POST /locks/{lock_id}/heartbeat`: hold it for its ttl from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Heartbeat<'a> {
    /// The holder's word, as it was granted.
    #[serde(borrow)]
    pub session_id: Cow<'a, str>,
}

/// A lock that was granted.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Granted<'a> {
    /// Its id.
    pub lock_id: Cow<'a, str>,
    /// The holder's secret word, with which it heartbeats and releases.
    pub session_id: Cow<'a, str>,
    /// Grows with every grant of the namespace. What the lock protects refuses a smaller one than it has seen.
    pub fencing_token: u64,
    /// When it ends without a heartbeat.
    pub expires_in_ms: u64,
    /// What is held.
    pub locks: Vec<HeldLock<'a>>,
}

/// One of the locks that are held together.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct HeldLock<'a> {
    /// The lock.
    pub key_values: KeyValues<'a>,
    /// How it is held.
    pub mode: Mode,
}

/// A grant, as everybody may see it.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Lock<'a> {
    /// Its id.
    pub lock_id: Cow<'a, str>,
    /// Whose it is.
    #[schema(required)]
    pub owner: Option<Cow<'a, str>>,
    /// What is held.
    pub locks: Vec<HeldLock<'a>>,
    /// For how long it has been held.
    pub held_ms: u64,
    /// When it ends without a heartbeat.
    pub expires_in_ms: u64,
    /// By how much a heartbeat extends it.
    pub ttl_ms: u64,
    /// Grows with every grant of the namespace.
    pub fencing_token: u64,
    /// How many requests wait for any of its locks.
    pub waiting: usize,
}
