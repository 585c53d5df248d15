//! The filter of keys in the database: it saves look-ups, and whatever happens to it, it never calls a known key new.

use crate::database;
use limina_store::{
    Answer, BulkLoader, FilterCounts, FilteredKeys, Read, Record, Records, Seq, ShardId, ShardStore,
    ShardStoreOptions,
    postgres::{Postgres, PostgresLoader},
};
use std::sync::{Arc, atomic::Ordering};

const SHARD: ShardId = ShardId(2);
const KNOWN: u64 = 500;

type Store = ShardStore<Postgres, Postgres>;

fn key(number: u64) -> bytes::Bytes {
    format!("id-{number:06}").into()
}

/// Opens the shard as another node, which has taken it.
async fn open(url: &str, node: u64) -> (Store, Arc<FilterCounts>) {
    let postgres = Arc::new(database::connect_as_owner(url, node).await.expect("connect"));
    let opened = ShardStore::open(postgres.clone(), postgres, SHARD, ShardStoreOptions::default()).await;
    let (mut store, counts) = (opened.expect("open"), Arc::<FilterCounts>::default());
    let (range, counted) = ("id".into().."ie".into(), counts.clone());
    store.filter_keys(FilteredKeys { range, is_filtered: |key| key.starts_with(b"id-"), counts: counted });
    (store, counts)
}

async fn append(store: &Store, numbers: impl Iterator<Item = u64>, is_stored: bool) {
    let value = || is_stored.then(|| "value".into());
    let records: Vec<Record> = numbers.map(|number| Record { key: key(number), value: value() }).collect();
    store.append(store.seq().next(), records).await.expect("append");
}

/// Looks up each key, and returns how many are there.
async fn count(store: &Store, numbers: impl Iterator<Item = u64>) -> usize {
    let answers = store.read(numbers.map(|number| Read::Get(key(number))).collect()).await;
    answers.iter().filter(|answer| matches!(answer, Ok(Answer::Value(Some(_))))).count()
}

/// Checks that all known keys are found, and that new keys are not looked up once the filter is there.
async fn check(url: &str, node: u64, known: u64) -> Store {
    let (store, counts) = open(url, node).await;
    assert_eq!(count(&store, 0..known).await, known as usize, "before the filter is read");
    assert!(store.needs_filter());
    store.load_filter().await.expect("load_filter");
    assert!(!store.needs_filter());
    assert_eq!(count(&store, 0..known).await, known as usize);
    let before = counts.looked_up.load(Ordering::Relaxed);
    assert_eq!(count(&store, known..known + 1000).await, 0);
    let in_vain = counts.looked_up.load(Ordering::Relaxed) - before;
    assert!(in_vain < 50, "{in_vain} of 1000 new keys were looked up");
    store
}

/// A database with a shard whose table has known keys, and a filter of them.
async fn filled() -> String {
    let url = database::new_database();
    let store = check(&url, 1, 0).await;
    append(&store, 0..KNOWN, true).await;
    store.checkpoint().await.expect("checkpoint");
    url
}

async fn execute(url: &str, sql: &str) {
    database::execute(url, sql, &[]).await;
}

/// A node has stored the filter of an empty shard before the import.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_an_import_are_known() {
    let url = database::new_database();
    let suspended = check(&url, 1, 0).await;
    execute(&url, "UPDATE limina.node SET expires_at = now()").await;
    let mut import = PostgresLoader::begin(&url, None).await.expect("nobody uses the database");
    let records = (0..KNOWN).map(|number| Record { key: key(number), value: Some("value".into()) });
    import.put(SHARD, Records::from_iter(records)).await.expect("put");
    import.finish().await.expect("finish");
    check(&url, 2, KNOWN).await;
    let late = suspended.append(suspended.seq().next(), vec![Record { key: key(0), value: None }]).await;
    assert!(late.is_err(), "a node from before the import has written over it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_keys_are_not_looked_up() {
    let url = filled().await;
    let store = check(&url, 2, KNOWN).await;
    // Keys of the journal are known from the overlay, and of the next checkpoint from the filter.
    append(&store, KNOWN..KNOWN + 100, true).await;
    check(&url, 3, KNOWN + 100).await.checkpoint().await.expect("checkpoint");
    let store = check(&url, 4, KNOWN + 100).await;
    assert!(store.filter_bytes() > 0);
    store.drop_filter();
    assert_eq!(store.filter_bytes(), 0);
    assert_eq!(count(&store, 0..KNOWN + 200).await, KNOWN as usize + 100);
}

/// A removed key is still in the filter, and may come again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_key_is_looked_up_and_not_found() {
    let url = filled().await;
    let store = check(&url, 2, KNOWN).await;
    append(&store, 0..KNOWN / 2, false).await;
    store.checkpoint().await.expect("checkpoint");
    assert_eq!(count(&store, 0..KNOWN).await, KNOWN as usize / 2);
    append(&store, 0..KNOWN / 2, true).await;
    store.checkpoint().await.expect("checkpoint");
    check(&url, 3, KNOWN).await;
}

/// A checkpoint stores its filter first. If it ends there, the filter has more keys than the table. If the filter was lost on the way,
/// it belongs to an older checkpoint than the table, and is made again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filter_that_was_lost_or_does_not_fit_is_made_again() {
    for (node, trouble) in [
        "DELETE FROM limina.filter",
        "UPDATE limina.filter SET upto = upto - 1, bits = set_byte(bits, 60, 0)",
        "UPDATE limina.filter SET upto = upto + 7",
        "UPDATE limina.filter SET bits = substr(bits, 1, 100)",
        "UPDATE limina.filter SET part = 1",
        "INSERT INTO limina.filter SELECT shard, 1, upto, bits || bits FROM limina.filter WHERE part = 0",
    ]
    .into_iter()
    .enumerate()
    {
        let url = filled().await;
        execute(&url, trouble).await;
        let store = check(&url, 2 + node as u64, KNOWN).await;
        append(&store, KNOWN..KNOWN + 10, true).await;
        store.checkpoint().await.expect("checkpoint");
        check(&url, 12 + node as u64, KNOWN + 10).await;
    }
}

/// While the keys of the table are read for a new filter, a checkpoint adds others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_while_the_filter_is_made() {
    let url = filled().await;
    execute(&url, "DELETE FROM limina.filter").await;
    let (store, _) = open(&url, 2).await;
    append(&store, KNOWN..KNOWN + 300, true).await;
    let (loaded, done) = tokio::join!(store.load_filter(), store.checkpoint());
    loaded.expect("load_filter");
    assert_eq!(done.expect("checkpoint"), Some(Seq(2)));
    assert_eq!(count(&store, 0..KNOWN + 300).await, KNOWN as usize + 300);
    check(&url, 3, KNOWN + 300).await;
}

/// A node that has lost the shard cannot change the filter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_owner_stores_no_filter() {
    let url = filled().await;
    let store = check(&url, 2, KNOWN).await;
    append(&store, KNOWN..KNOWN + 10, true).await;
    let next = check(&url, 3, KNOWN + 10).await;
    store.checkpoint().await.expect_err("another node owns the shard");
    next.checkpoint().await.expect("checkpoint");
    check(&url, 4, KNOWN + 10).await;
}
