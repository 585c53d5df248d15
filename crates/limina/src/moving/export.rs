//! Writes a store to a file. Nothing may change the store meanwhile.

use super::file::{Common, Header, Totals, Writer};
use crate::progress::Progress;
use bytes::Bytes;
use limina_engine::{
    Name, NamespaceId, Position, Time,
    engine::BadRecord,
    record::{
        self, NamespaceHead, ShardMeta, Sweep,
        key::{self, Resident},
    },
};
use limina_store::{Journal, ShardId, ShardStore, ShardStoreOptions, StoreError, Table};
use std::{collections::BTreeMap, error::Error, io::Write, ops::Range, sync::Arc};

/// The number of records that one read returns.
const PAGE: usize = 1024;

/// A shard to export.
struct Source<S> {
    store: ShardStore<S, S>,
    meta: Option<ShardMeta>,
    /// Ranges that are being removed, from the first key to the key after the last. Records in them are not exported.
    swept: BTreeMap<Bytes, Bytes>,
}

/// The location of a namespace.
struct Found {
    name: Name,
    shard: usize,
    id: NamespaceId,
}

/// Writes everything in the store: the namespaces by name, and the records of each by key.
pub(super) async fn export<S: Journal + Table>(
    store: Arc<S>,
    shards: u16,
    out: impl Write,
    header: &Header,
    progress: &mut Progress,
) -> Result<Totals, Box<dyn Error>> {
    let mut sources = Vec::new();
    let mut namespaces = Vec::new();
    for shard in 0..shards {
        let source = Source::open(store.clone(), ShardId(shard)).await?;
        source.find_namespaces(usize::from(shard), &mut namespaces).await?;
        sources.push(source);
        progress.report(|| format!("{} of {shards} shards are opened", sources.len()));
    }
    namespaces.sort_unstable_by(|a: &Found, b| a.name.cmp(&b.name));
    let mut writer = Writer::begin(out, header, common(&sources))?;
    for Found { name, shard, id } in &namespaces {
        for range in key::namespace_ranges(*id) {
            let source = &sources[*shard];
            let mut pages = Pages::new(range);
            while let Some(page) = pages.next(&source.store).await? {
                for (key, value) in page.into_iter().filter(|(key, _)| !source.is_swept(key)) {
                    let (_, key) = key::split_namespace(&key).ok_or_else(|| bad(&key))?;
                    writer.record(name, key.into_bytes(), value)?;
                }
                progress.report(|| format!("exported {} so far", writer.totals()));
            }
        }
    }
    Ok(writer.finish()?)
}

/// Time and position floor for the shards of the new store. A namespace may move to another shard, so every new shard gets the
/// maximum of all old shards: time must not go back, and a position that a deleted namespace used must not be used again.
fn common<S>(sources: &[Source<S>]) -> Common {
    let metas = || sources.iter().filter_map(|source| source.meta.as_ref());
    Common {
        time: metas().map(|meta| meta.time).max().unwrap_or(Time(0)),
        position_floor: metas().map(|meta| meta.position_floor).max().unwrap_or(Position(0)),
    }
}

impl<S: Journal + Table> Source<S> {
    async fn open(store: Arc<S>, shard: ShardId) -> Result<Source<S>, Box<dyn Error>> {
        let store = ShardStore::open(store.clone(), store, shard, ShardStoreOptions::default()).await?;
        let meta = match store.scan(key::shard_meta(), key::sweeps().start, 1).await?.pop() {
            Some((key, value)) => Some(record::decode(&value).map_err(|_| bad(&key))?),
            None => None,
        };
        let mut swept = BTreeMap::new();
        let mut pages = Pages::new(key::sweeps());
        while let Some(page) = pages.next(&store).await? {
            for (key, value) in page {
                let sweep: Sweep = record::decode(&value).map_err(|_| bad(&key))?;
                swept.insert(sweep.from.into(), sweep.to.into());
            }
        }
        Ok(Source { store, meta, swept })
    }

    /// The first record of a namespace is its head. A namespace without a head was deleted, and a sweep is removing the rest of
    /// it.
    async fn find_namespaces(&self, shard: usize, found: &mut Vec<Found>) -> Result<(), Box<dyn Error>> {
        let mut next = NamespaceId(0);
        loop {
            let range = key::namespaces_from(next);
            let Some((key, value)) = self.store.scan(range.start, range.end, 1).await?.pop() else {
                return Ok(());
            };
            let (id, _) = key::split_namespace(&key).ok_or_else(|| bad(&key))?;
            if key::parse_resident(&key) == Some(Resident::Namespace(id)) {
                let head: NamespaceHead = record::decode(&value).map_err(|_| bad(&key))?;
                found.push(Found { name: head.name, shard, id });
            }
            next = NamespaceId(id.0 + 1);
        }
    }

    fn is_swept(&self, key: &Bytes) -> bool {
        self.swept.range(..=key.clone()).next_back().is_some_and(|(_, to)| key < to)
    }
}

/// A range of records, page by page.
struct Pages {
    rest: Range<Bytes>,
    is_done: bool,
}

impl Pages {
    fn new(range: Range<Bytes>) -> Pages {
        Pages { rest: range, is_done: false }
    }

