//! From a file to a new store.

use super::file::{Common, FileError, Piece, Reader, Totals};
use crate::progress::Progress;
use limina_engine::{
    Name, NamespaceId,
    record::{self, NamespaceHead, ShardMeta, key},
};
use limina_node::shard_of;
use limina_store::{Batch, Filling, Record, Records, ShardId};
use std::{error::Error, io::Read};

/// So many bytes are gathered before they are written: the more, the fewer and larger the pieces of the table.
const GATHERED_BYTES: usize = 128 << 20;

/// A file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the file {name} cannot be imported")]
pub(super) struct Unreadable {
    pub(super) name: String,
    #[source]
    pub(super) source: FileError,
}

/// Reads all of the file into the new store.
pub(super) async fn import(
    mut reader: Reader<impl Read>,
    name: &str,
    common: Common,
    filling: impl Filling,
) -> Result<Totals, Box<dyn Error>> {
    let unreadable = |source| Unreadable { name: name.to_string(), source };
    let mut progress = Progress::new();
    let mut importing = Importing::new(filling);
    while let Piece::Records { namespace, batch } = reader.next().map_err(unreadable)? {
        importing.take(&namespace, &batch).await?;
        progress.tell(|| format!("imported {} so far", reader.totals()));
    }
    importing.finish(common).await?;
    Ok(reader.totals())
}

/// Places namespaces in the new shards.
struct Importing<F> {
    filling: F,
    shards: Vec<Shard>,
    gathered_bytes: usize,
    /// The namespace that is being read, and where it goes.
    current: Option<(Name, usize, NamespaceId)>,
}

#[derive(Default)]
struct Shard {
    next_namespace: u32,
    /// What is not written yet.
    records: Records,
}

impl<F: Filling> Importing<F> {
    fn new(filling: F) -> Importing<F> {
        let shards = (0..filling.shards()).map(|_| Shard::default()).collect();
        Importing { filling, shards, gathered_bytes: 0, current: None }
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
        self.gathered_bytes += records.bytes() - before;
        if self.gathered_bytes >= GATHERED_BYTES {
            self.write().await?;
        }
        Ok(())
    }

    /// Shard and number of the namespace: as before, or new ones if this is its first piece.
    fn place(&mut self, namespace: &Name, batch: &Batch) -> Result<(usize, NamespaceId), String> {
        if let Some((_, shard, id)) = self.current.as_ref().filter(|(name, ..)| name == namespace) {
            return Ok((*shard, *id));
        }
        let shard = usize::from(shard_of(namespace.as_str(), self.filling.shards()).0);
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

    /// Each shard's own record comes last.
    async fn finish(mut self, common: Common) -> Result<(), Box<dyn Error>> {
        for shard in &mut self.shards {
            let meta = ShardMeta {
                time: common.time,
                next_namespace: shard.next_namespace,
                position_floor: common.position_floor,
                next_sweep: 0,
            };
            let mut value = Vec::new();
            record::encode_into(&meta, &mut value);
            shard.records.insert(&vec![Record { key: key::shard_meta(), value: Some(value.into()) }].into());
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
        self.gathered_bytes = 0;
        Ok(())
    }
}
