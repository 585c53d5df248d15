//! Brings an engine that was loaded up to date with what another engine has stored since.
//!
//! The next owner of a shard loads it while the present owner still decides. Then it follows what the owner stores, record by record.
//! This is possible for the records that change all the time. A record of another kind requires to load the engine again.

use super::{BadRecord, Engine, Sizes, namespace::Namespace};
use crate::{
    idempotency,
    ids::NamespaceId,
    record::{
        self, Malformed,
        key::{self, Resident, ResidentKey},
    },
    sweep::Sweeping,
};
use alloc::vec::Vec;
use bytes::Bytes;

impl Engine {
    /// Replaces resident records by the after-images of one batch, which another engine has stored. This engine must have been loaded
    /// from all records before that batch, and must not have decided anything. `None` removes a record.
    ///
    /// Returns false if this engine cannot be brought up to date. Then it must not be used any more.
    pub fn amend(
        &mut self,
        records: impl IntoIterator<Item = (Bytes, Option<Bytes>)>,
    ) -> Result<bool, BadRecord> {
        let mut records: Vec<(Bytes, Option<Bytes>)> = records.into_iter().collect();
        // In the order in which they are loaded.
        records.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        for (key, value) in records {
            match self.amend_record(&key, value.as_deref()) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(Malformed) => return Err(BadRecord { key }),
            }
        }
        Ok(true)
    }

    fn amend_record(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<bool, Malformed> {
        match (key::parse_resident(key).ok_or(Malformed)?, value) {
            (Resident::ShardMeta, Some(bytes)) => {
                self.meta = record::decode(bytes)?;
                Ok(true)
            }
            (Resident::Sweep(id), Some(bytes)) => {
                let sweep: record::Sweep = record::decode(bytes)?;
                self.sweeps.insert(id, Sweeping { from: sweep.from.into(), to: sweep.to.into() });
                Ok(true)
            }
            (Resident::Sweep(id), None) => {
                self.sweeps.remove(&id);
                Ok(true)
            }
            (Resident::Namespace(id), Some(bytes)) => self.amend_head(id, bytes),
            (Resident::Family(key), value) => self.amend_family(key, value),
            (Resident::ShardMeta | Resident::Namespace(_), None) | (Resident::Restored, _) => Ok(false),
        }
    }

    fn amend_head(&mut self, id: NamespaceId, bytes: &[u8]) -> Result<bool, Malformed> {
        let head: record::NamespaceHead = record::decode(bytes)?;
        let Some(namespace) = self.names.get(&id).and_then(|name| self.namespaces.get_mut(name)) else {
            return Ok(false);
        };
        if namespace.head.name != head.name {
            return Ok(false);
        }
        let before = namespace.sizes();
        if let Some(replies) = namespace.head.replies {
            self.context.timers.cancel(idempotency::drop_timer(id, replies.first).0);
        }
        if let Some(replies) = head.replies {
            let (key, timer) = idempotency::drop_timer(id, replies.first);
            self.context.timers.set(key, timer);
        }
        (namespace.head.position, namespace.head.replies) = (head.position, head.replies);
        self.context.sizes.change(before, namespace.sizes());
        Ok(true)
    }

    fn amend_family(&mut self, key: ResidentKey<'_>, value: Option<&[u8]>) -> Result<bool, Malformed> {
        let namespace = self.names.get(&key.namespace).and_then(|name| self.namespaces.get_mut(name));
        // A record without a namespace is left over from a deleted one, and a pending sweep removes it.
        let Some(namespace) = namespace else { return Ok(true) };
        let before: Sizes = namespace.sizes();
        let Namespace { families, .. } = &mut **namespace;
        let is_amended = families.amend(key, value, self.meta.time, &mut self.context.timers)?;
        self.context.sizes.change(before, namespace.sizes());
        Ok(is_amended)
    }
}
