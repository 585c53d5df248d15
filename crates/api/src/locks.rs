//! Locks on sets of key-values.

#[cfg(feature = "openapi")]
use crate::schema::{Ttl, Wait};
use crate::{
    Duration, Invalid, KeyValues, Keys, Millis, Name, Position, Reason,
    invalid::{check_distinct, check_duration, check_items, check_span},
    object,
    words::from_word,
};
use alloc::{format, vec, vec::Vec};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

/// A request for one or more locks: all of them are granted at one instant, or none.
///
/// JSON has it as [`NewLock`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Acquire {
    locks: Vec<Lock>,
    ttl_ms: Millis,
    wait_ms: Millis,
    owner: Option<Name>,
}

impl Acquire {
    /// The most locks that one request may ask for. It asks for at least one.
    pub const MAX_LOCKS: usize = 64;
    /// The shortest ttl.
    pub const MIN_TTL: Millis = Millis(100);
    /// The longest ttl.
    pub const MAX_TTL: Millis = Millis::DAY;
    /// The longest time that a request may wait.
    pub const MAX_WAIT: Millis = Millis(5 * 60 * 1000);

    /// Asks for each lock once; every lock has at least one key-value. `ttl` is how long the locks are held without a
    /// heartbeat. The request does not wait, and the grant has no owner, unless [`Acquire::with_wait`] and
    /// [`Acquire::with_owner`] say so.
    pub fn new(locks: Vec<Lock>, ttl: impl Into<Millis>) -> Result<Acquire, Invalid> {
        let acquire = Acquire { locks, ttl_ms: ttl.into(), wait_ms: Millis(0), owner: None };
        acquire.validate()?;
        Ok(acquire)
    }

    /// Waits this long for locks that others hold. 0 refuses the request at once.
    pub fn with_wait(self, wait: impl Into<Millis>) -> Result<Acquire, Invalid> {
        let acquire = Acquire { wait_ms: wait.into(), ..self };
        acquire.validate()?;
        Ok(acquire)
    }

    /// The client's own word for the holder. Other clients can read it.
    #[must_use]
    pub fn with_owner(self, owner: Option<Name>) -> Acquire {
        Acquire { owner, ..self }
    }

    /// The locks, in the client's order.
    pub fn locks(&self) -> &[Lock] {
        &self.locks
    }

    /// How long the locks are held without a heartbeat.
    pub fn ttl(&self) -> Millis {
        self.ttl_ms
    }

    /// How long the request waits for locks that others hold.
    pub fn wait(&self) -> Millis {
        self.wait_ms
    }

    /// The client's own word for the holder.
    pub fn owner(&self) -> Option<&Name> {
        self.owner.as_ref()
    }

    /// Checks what reading the binary form does not.
    pub fn validate(&self) -> Result<(), Invalid> {
        check_locks(&self.locks)?;
        check_duration("ttl", self.ttl_ms, Acquire::MIN_TTL..=Acquire::MAX_TTL)?;
        check_duration("wait", self.wait_ms, Millis(0)..=Acquire::MAX_WAIT)
    }
}

fn check_locks(locks: &[Lock]) -> Result<(), Invalid> {
    check_items("locks", locks.len(), 1..=Acquire::MAX_LOCKS)?;
    for (index, lock) in locks.iter().enumerate() {
        check_items("key_values", lock.key_values.len(), 1..=KeyValues::MAX_KEYS)
            .map_err(|invalid| invalid.within_item("locks", index))?;
    }
    let locks = locks.iter().map(|lock| &lock.key_values);
    check_distinct(locks, |index| format!("locks[{index}].key_values"))
}

impl Serialize for Acquire {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Acquire::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Acquire {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Acquire, D::Error> {
        match deserializer.is_human_readable() {
            true => NewLock::deserialize(deserializer)?.try_into().map_err(Invalid::into_serde),
            false => Acquire::deserialize(deserializer),
        }
    }
}

/// `POST /locks`: acquire one lock (`key_values`, `mode`), or several at once (`locks`).
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewLock {
    /// The key-values that identify the lock, at least one. Not together with `locks`.
    #[serde(default, alias = "KeyValues")]
    #[schema(example = json!({"order": 4711}))]
    key_values: Option<KeyValues>,
    /// The mode of the one lock. Default: `exclusive`.
    #[serde(default)]
    mode: Option<Mode>,
    /// Several locks, granted all at once or not at all. Not together with `key_values` and `mode`.
    #[serde(default, deserialize_with = "object::optional_list::<{ Acquire::MAX_LOCKS }, _, _>")]
    #[schema(min_items = 1, max_items = 64)]
    locks: Option<Vec<WantedLock>>,
    /// How long the lock is held without a heartbeat: 100 ms–24 h.
    #[serde(default)]
    #[schema(value_type = Ttl)]
    ttl: Option<Duration>,
    /// The ttl in milliseconds, in place of `ttl`.
    #[serde(default)]
    #[schema(value_type = Option<u64>, minimum = 100, maximum = 86_400_000)]
    ttl_ms: Option<Millis>,
    /// How long to wait for the lock: 0–5 min. Default: 0.
    #[serde(default)]
    #[schema(value_type = Option<Wait>)]
    wait: Option<Duration>,
    /// The wait in milliseconds, in place of `wait`.
    #[serde(default)]
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 300_000)]
    wait_ms: Option<Millis>,
    /// The client's name for itself, which everybody can read. Absent: none.
    #[serde(default)]
    #[schema(example = "worker-3")]
    owner: Option<Name>,
}

