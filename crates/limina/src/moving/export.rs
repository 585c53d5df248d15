//! From a store that nobody changes meanwhile to a file.

use super::file::{Common, Header, Totals, Writer};
use crate::progress::Progress;
use bytes::Bytes;
use limina_engine::{
    Name, Position, Time,
    record::{
        self, NamespaceHead, ShardMeta, Sweep,
        key::{self, NamespaceId, Resident},
    },
};
use limina_store::{Journal, ShardId, ShardStore, ShardStoreOptions, StoreError, Table};
use std::{collections::BTreeMap, error::Error, io::Write, ops::Range, sync::Arc};

/// How many records are read at a time.
const PAGE: usize = 1024;

/// A shard that is read.
struct Source<S> {
    store: ShardStore<S, S>,
    meta: Option<ShardMeta>,
    /// What is to be removed, from where to where: it counts as gone.
    swept: BTreeMap<Bytes, Bytes>,
}

/// Where a namespace is found.
struct Found {
    name: Name,
    shard: usize,
    id: NamespaceId,
}

/// Writes everything that the store holds: namespace after namespace, by name, each with its records by key.
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
        progress.tell(|| format!("{} of {shards} shards are opened", sources.len()));
    }
    namespaces.sort_unstable_by(|a: &Found, b| a.name.cmp(&b.name));
    let mut writer = Writer::begin(out, header, common(&sources))?;
    for Found { name, shard, id } in &namespaces {
        for range in key::all_of_namespace(*id) {
            let source = &sources[*shard];
            let mut pages = Pages::new(range);
            while let Some(page) = pages.next(&source.store).await? {
                for (key, value) in page.into_iter().filter(|(key, _)| !source.is_swept(key)) {
                    let (_, key) = key::take_out(&key).ok_or_else(|| bad(&key))?;
                    writer.record(name, key.done(), value)?;
                }
                progress.tell(|| format!("exported {} so far", writer.totals()));
            }
        }
    }
    Ok(writer.finish()?)
}

/// No shard of the new store may be behind any of the old one: neither in time, nor in the positions that namespaces which
/// are gone have used.
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
        let own = key::shard_meta();
        let meta = match store.scan(own.clone(), key::sweeps().start, 1).await?.pop() {
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

    /// A namespace's first record is its head. One without a head was deleted, and the rest of it is being swept.
    async fn find_namespaces(&self, shard: usize, found: &mut Vec<Found>) -> Result<(), Box<dyn Error>> {
        let mut next = NamespaceId(0);
        loop {
            let range = key::namespaces_from(next);
            let Some((key, value)) = self.store.scan(range.start, range.end, 1).await?.pop() else {
                return Ok(());
            };
            let (id, _) = key::take_out(&key).ok_or_else(|| bad(&key))?;
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

fn bad(key: &Bytes) -> limina_engine::engine::BadRecord {
    limina_engine::engine::BadRecord { key: key.clone() }
}
