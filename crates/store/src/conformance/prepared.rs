//! The cases of a shard that the next owner reads before it is handed over. Every store that several nodes share must pass them.

use super::{
    bytes, page, records,
    tenure::{A, B, Cluster, SHARD, claim, holding, view},
};
use crate::{Batch, Epoch, Journal, Preparation, Seq, ShardStore, ShardStoreOptions, Table, Tenure};
use std::sync::Arc;

/// The shard as its owner uses it.
struct Owner<N> {
    node: Arc<N>,
    store: ShardStore<N, N>,
}

impl<N: Journal + Table + Tenure> Owner<N> {
    async fn new(node: Arc<N>) -> Owner<N> {
        claim(&*node).await;
        let store = ShardStore::open(node.clone(), node.clone(), SHARD, ShardStoreOptions::default()).await;
        Owner { node, store: store.expect("open") }
    }

    async fn append(&self, text: &str) {
        self.store.append(self.store.seq().next(), records(text)).await.expect("append");
    }

    async fn checkpoint(&self) {
        self.store.checkpoint().await.expect("checkpoint");
    }

    async fn give(&self) {
        let given = self.node.give(SHARD, self.store.epoch(), Some(B), 0).await;
        assert!(given.expect("give"), "it was the owner");
    }
}

async fn begin<N: Journal + Table + Tenure>(node: &Arc<N>) -> Preparation<N, N> {
    let epoch = holding(&view(&**node).await).epoch;
    Preparation::begin(node.clone(), node.clone(), SHARD, epoch).await.expect("begin")
}

/// Opens a prepared shard, and checks its content and how many appends were read last. `None` means: all of them.
async fn check_opened<N: Journal + Table>(
    preparation: Preparation<N, N>,
    tail: Option<usize>,
    content: &str,
) -> ShardStore<N, N> {
    let (store, read) = preparation.open(ShardStoreOptions::default()).await.expect("open");
    assert_eq!(read.map(|batches: Vec<Batch>| batches.len()), tail);
    check_content(&store, content).await;
    store
}

async fn check_content<N: Journal + Table>(store: &ShardStore<N, N>, content: &str) {
    let found = store.scan(bytes(""), bytes("~"), 100).await.expect("scan");
    assert_eq!(page(&found), content);
}

/// After a hand-over, only the appends are read that were not read before. All else is as after any opening.
pub async fn only_the_tail_is_read(mut cluster: impl Cluster) {
    let (a, b) = (cluster.node(A).await, cluster.node(B).await);
    let owner = Owner::new(a).await;
    owner.append("a=1 b=1").await;
    owner.checkpoint().await;
    owner.append("c=1").await;
    let mut preparation = begin(&b).await;
    assert_eq!(preparation.len(), 1);
    let mut rest = bytes("")..bytes("~");
    assert_eq!(page(&preparation.next_page(&mut rest, 1).await.expect("page")), "a=1");
    assert_eq!(page(&preparation.next_page(&mut rest, 1).await.expect("page")), "b=1");
    assert_eq!(preparation.next_page(&mut rest, 1).await.expect("page"), []);
    owner.append("a=2").await;
    owner.append("b c=2").await;
    assert_eq!(preparation.follow().await.expect("follow"), 2);
    assert_eq!(preparation.follow().await.expect("follow"), 0);
    owner.append("d=1").await;
    owner.give().await;
    let store = check_opened(preparation, Some(1), "a=2 c=2 d=1").await;
    store.append(Seq(6), records("e=1 d")).await.expect("it goes on");
    store.checkpoint().await.expect("checkpoint");
    check_content(&store, "a=2 c=2 e=1").await;
}

/// A checkpoint of the owner changes the table, and releases appends of the journal. The next owner has read all of them, so its
/// overlay begins after the checkpoint.
pub async fn a_checkpoint_of_what_was_read(mut cluster: impl Cluster) {
    let (a, b) = (cluster.node(A).await, cluster.node(B).await);
    let owner = Owner::new(a).await;
    owner.append("a=1 b=1").await;
    owner.append("c=1").await;
    let mut preparation = begin(&b).await;
    owner.append("b c=2").await;
    assert_eq!(preparation.follow().await.expect("follow"), 1);
    owner.checkpoint().await;
    owner.append("d=1").await;
    owner.give().await;
    let store = check_opened(preparation, Some(1), "a=1 c=2 d=1").await;
    let backlog = store.backlog();
    assert_eq!((backlog.records, backlog.since), (1, Some(Seq(4))), "the checkpoint is not repeated");
    store.checkpoint().await.expect("checkpoint");
    check_content(&store, "a=1 c=2 d=1").await;
}

/// The table contains an append that the next owner has not read, and that the journal may have released.
pub async fn a_checkpoint_of_what_was_not_read(mut cluster: impl Cluster) {
    let (a, b) = (cluster.node(A).await, cluster.node(B).await);
    let owner = Owner::new(a).await;
    owner.append("a=1 b=1").await;
    let preparation = begin(&b).await;
    owner.append("b c=1").await;
    owner.checkpoint().await;
    owner.append("d=1").await;
    owner.give().await;
    let store = check_opened(preparation, None, "a=1 c=1 d=1").await;
    store.append(Seq(4), records("e=1")).await.expect("it goes on");
}

/// If the shard was taken meanwhile, by its owner or by another node, nothing that was read before is used.
pub async fn another_epoch_voids_a_preparation(mut cluster: impl Cluster) {
    let (a, b) = (cluster.node(A).await, cluster.node(B).await);
    let owner = Owner::new(a).await;
    owner.append("a=1").await;
    let mut preparation = begin(&b).await;
    owner.store.retake().await.expect("retake");
    assert!(preparation.follow().await.is_err());
    owner.append("b=1").await;
    owner.give().await;
    check_opened(preparation, None, "a=1 b=1").await;
    let none = Preparation::begin(b.clone(), b, SHARD, Epoch(1)).await;
    assert!(none.is_err(), "that epoch is past");
}