    async fn next<S: Journal + Table>(
        &mut self,
        store: &ShardStore<S, S>,
    ) -> Result<Option<Vec<(Bytes, Bytes)>>, StoreError> {
        if self.is_done {
            return Ok(None);
        }
        let page = store.scan(self.rest.start.clone(), self.rest.end.clone(), PAGE).await?;
        self.is_done = page.len() < PAGE;
        if let Some((last, _)) = page.last() {
            self.rest.start = [last, &[0][..]].concat().into();
        }
        Ok(Some(page))
    }
}

fn bad(key: &Bytes) -> BadRecord {
    BadRecord { key: key.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moving::file::{Piece, Reader};
    use limina_store::{
        Record, Seq,
        memory::{Memory, MemoryOptions},
    };
    use serde::Serialize;

    fn put(key: &[u8], value: &impl Serialize) -> Record {
        let mut bytes = Vec::new();
        record::encode_into(value, &mut bytes);
        Record { key: Bytes::copy_from_slice(key), value: Some(bytes.into()) }
    }

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn head(id: u32, text: &str) -> Record {
        let head = NamespaceHead { name: name(text), position: Position(1), replies: None };
        put(&key::namespace(NamespaceId(id)), &head)
    }

    fn meta(time: u64, floor: u64) -> Record {
        let (time, position_floor) = (Time(time), Position(floor));
        put(
            &key::shard_meta(),
            &ShardMeta {
                time,
                next_namespace: 9,
                position_floor,
                next_sweep: 9,
                first_audit: None,
                grace_at: None,
            },
        )
    }

    fn sweep(id: u64, range: Range<Bytes>) -> Record {
        put(&key::sweep(id), &Sweep { from: range.start.to_vec(), to: range.end.to_vec() })
    }

    fn reply(id: u32, period: u32) -> Record {
        put(&key::reply(NamespaceId(id), period, None, &name("key")), &0_u8)
    }

    async fn append(store: &Arc<Memory>, shard: u16, records: Vec<Record>) {
        let options = ShardStoreOptions::default();
        let store = ShardStore::open(store.clone(), store.clone(), ShardId(shard), options).await.unwrap();
        store.append(Seq(1), records).await.unwrap();
    }

    /// Exports these shards. Returns what the file says about all shards, and the namespace and key of each record.
    async fn exported(shards: Vec<Vec<Record>>) -> (Common, Vec<(String, Vec<u8>)>) {
        let options = MemoryOptions::default();
        let store = Arc::new(Memory::new(&options).unwrap());
        let count = shards.len() as u16;
        for (shard, records) in (0..).zip(shards) {
            append(&store, shard, records).await;
        }
        let header = Header { version: "1".to_string(), made_at: 0 };
        let mut file = Vec::new();
        export(store, count, &mut file, &header, &mut Progress::new()).await.unwrap();
        let (mut reader, _, common) = Reader::open(&file[..]).unwrap();
        let mut found = Vec::new();
        while let Piece::Records { namespace, batch } = reader.next().unwrap() {
            found.extend(batch.images().map(|image| (namespace.to_string(), image.key.to_vec())));
        }
        (common, found)
    }

    fn in_file(records: &[(&str, Record)]) -> Vec<(String, Vec<u8>)> {
        let taken_out = |key: &Bytes| key::split_namespace(key).unwrap().1.to_vec();
        records.iter().map(|(namespace, record)| (namespace.to_string(), taken_out(&record.key))).collect()
    }

    #[tokio::test]
    async fn namespaces_are_sorted_and_the_shards_values_are_the_maxima() {
        let shards = vec![
            vec![meta(5, 3), head(0, "c"), head(4, "a"), reply(4, 7)],
            vec![],
            vec![meta(4, 8), head(4, "b"), reply(4, 7)],
        ];
        let expect = in_file(&[
            ("a", head(0, "a")),
            ("a", reply(0, 7)),
            ("b", head(0, "b")),
            ("b", reply(0, 7)),
            ("c", head(0, "c")),
        ]);
        assert_eq!(exported(shards).await, (Common { time: Time(5), position_floor: Position(8) }, expect));
    }

    #[tokio::test]
    async fn records_being_swept_are_not_exported() {
        let [residents, paged, histories] = key::namespace_ranges(NamespaceId(1));
        let limit = |id| put(&key::resident(NamespaceId(id), 0x10).u32(0), &0_u8);
        let entry = |id| put(&key::history(NamespaceId(id), 0x10).u32(0).u64(1), &0_u8);
        let shard = vec![
            meta(5, 3),
            sweep(0, residents),
            sweep(1, paged),
            sweep(2, histories),
            sweep(3, key::replies(NamespaceId(2), 6)),
            // The first namespace lives, the second was deleted, and the third lost an old period of replies.
            head(0, "a"),
            reply(0, 6),
            entry(0),
            limit(1),
            reply(1, 6),
            entry(1),
            head(2, "b"),
            reply(2, 5),
            reply(2, 6),
            reply(2, 7),
        ];
        let expect = in_file(&[
            ("a", head(0, "a")),
            ("a", reply(0, 6)),
            ("a", entry(0)),
            ("b", head(0, "b")),
            ("b", reply(0, 5)),
            ("b", reply(0, 7)),
        ]);
        assert_eq!(exported(vec![shard]).await.1, expect);
    }
}
