//! Makes an engine from stored records.

use super::{Context, Engine, Sizes, namespace::Namespace};
use crate::{
    Options, Position, Time, decisions, idempotency,
    ids::NamespaceId,
    ledger,
    record::{
        self, Malformed,
        key::{self, Resident},
    },
    sweep::Sweeping,
};
use alloc::{boxed::Box, collections::BTreeMap, vec::Vec};
use bytes::Bytes;
use core::fmt;
use hashbrown::HashMap;

/// Whether a record is kept under an id that a client has chosen: commands look for it, and mostly find that the id is new. A store may
/// have a filter of these keys. A stored filter must be made anew when this function changes.
pub fn is_kept_by_id(key: &[u8]) -> bool {
    const KINDS: [u8; 4] =
        [key::REPLY, ledger::keys::OPERATION, decisions::keys::ENDED, decisions::keys::ENDED_IN_PERIOD];
    key::paged_kind(key).is_some_and(|kind| KINDS.contains(&kind))
}

/// An engine whose resident records are being loaded.
#[derive(Debug)]
pub struct Loading {
    engine: Engine,
    /// The namespace whose records are being loaded, if there is one. Its records follow its own record, so that it need not
    /// be looked up for each of them.
    current: Option<Namespace>,
    /// How often the positions must jump, if the shard was restored.
    restores: Option<u64>,
}

/// A stored record that cannot be loaded: it is damaged or has another version.
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
    /// Makes an engine from all resident records, in key order.
    pub fn open(
        options: Options,
        residents: impl IntoIterator<Item = (Bytes, Bytes)>,
    ) -> Result<Engine, BadRecord> {
        let mut loading = Loading::new(options);
        residents.into_iter().try_for_each(|(key, value)| loading.load(key, &value))?;
        Ok(loading.finish())
    }
}

impl Loading {
    /// Begins with an empty engine.
    pub fn new(options: Options) -> Loading {
        let meta = record::ShardMeta {
            time: Time(0),
            next_namespace: 0,
            position_floor: Position(0),
            next_sweep: 0,
            first_audit: None,
            grace_at: None,
        };
        let engine = Engine {
            context: Context::new(options.max_answer),
            options,
            meta,
            is_meta_stored: true,
            namespaces: BTreeMap::new(),
            names: HashMap::new(),
            sweeps: BTreeMap::new(),
            next_wait: 1,
            jumped: None,
            discards: Vec::new(),
        };
        Loading { engine, current: None, restores: None }
    }

    /// Loads the next resident record. Records must come in key order; [`key::residents`] is their range.
    pub fn load(&mut self, key: Bytes, value: &[u8]) -> Result<(), BadRecord> {
        self.load_record(&key, value).map_err(|Malformed| BadRecord { key })
    }

    /// Completes the engine, after the last record.
    pub fn finish(mut self) -> Engine {
        self.finish_namespace();
        let mut engine = self.engine;
        let Engine { meta, namespaces, context, .. } = &mut engine;
        for namespace in namespaces.values_mut() {
            let Namespace { id, families, .. } = &mut **namespace;
            families.ledger.finish_load();
            families.limiter.finish_load(meta.time, *id, &mut context.timers);
            families.locks.finish_load(*id, &mut context.timers);
            families.events.finish_load(*id, &mut context.timers);
            context.sizes.change(Sizes::default(), namespace.sizes());
        }
        if let Some(restores) = self.restores {
            engine.handle_mark(restores);
        }
        engine
    }

    fn load_record(&mut self, key: &[u8], bytes: &[u8]) -> Result<(), Malformed> {
        match key::parse_resident(key).ok_or(Malformed)? {
            Resident::ShardMeta => self.engine.meta = record::decode(bytes)?,
            Resident::Restored => self.restores = Some(record::decode(bytes)?),
            Resident::Sweep(id) => {
                let sweep: record::Sweep = record::decode(bytes)?;
                self.engine.sweeps.insert(id, Sweeping { from: sweep.from.into(), to: sweep.to.into() });
            }
            Resident::Namespace(id) => self.load_head(id, bytes)?,
            // A record without a namespace is left over from a deleted one, and a pending sweep removes it.
            Resident::Family(key) => {
                let namespace = self.current.as_mut().filter(|current| current.id == key.namespace);
                if let Some(namespace) = namespace {
                    namespace.families.load(key, bytes, &mut self.engine.context.timers)?;
                }
            }
        }
        Ok(())
    }

    fn load_head(&mut self, id: NamespaceId, bytes: &[u8]) -> Result<(), Malformed> {
        let head: record::NamespaceHead = record::decode(bytes)?;
        if let Some(replies) = head.replies {
            let (key, timer) = idempotency::drop_timer(id, replies.first);
            self.engine.context.timers.set(key, timer);
        }
        self.finish_namespace();
        if self.engine.namespaces.contains_key(&head.name) {
            return Err(Malformed);
        }
        self.engine.names.insert(id, head.name.clone());
        let namespace =
            self.current.insert(Namespace::new(id, head.name, head.position, &self.engine.options.quotas));
        namespace.head.replies = head.replies;
        Ok(())
    }

    /// All records of the current namespace are loaded.
    fn finish_namespace(&mut self) {
        if let Some(namespace) = self.current.take() {
            self.engine.namespaces.insert(namespace.head.name.clone(), Box::new(namespace));
        }
    }
}