impl TryFrom<NewLock> for Acquire {
    type Error = Invalid;

    fn try_from(new: NewLock) -> Result<Acquire, Invalid> {
        let refuse = |field, condition| Err(Invalid::new(field, Reason::Condition(condition)));
        let locks = match (new.key_values, new.locks) {
            (Some(key_values), None) => {
                let one = vec![Lock { key_values, mode: new.mode.unwrap_or(Mode::Exclusive) }];
                // A request for one lock has no list.
                check_locks(&one).map_err(|invalid| invalid.renamed("key_values"))?;
                one
            }
            (None, Some(_)) if new.mode.is_some() => {
                return refuse("mode", "must be absent, because each of the `locks` has its own");
            }
            (None, Some(locks)) => locks.into_iter().map(Lock::from).collect(),
            (Some(_), Some(_)) => return refuse("locks", "must be absent if `key_values` is given"),
            (None, None) => return refuse("key_values", "is required, unless `locks` is given"),
        };
        check_locks(&locks)?;
        let allowed = Acquire::MIN_TTL..=Acquire::MAX_TTL;
        let ttl_ms = check_span(["ttl", "ttl_ms"], new.ttl, new.ttl_ms, allowed)?
            .ok_or_else(|| Invalid::new("ttl", Reason::Missing))?;
        let allowed = Millis(0)..=Acquire::MAX_WAIT;
        let wait_ms = check_span(["wait", "wait_ms"], new.wait, new.wait_ms, allowed)?.unwrap_or(Millis(0));
        Ok(Acquire { locks, ttl_ms, wait_ms, owner: new.owner })
    }
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

impl From<WantedLock> for Lock {
    fn from(WantedLock { key_values, mode }: WantedLock) -> Lock {
        Lock { key_values, mode: mode.unwrap_or(Mode::Exclusive) }
    }
}

/// One of the locks of a grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = HeldLock)]
pub struct Lock {
    /// The key-values that identify the lock.
    pub key_values: KeyValues,
    /// How the lock is held.
    pub mode: Mode,
}

impl Lock {
    /// A lock that nobody else can hold at the same time. A lock is identified by exactly these key-values.
    pub fn exclusive(keys: impl Into<Keys>) -> Result<Lock, Invalid> {
        Ok(Lock { key_values: keys.into().build()?, mode: Mode::Exclusive })
    }

    /// A lock that others can hold at the same time, if they share it as well.
    pub fn shared(keys: impl Into<Keys>) -> Result<Lock, Invalid> {
        Ok(Lock { key_values: keys.into().build()?, mode: Mode::Shared })
    }
}

/// How a lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = LockMode)]
pub enum Mode {
    /// There is no other holder.
    Exclusive,
    /// Other holders may hold the lock too, if they also share it.
    Shared,
}

from_word!(Mode: "exclusive" => Exclusive, "shared" => Shared);

impl Mode {
    /// Whether two grants with these modes cannot hold the same lock at the same time.
    pub fn conflicts(self, other: Mode) -> bool {
        self == Mode::Exclusive || other == Mode::Exclusive
    }
}

/// A grant: one or more locks that are held together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Granted {
    /// The id of the grant.
    pub lock_id: Name,
    /// A secret of the holder. Heartbeats and the release need it.
    pub session_id: Name,
    /// A number that grows with every grant of the namespace. The protected resource should reject a token that is
    /// smaller than one it has seen.
    #[schema(value_type = u64)]
    pub fencing_token: Position,
    /// The time until the grant expires without a heartbeat, in milliseconds.
    #[schema(value_type = u64)]
    pub expires_in_ms: Millis,
    /// The locks that are held.
    pub locks: Vec<Lock>,
}

impl Granted {
    /// What the holder of this session is told about its grant.
    pub fn new(grant: GrantInfo, session_id: Name) -> Granted {
        let GrantInfo { lock_id, fencing_token, expires_in_ms, locks, .. } = grant;
        Granted { lock_id, session_id, fencing_token, expires_in_ms, locks }
    }
}

/// A grant, as everybody can read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Lock)]
pub struct GrantInfo {
    /// The id of the grant.
    pub lock_id: Name,
    /// The decision that the grant is a part of, or `null`.
    #[schema(required)]
    pub operation_id: Option<Name>,
    /// The holder's name for itself, or `null`.
    #[schema(required)]
    pub owner: Option<Name>,
    /// The locks that are held.
    pub locks: Vec<Lock>,
    /// The time since the grant, in milliseconds.
    #[schema(value_type = u64)]
    pub held_ms: Millis,
    /// The time until the grant expires without a heartbeat, in milliseconds.
    #[schema(value_type = u64)]
    pub expires_in_ms: Millis,
    /// The ttl in milliseconds: a heartbeat extends the grant to this time from now.
    #[schema(value_type = u64)]
    pub ttl_ms: Millis,
    /// A number that grows with every grant of the namespace.
    #[schema(value_type = u64)]
    pub fencing_token: Position,
    /// The number of requests that wait for any of these locks. Above a few thousand, it is the length of the longest queue.
    pub waiting: usize,
}
