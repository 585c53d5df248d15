//! Creates a new store from a file.

use super::file::{Common, FileError, Piece, Reader, Totals};
use crate::{progress::Progress, restored};
use limina_engine::{
    Name, NamespaceId,
    record::{self, NamespaceHead, ShardMeta, key},
};
use limina_node::shard_of;
use limina_store::{Batch, BulkLoader, Record, Records, ShardId};
use std::{error::Error, io::Read};

/// Records are collected in memory up to this many bytes, then written. With more bytes, the table gets fewer and larger
/// files.
const COLLECTED_BYTES: usize = 128 << 20;

/// A file that cannot be imported.
#[derive(Debug, thiserror::Error)]
#[error("the file {name} cannot be imported")]
pub(super) struct Unreadable {
    pub(super) name: String,
    #[source]
    pub(super) source: FileError,
}

/// Reads the whole file into the new store.
pub(super) async fn import(
    mut reader: Reader<impl Read>,
    name: &str,
    common: Common,
    filling: impl BulkLoader,
) -> Result<Totals, Box<dyn Error>> {
    let unreadable = |source| Unreadable { name: name.to_string(), source };
    let mut progress = Progress::new();
    let mut importing = Importing::new(filling);
    while let Piece::Records { namespace, batch } = reader.next().map_err(unreadable)? {
        importing.take(&namespace, &batch).await?;
        progress.report(|| format!("imported {} so far", reader.totals()));
    }
    importing.finish(common).await?;
    Ok(reader.totals())
}

/// Assigns namespaces to the shards of the new store.
struct Importing<F> {
    filling: F,
    shards: Vec<Shard>,
    collected_bytes: usize,
    /// The namespace that is being read, with its new shard and number.
    current: Option<(Name, usize, NamespaceId)>,
}

#[derive(Default)]
struct Shard {
    next_namespace: u32,
    /// Records that are not written yet.
    records: Records,
}

impl<F: BulkLoader> Importing<F> {
    fn new(filling: F) -> Importing<F> {
        let shards = (0..filling.sharding().shards).map(|_| Shard::default()).collect();
        Importing { filling, shards, collected_bytes: 0, current: None }
    }

    async fn take(&mut self, namespace: &Name, batch: &Batch) -> Result<(), Box<dyn Error>> {
        let (shard, id) = self.place(namespace, batch)?;
        let mut placed = Vec::new();
        for image in batch.images() {
            let key = key::with_namespace(id, image.key)
                .ok_or("a record of the file has a key of no known kind")?;
            placed.push(Record {
                key: key.into_bytes(),
                value: image.value.map(|value| value.to_vec().into()),
            });
        }
        let records = &mut self.shards[shard].records;
        let before = records.bytes();
        records.insert(&placed.into());
        self.collected_bytes += records.bytes() - before;
        if self.collected_bytes >= COLLECTED_BYTES {
            self.write().await?;
        }
        Ok(())
    }

    /// Shard and number of the namespace. They are assigned with its first piece.
    fn place(&mut self, namespace: &Name, batch: &Batch) -> Result<(usize, NamespaceId), String> {
        if let Some((_, shard, id)) = self.current.as_ref().filter(|(name, ..)| name == namespace) {
            return Ok((*shard, *id));
        }
        let shard = usize::from(shard_of(namespace.as_str(), self.filling.sharding()).0);
        let next = &mut self.shards[shard].next_namespace;
        let id = NamespaceId(*next);
        *next += 1;
        let first = batch.images().next().filter(|first| {
            key::with_namespace(id, first.key).is_some_and(|key| *key == *key::namespace(id))
        });
        let head: Option<NamespaceHead> = first.and_then(|head| record::decode(head.value?).ok());
        if head.is_none_or(|head| head.name != *namespace) {
            return Err(format!("in the file the namespace {namespace} does not begin with its head"));
        }
        self.current = Some((namespace.clone(), shard, id));
        Ok((shard, id))
    }

    /// Writes the records of each shard itself last, when the number of its namespaces is known.
    async fn finish(mut self, common: Common) -> Result<(), Box<dyn Error>> {
        for shard in &mut self.shards {
            let meta = ShardMeta {
                time: common.time,
                next_namespace: shard.next_namespace,
                position_floor: common.position_floor,
                next_sweep: 0,
                first_audit: None,
                grace_at: None,
            };
            let mut value = Vec::new();
            record::encode_into(&meta, &mut value);
            let meta = Record { key: key::shard_meta(), value: Some(value.into()) };
            // The file is older than what its store did afterwards.
            shard.records.insert(&vec![meta, restored::mark(1)].into());
        }
        self.write().await?;
        Ok(self.filling.finish().await?)
    }

    async fn write(&mut self) -> Result<(), Box<dyn Error>> {
        for (shard, number) in self.shards.iter_mut().zip(0..) {
            let records = std::mem::take(&mut shard.records);
            if !records.is_empty() {
                self.filling.put(ShardId(number), records).await?;
            }
        }
        self.collected_bytes = 0;
        Ok(())
    }
}
