//! How the request of a decision is stored, in the records of open and of ended decisions. These types are apart from those of the
//! API, so that a change of the API changes no stored bytes.
//!
//! A record is encoded from a borrowed request. How the client asked is not stored: whether it only asked, waited, or wanted an
//! explanation.

use crate::{Millis, Name, key_values::KeyValues};
use alloc::{borrow::Cow, sync::Arc, vec::Vec};
use limina_api::{
    Context,
    decisions::{Decide, PartCheck, PartEvent, Parts},
    ledger::Change,
    locks::{Lock, Mode},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

#[derive(Serialize, Deserialize)]
struct Record<'a> {
    operation_id: Cow<'a, Name>,
    owner: Option<Cow<'a, Name>>,
    ttl: Millis,
    checks: Vec<CheckRecord<'a>>,
    holds: Vec<HoldRecord<'a>>,
    create_missing: bool,
    locks: Vec<LockRecord<'a>>,
    event: Option<(Cow<'a, Name>, Cow<'a, str>)>,
}

#[derive(Serialize, Deserialize)]
struct CheckRecord<'a> {
    name: Option<Cow<'a, Name>>,
    key_values: Cow<'a, KeyValues>,
    hits: u64,
    require_match: bool,
    estimate: bool,
}

#[derive(Serialize, Deserialize)]
struct HoldRecord<'a> {
    limit_name: Cow<'a, Name>,
    value: i64,
    limit_id: Option<Cow<'a, Name>>,
    context: Cow<'a, Context>,
    ceiling: Option<i64>,
}

#[derive(Serialize, Deserialize)]
struct LockRecord<'a> {
    key_values: Cow<'a, KeyValues>,
    is_shared: bool,
}

impl CheckRecord<'_> {
    fn of(check: &PartCheck) -> CheckRecord<'_> {
        let PartCheck { name, key_values, hits, require_match, estimate } = check;
        CheckRecord {
            name: name.as_ref().map(Cow::Borrowed),
            key_values: Cow::Borrowed(key_values),
            hits: *hits,
            require_match: *require_match,
            estimate: *estimate,
        }
    }
}

impl HoldRecord<'_> {
    fn of(change: &Change) -> HoldRecord<'_> {
        let Change { limit_name, value, limit_id, context, ceiling } = change;
        HoldRecord {
            limit_name: Cow::Borrowed(limit_name),
            value: *value,
            limit_id: limit_id.as_ref().map(Cow::Borrowed),
            context: Cow::Borrowed(context),
            ceiling: *ceiling,
        }
    }
}

impl LockRecord<'_> {
    fn of(Lock { key_values, mode }: &Lock) -> LockRecord<'_> {
        LockRecord { key_values: Cow::Borrowed(key_values), is_shared: *mode == Mode::Shared }
    }
}

pub(super) fn serialize<S: Serializer>(request: &Decide, serializer: S) -> Result<S::Ok, S::Error> {
    let Parts { checks, holds, create_missing, locks, event } = request.parts();
    let record = Record {
        operation_id: Cow::Borrowed(request.operation_id()),
        owner: request.owner().map(Cow::Borrowed),
        ttl: request.ttl(),
        checks: checks.iter().map(CheckRecord::of).collect(),
        holds: holds.iter().map(HoldRecord::of).collect(),
        create_missing: *create_missing,
        locks: locks.iter().map(LockRecord::of).collect(),
        event: event
            .as_ref()
            .map(|PartEvent { stream, event }| (Cow::Borrowed(stream), Cow::Borrowed(&**event))),
    };
    record.serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<Decide>, D::Error> {
    let record = Record::deserialize(deserializer)?;
    let check = |check: CheckRecord<'_>| PartCheck {
        name: check.name.map(Cow::into_owned),
        key_values: check.key_values.into_owned(),
        hits: check.hits,
        require_match: check.require_match,
        estimate: check.estimate,
    };
    let hold = |hold: HoldRecord<'_>| Change {
        limit_name: hold.limit_name.into_owned(),
        value: hold.value,
        limit_id: hold.limit_id.map(Cow::into_owned),
        context: hold.context.into_owned(),
        ceiling: hold.ceiling,
    };
    let lock = |lock: LockRecord<'_>| Lock {
        key_values: lock.key_values.into_owned(),
        mode: if lock.is_shared { Mode::Shared } else { Mode::Exclusive },
    };
    let parts = Parts {
        checks: record.checks.into_iter().map(check).collect(),
        holds: record.holds.into_iter().map(hold).collect(),
        create_missing: record.create_missing,
        locks: record.locks.into_iter().map(lock).collect(),
        event: record.event.map(|(stream, event)| PartEvent::new(stream.into_owned(), &event)),
    };
    let request =
        Decide::new(record.operation_id.into_owned(), parts).and_then(|new| new.with_ttl(record.ttl));
    let request = request.map_err(de::Error::custom)?.with_owner(record.owner.map(Cow::into_owned));
    Ok(Arc::new(request))
}
