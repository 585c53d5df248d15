//! Opening, closing, dropping.

use limina_embed::{
    Failure, Limina, OpenError,
    ledger::NewLimit,
    locks::{Acquire, Lock},
};
use std::{path::Path, time::Duration};

async fn open(directory: &Path) -> Limina {
    Limina::builder().shards(2).open(directory).await.unwrap()
}

async fn create(limina: &Limina, name: &str) {
    limina.namespace("shop").unwrap().ledger().create_limit(NewLimit::new(name)).await.unwrap();
}

async fn exists(limina: &Limina, name: &str) -> bool {
    limina.namespace("shop").unwrap().ledger().limit(name).await.is_ok()
}

#[tokio::test]
async fn what_was_written_is_there_after_close() {
    let directory = tempfile::tempdir().unwrap();
    let limina = open(directory.path()).await;
    create(&limina, "a").await;
    let ledger = limina.namespace("shop").unwrap().ledger();
    limina.close().await.unwrap();
    limina.close().await.unwrap();
    assert_eq!(ledger.limit("a").await.unwrap_err().failure(), Some(&Failure::Closed));
    // The directory is free although handles of the closed instance exist.
    assert!(exists(&open(directory.path()).await, "a").await);
}

#[tokio::test]
async fn what_was_written_is_there_after_a_drop() {
    let directory = tempfile::tempdir().unwrap();
    let limina = open(directory.path()).await;
    create(&limina, "a").await;
    drop(limina);
    assert!(exists(&open(directory.path()).await, "a").await);
}

/// As in a crash, every task of the instance is gone at once, and nothing is flushed or closed.
#[test]
fn what_was_written_is_there_after_the_runtime_ended() {
    let directory = tempfile::tempdir().unwrap();
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let first = runtime();
    let limina = first.block_on(async {
        let limina = open(directory.path()).await;
        create(&limina, "a").await;
        limina
    });
    drop(first);
    drop(limina);
    runtime().block_on(async {
        assert!(exists(&open(directory.path()).await, "a").await);
    });
}

#[tokio::test]
async fn a_handle_keeps_the_instance() {
    let ledger = Limina::in_memory().await.unwrap().namespace("shop").unwrap().ledger();
    ledger.create_limit(NewLimit::new("a")).await.unwrap();
    ledger.limit("a").await.unwrap();
}

#[tokio::test]
async fn a_directory_has_one_instance() {
    let directory = tempfile::tempdir().unwrap();
    let limina = open(directory.path()).await;
    let error = Limina::open(directory.path()).await.unwrap_err();
    assert!(matches!(error, OpenError::Store(_)), "{error:?}");
    assert!(error.to_string().contains("is in use by"), "{error}");
    create(&limina, "a").await;
    limina.close().await.unwrap();
    let other = Limina::builder().shards(3).open(directory.path()).await.unwrap_err();
    assert!(other.to_string().contains("2 shards"), "{other}");
}

#[tokio::test]
async fn calls_in_progress_are_answered_when_an_instance_closes() {
    let limina = Limina::in_memory().await.unwrap();
    let locks = limina.namespace("shop").unwrap().locks();
    let chair = || {
        let locks = vec![Lock::exclusive([("item", "chair")]).unwrap()];
        let request = Acquire::new(locks, Duration::from_secs(30)).unwrap();
        request.with_wait(Duration::from_secs(300)).unwrap()
    };
    let held = locks.acquire(chair()).await.unwrap();
    let (waiting, closed) = tokio::join!(locks.acquire(chair()), async {
        while locks.get(held.grant.lock_id.as_str()).await.unwrap().waiting == 0 {
            tokio::task::yield_now().await;
        }
        limina.close().await
    });
    closed.unwrap();
    assert_eq!(waiting.unwrap_err().failure(), Some(&Failure::Closed));
}
