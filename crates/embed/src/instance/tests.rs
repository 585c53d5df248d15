//! An instance whose shard panics.

use super::*;
use crate::{Failure, Limina, Metrics, ledger::NewLimit};
use bytes::Bytes;
use limina_node::NodeOptions;
use limina_store::{
    AppendError, ConfirmError, Epoch, FreeSpace, Journal, JournalStats, Seq, ShardId,
    memory::{self, Memory, MemoryOptions},
};
use std::sync::atomic::{AtomicBool, Ordering};

/// A journal whose appends panic on demand.
struct Panicking {
    inner: Arc<Memory>,
    panics: AtomicBool,
}

impl Journal for Panicking {
    async fn take(&self, shard: ShardId) -> Result<Epoch, StoreError> {
        self.inner.take(shard).await
    }

    async fn tail(&self, shard: ShardId, epoch: Epoch, after: Seq) -> Result<Vec<(Seq, Bytes)>, StoreError> {
        self.inner.tail(shard, epoch, after).await
    }

    async fn append(&self, shard: ShardId, epoch: Epoch, seq: Seq, bytes: Bytes) -> Result<(), AppendError> {
        assert!(!self.panics.load(Ordering::Acquire), "on purpose");
        self.inner.append(shard, epoch, seq, bytes).await
    }

    async fn confirm(&self, shard: ShardId, epoch: Epoch, seq: Seq) -> Result<(), ConfirmError> {
        self.inner.confirm(shard, epoch, seq).await
    }

    fn release(&self, shard: ShardId, upto: Seq) {
        self.inner.release(shard, upto);
    }

    fn free_space(&self) -> FreeSpace {
        self.inner.free_space()
    }

    fn stats(&self) -> JournalStats {
        self.inner.stats()
    }
}

#[tokio::test]
async fn a_shard_that_panics_returns_failures() {
    let options = MemoryOptions { shards: 1, ..MemoryOptions::default() };
    let table = Arc::new(Memory::new(&options).unwrap());
    let journal = Arc::new(Panicking { inner: table.clone(), panics: AtomicBool::new(false) });
    let metrics = Metrics::new();
    let service = Service::new(metrics.clone());
    let (sharding, options) = (memory::sharding(1), NodeOptions::default());
    let node = Node::start(service.clone(), metrics, journal.clone(), table, sharding, options);
    let limina = Limina::new(service, Running::in_memory(node.await.unwrap()));
    let ledger = limina.namespace("shop").unwrap().ledger();
    ledger.create_limit(NewLimit::new("a")).await.unwrap();

    journal.panics.store(true, Ordering::Release);
    let lost = ledger.create_limit(NewLimit::new("b")).await.unwrap_err();
    assert_eq!(lost.failure(), Some(&Failure::OutcomeUnknown));
    let failed = limina.failed().await;
    assert!(matches!(&failed, InstanceFailure::Node(NodeFailure::Shard { shard: 0, .. })), "{failed:?}");
    assert_eq!(ledger.limit("a").await.unwrap_err().failure(), Some(&Failure::Unavailable));
    limina.close().await.unwrap();
    assert_eq!(ledger.limit("a").await.unwrap_err().failure(), Some(&Failure::Closed));
}
