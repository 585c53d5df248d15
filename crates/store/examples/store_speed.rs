//! How fast the embedded store appends, checkpoints and opens on this machine. Usage: store_speed DIRECTORY
//!
//! The directory must be on the disk in question, and new.

use bytes::Bytes;
use limina_store::{
    Record, Seq, ShardId, ShardStore, ShardStoreOptions,
    embedded::{Embedded, EmbeddedOptions},
};
use std::{error::Error, path::PathBuf, sync::Arc, time::Instant};

const BATCHES: u64 = 8000;
const RECORDS: u64 = 256;
const SHARDS: u16 = 4;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory: PathBuf = std::env::args().nth(1).ok_or("which directory?")?.into();
    let store = Arc::new(Embedded::open(&directory, EmbeddedOptions::default())?);

    let begun = Instant::now();
    let writers = (0..SHARDS).map(|shard| tokio::spawn(append_all(store.clone(), ShardId(shard))));
    let mut latencies = Vec::new();
    let mut shards = Vec::new();
    for writer in writers.collect::<Vec<_>>() {
        let (shard, mut micros) = writer.await?;
        shards.push(shard);
        latencies.append(&mut micros);
    }
    let seconds = begun.elapsed().as_secs_f64();
    latencies.sort_unstable();
    let at = |part: f64| latencies[(latencies.len() as f64 * part) as usize];
    let records = BATCHES * RECORDS;
    println!("append: {:.0} records/s, p50 {} µs, p99 {} µs", records as f64 / seconds, at(0.5), at(0.99));
    println!("journal: {:?}", store.stats());

    drop(shards);
    store.close().await?;
    drop(store);
    let begun = Instant::now();
    let store = Arc::new(Embedded::open(&directory, EmbeddedOptions::default())?);
    println!("open with the journal unreleased: {:?}", begun.elapsed());

    for shard in (0..SHARDS).map(ShardId) {
        let begun = Instant::now();
        let shard =
            ShardStore::open(store.clone(), store.clone(), shard, ShardStoreOptions::default()).await?;
        let opened = begun.elapsed();
        let backlog = shard.backlog().records;
        shard.checkpoint().await?;
        println!(
            "shard: opened in {opened:?}, {backlog} records checkpointed in {:?}",
            begun.elapsed() - opened
        );
    }
    Ok(())
}

async fn append_all(store: Arc<Embedded>, shard: ShardId) -> (ShardStore<Embedded, Embedded>, Vec<u64>) {
    let options = ShardStoreOptions { hard_bytes: usize::MAX, ..ShardStoreOptions::default() };
    let opened = ShardStore::open(store.clone(), store, shard, options).await.expect("the shard opens");
    let mut micros = Vec::new();
    for seq in 1..=BATCHES / u64::from(SHARDS) {
        let record = |number: u64| Record {
            key: Bytes::copy_from_slice(&(seq * RECORDS + number).to_be_bytes()),
            value: Some(Bytes::from(vec![number as u8; 92])),
        };
        let records = (0..RECORDS).map(record).collect();
        let begun = Instant::now();
        opened.append(Seq(seq), records).await.expect("the append succeeds");
        micros.push(begun.elapsed().as_micros() as u64);
    }
    (opened, micros)
}
