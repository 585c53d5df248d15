//! Reading a whole database while a node uses it, and loading a new one.

use crate::database::{SHARDS, connect_as_owner, execute, new_database};
use bytes::Bytes;
use limina_store::{
    BulkLoader, Journal, Record, Records, Seq, ShardId, ShardStore, ShardStoreOptions, StoreError, Table,
    postgres::{PostgresLoader, PostgresSnapshot, append_at_rest},
};
use std::sync::Arc;

const SHARD: ShardId = ShardId(3);

fn record(key: &'static str, value: Option<&'static str>) -> Record {
    Record { key: Bytes::from_static(key.as_bytes()), value: value.map(|value| value.as_bytes().into()) }
}

async fn open<S: Journal + Table>(store: &Arc<S>) -> ShardStore<S, S> {
    ShardStore::open(store.clone(), store.clone(), SHARD, ShardStoreOptions::default()).await.unwrap()
}

/// Checks the whole content of the shard.
#[track_caller]
fn holds(found: Vec<(Bytes, Bytes)>, expect: &[(&str, &str)]) {
    let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    let found: Vec<(String, String)> = found.iter().map(|(key, value)| (text(key), text(value))).collect();
    let expect: Vec<(String, String)> =
        expect.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    assert_eq!(found, expect);
}

async fn scan<S: Journal + Table>(store: &ShardStore<S, S>) -> Vec<(Bytes, Bytes)> {
    store.scan(Bytes::new(), Bytes::from_static(&[0xff]), 100).await.unwrap()
}

/// The text of the refusal.
fn refusal<T>(result: Result<T, StoreError>) -> String {
    match result {
        Err(StoreError::Unusable(words)) => words,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was not refused"),
    }
}

#[tokio::test]
async fn a_snapshot_is_one_instant_and_the_owner_continues() {
    let url = new_database();
    let node = Arc::new(connect_as_owner(&url, 1).await.unwrap());
    let owner = open(&node).await;
    owner.append(Seq(1), vec![record("a", Some("1")), record("b", Some("1"))]).await.unwrap();
    owner.checkpoint().await.unwrap();
    owner.append(Seq(2), vec![record("a", Some("2")), record("c", Some("2"))]).await.unwrap();

    let snapshot = Arc::new(PostgresSnapshot::take(&url).await.unwrap());
    assert_eq!(snapshot.shards(), SHARDS);
    owner.append(Seq(3), vec![record("a", Some("3")), record("b", None)]).await.unwrap();
    owner.checkpoint().await.unwrap();

    holds(scan(&open(&snapshot).await).await, &[("a", "2"), ("b", "1"), ("c", "2")]);
    owner.confirm().await.unwrap();
    owner.append(Seq(4), vec![record("d", Some("4"))]).await.unwrap();
    holds(scan(&owner).await, &[("a", "3"), ("c", "2"), ("d", "4")]);
}

#[tokio::test]
async fn an_import_is_visible_only_when_complete() {
    let (url, long) = (new_database(), "x".repeat(5000));
    let long: &'static str = long.leak();
    for is_whole in [false, true] {
        assert!(refusal(PostgresSnapshot::take(&url).await).contains("holds no data of limina"));
        let mut filling = PostgresLoader::begin(&url, Some(SHARDS)).await.unwrap();
        filling.put(SHARD, Records::from_iter([record("b", Some("2"))])).await.unwrap();
        filling
            .put(SHARD, Records::from_iter([record("a", Some("1")), record(long, Some("3"))]))
            .await
            .unwrap();
        if is_whole {
            filling.finish().await.unwrap();
        }
    }
    assert!(refusal(PostgresLoader::begin(&url, None).await).contains("is not empty"));
    let owner = open(&Arc::new(connect_as_owner(&url, 1).await.unwrap())).await;
    holds(scan(&owner).await, &[("a", "1"), ("b", "2"), (long, "3")]);
    owner.append(Seq(1), vec![record("b", Some("4"))]).await.unwrap();
    owner.checkpoint().await.unwrap();
    holds(scan(&owner).await, &[("a", "1"), ("b", "4"), (long, "3")]);
}

#[tokio::test]
async fn an_import_into_a_database_in_use_is_refused() {
    let url = new_database();
    let node = connect_as_owner(&url, 1).await.unwrap();
    assert!(refusal(PostgresLoader::begin(&url, None).await).contains("is in use by a node"));
    limina_store::Tenure::leave(&node).await.unwrap();
    let words = refusal(PostgresLoader::begin(&url, Some(SHARDS + 1)).await);
    assert!(words.contains("was created with 8 shards"), "{words}");
    PostgresLoader::begin(&url, None).await.unwrap();
}

/// Appends that are made while no node runs are read by the next owner. A node that was suspended cannot append any
/// more.
#[tokio::test]
async fn a_database_at_rest_can_be_appended_to() {
    let url = new_database();
    let suspended = Arc::new(connect_as_owner(&url, 1).await.unwrap());
    let before = open(&suspended).await;
    before.append(Seq(1), vec![record("a", Some("1"))]).await.unwrap();
    let append = async |seq| {
        let batch = vec![record("a", Some("2")), record("b", Some("2"))].into();
        append_at_rest(&url, vec![(SHARD, Seq(seq), batch)]).await
    };
    assert!(refusal(append(2).await).contains("is in use by a node"));
    execute(&url, "UPDATE limina.node SET expires_at = now()", &[]).await;
    assert!(matches!(append(3).await, Err(StoreError::Unavailable(_))), "append 2 is missing");
    append(2).await.unwrap();
    before.append(Seq(2), vec![record("a", Some("lost"))]).await.unwrap_err();
    let owner = open(&Arc::new(connect_as_owner(&url, 2).await.unwrap())).await;
    holds(scan(&owner).await, &[("a", "2"), ("b", "2")]);
    assert_eq!(owner.seq(), Seq(2));
}
