//! From what is stored to an engine.

use super::{Desk, Engine, Options, Sizes};
use crate::{
    Name, Position, Time, idempotency,
    namespace::Namespace,
    record::{
        self, Malformed,
        key::{self, NamespaceId, Resident},
    },
    sweep::Sweeping,
    timers::{SetBy, Timer, TimerKey},
};
use alloc::collections::BTreeMap;
use bytes::Bytes;
use core::fmt;
use hashbrown::HashMap;

/// An engine that takes in its resident records.
#[derive(Debug)]
pub struct Loading(Engine);

/// A stored record that the engine cannot take in: damage, or another version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRecord {
    /// The record's key.
    pub key: Bytes,
}

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the stored record under key ")?;
        self.key.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(" is damaged or of another version")
    }
}

impl core::error::Error for BadRecord {}

impl Engine {
    /// Takes in all resident records, in key order.
    pub fn open(
        options: Options,
        residents: impl IntoIterator<Item = (Bytes, Bytes)>,
    ) -> Result<Engine, BadRecord> {
        let mut loading = Loading::new(options);
        residents.into_iter().try_for_each(|(key, value)| loading.take(key, &value))?;
        Ok(loading.finish())
    }
}

impl Loading {
    /// An engine that holds nothing yet.
    pub fn new(options: Options) -> Loading {
        let meta = record::ShardMeta {
            time: Time(0),
            next_namespace: 0,
            position_floor: Position(0),
            next_sweep: 0,
        };
        Loading(Engine {
            options,
            meta,
            stored_time: Time(0),
            namespaces: BTreeMap::new(),
            names: HashMap::new(),
            sweeps: BTreeMap::new(),
            next_wait: 0,
            desk: Desk::new(),
        })
    }

    /// Takes in the next resident record, in key order ([`key::residents`] is their range).
    pub fn take(&mut self, key: Bytes, value: &[u8]) -> Result<(), BadRecord> {
        self.0.load(&key, value).map_err(|Malformed| BadRecord { key })
    }

    /// That was all.
    pub fn finish(mut self) -> Engine {
        self.0.stored_time = self.0.meta.time;
        let Engine { meta, namespaces, desk, .. } = &mut self.0;
        for Namespace { id, families, .. } in namespaces.values_mut() {
            families.limiter.finish_load(meta.time, *id, &mut desk.timers);
            families.locks.finish_load(*id, &mut desk.timers);
            families.events.finish_load(*id, &mut desk.timers);
            desk.sizes.change(Sizes::default(), families.sizes());
        }
        self.0
    }
}

impl Engine {
    fn load(&mut self, key: &[u8], bytes: &[u8]) -> Result<(), Malformed> {
        match key::parse_resident(key).ok_or(Malformed)? {
            Resident::ShardMeta => self.meta = record::decode(bytes)?,
            Resident::Sweep(id) => {
                let sweep: record::Sweep = record::decode(bytes)?;
                self.sweeps.insert(id, Sweeping { from: sweep.from.into(), to: sweep.to.into() });
            }
            Resident::Namespace(id) => self.load_head(id, bytes)?,
            Resident::LedgerLimit(id, number) => {
                return self.load_into(id, |namespace| namespace.families.ledger.load_limit(number, bytes));
            }
            Resident::LedgerBalance(id, number) => {
                return self.load_into(id, |namespace| namespace.families.ledger.load_balance(number, bytes));
            }
            Resident::LedgerExpiry(namespace, due, held_at) => {
                let operation_id: Name = record::decode(bytes)?;
                if self.names.contains_key(&namespace) {
                    let timer = Timer::LedgerExpiry { operation_id, held_at, due };
                    let set_by = SetBy::Change(held_at);
                    self.desk.timers.set(TimerKey { due, namespace, set_by }, timer);
                }
            }
            Resident::LimiterRule(id, rule) => {
                return self.load_into(id, |namespace| namespace.families.limiter.load_rule(rule, bytes));
            }
            Resident::LimiterOverride(id, rule, _) => {
                return self.load_into(id, |namespace| namespace.families.limiter.load_override(rule, bytes));
            }
            Resident::LimiterWindow(id, place) => {
                return self.load_into(id, |namespace| namespace.families.limiter.load_window(place, bytes));
            }
            Resident::LimiterCounter(id, place) => {
                return self.load_into(id, |namespace| namespace.families.limiter.load_counter(place, bytes));
            }
            Resident::LimiterLease(id, _) => {
                return self.load_into(id, |namespace| namespace.families.limiter.load_lease(bytes));
            }
            Resident::EventStream(id, stream) => {
                return self.load_into(id, |namespace| namespace.families.events.load_stream(stream, bytes));
            }
            Resident::EventKey(id, stream, key) => {
                return self
                    .load_into(id, |namespace| namespace.families.events.load_key(stream, key, bytes));
            }
            Resident::Lock(id, token) => {
                return self.load_into(id, |namespace| namespace.families.locks.load(token, bytes));
            }
        }
        Ok(())
    }

    /// What belongs to no namespace is left of a deleted one, and being swept.
    fn load_into(
        &mut self,
        id: NamespaceId,
        load: impl FnOnce(&mut Namespace) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        self.namespace_mut(id).map_or(Ok(()), load)
    }

    fn load_head(&mut self, id: NamespaceId, bytes: &[u8]) -> Result<(), Malformed> {
        let head: record::NamespaceHead = record::decode(bytes)?;
        if let Some((first, _)) = head.replies {
            let (key, timer) = idempotency::drop_timer(id, first);
            self.desk.timers.set(key, timer);
        }
        self.names.insert(id, head.name.clone());
        let mut namespace = Namespace::new(id, head.name.clone(), head.position);
        namespace.head.replies = head.replies;
        match self.namespaces.insert(head.name, namespace) {
            None => Ok(()),
            Some(_) => Err(Malformed),
        }
    }
}
