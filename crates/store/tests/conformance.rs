//! The conformance suite over every store of this crate.

use crate::database;
use limina_store::{
    NodeId, StoreError,
    conformance::{Factory, Stop, journal, model, prepared, table, tenure},
    embedded::{Embedded, EmbeddedOptions},
    memory::{Cluster, Memory, MemoryNode, MemoryOptions, SurvivingData},
    postgres::Postgres,
};
use proptest::prelude::*;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tempfile::TempDir;

#[derive(Default)]
struct InMemory {
    remains: Option<SurvivingData>,
    openings: u64,
}

impl Factory for InMemory {
    type Store = Memory;

    async fn open(&mut self) -> Result<Arc<Memory>, StoreError> {
        self.openings += 1;
        let options = MemoryOptions { seed: self.openings, ..MemoryOptions::default() };
        let memory = match self.remains.take() {
            Some(remains) => Memory::open(remains, &options)?,
            None => Memory::new(&options)?,
        };
        Ok(Arc::new(memory))
    }

    async fn stop(&mut self, store: Arc<Memory>, how: Stop) {
        self.remains = Some(match how {
            Stop::Clean => {
                store.idle().expect("seal");
                store.kill()
            }
            Stop::Kill => store.kill(),
            Stop::PowerLoss(seed) => store.crash(seed),
        });
    }
}

struct InDirectory(TempDir);

impl Default for InDirectory {
    fn default() -> Self {
        InDirectory(TempDir::new().expect("a temporary directory"))
    }
}

impl Factory for InDirectory {
    type Store = Embedded;

    async fn open(&mut self) -> Result<Arc<Embedded>, StoreError> {
        let options = EmbeddedOptions {
            shards: Some(8),
            segment_bytes: 64 << 10,
            reserve_bytes: Some(0),
            ..EmbeddedOptions::default()
        };
        Embedded::open(self.0.path(), options).map(Arc::new)
    }

    async fn stop(&mut self, store: Arc<Embedded>, how: Stop) {
        if how == Stop::Clean {
            store.close().await.expect("close");
        }
        assert!(Arc::into_inner(store).is_some(), "somebody still holds the store");
    }
}

struct InDatabase {
    url: String,
    openings: u64,
}

impl Default for InDatabase {
    fn default() -> Self {
        InDatabase { url: database::new_database(), openings: 0 }
    }
}

impl Factory for InDatabase {
    type Store = Postgres;

    async fn open(&mut self) -> Result<Arc<Postgres>, StoreError> {
        self.openings += 1;
        database::connect_as_owner(&self.url, self.openings).await.map(Arc::new)
    }

    async fn stop(&mut self, store: Arc<Postgres>, how: Stop) {
        if how == Stop::Clean {
            store.close().await;
        }
        assert!(Arc::into_inner(store).is_some(), "somebody still holds the store");
    }
}

macro_rules! conformance {
    ($($area:ident :: $case:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test] async fn $case() { super::$area::$case(super::InMemory::default()).await; })*
        }
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { super::$area::$case(super::InDirectory::default()).await; })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { super::$area::$case(super::InDatabase::default()).await; })*
        }
    };
}

conformance! {
    journal::appends_survive,
    journal::openings_without_appends,
    journal::shards_append_together,
    journal::older_epochs_are_fenced,
    journal::gaps_are_refused,
    journal::released_appends_go,
    journal::an_idle_shard_keeps_its_appends,
    journal::large_payloads,
    table::look_ups,
    table::checkpoints_replace_and_remove,
    table::checkpoints_survive,
    table::histories_are_found_at_every_key,
    table::histories_are_removed_bit_by_bit,
}

struct NodesInMemory(Arc<Cluster>);

impl Default for NodesInMemory {
    fn default() -> Self {
        NodesInMemory(Cluster::new(&MemoryOptions::default()).expect("memory"))
    }
}

impl tenure::Cluster for NodesInMemory {
    type Node = MemoryNode;

    async fn node(&mut self, id: NodeId) -> Arc<MemoryNode> {
        self.0.node(id)
    }

    async fn pass(&mut self, time: Duration) {
        self.0.advance(time);
    }

    async fn disconnect(&mut self, id: NodeId) {
        self.0.disconnect(id);
    }
}

struct NodesOverDatabase {
    url: String,
}

impl Default for NodesOverDatabase {
    fn default() -> Self {
        NodesOverDatabase { url: database::new_database() }
    }
}

impl tenure::Cluster for NodesOverDatabase {
    type Node = Postgres;

    async fn node(&mut self, id: NodeId) -> Arc<Postgres> {
        Arc::new(database::connect(&self.url, id.0).await.expect("connect"))
    }

    /// The database's clock cannot be advanced, but the stored times that it is compared with can be moved back.
    async fn pass(&mut self, time: Duration) {
        for move_back in [
            "UPDATE limina.node SET expires_at = expires_at - $1 * interval '1 second'",
            "UPDATE limina.shard SET handed_at = handed_at - $1 * interval '1 second'",
        ] {
            database::execute(&self.url, move_back, &[&time.as_secs_f64()]).await;
        }
    }

    async fn disconnect(&mut self, id: NodeId) {
        let session = "SELECT pg_terminate_backend(session) FROM limina.node WHERE id = $1";
        let rows = database::client(&self.url).await.query_one(session, &[&id.0.cast_signed()]).await;
        assert!(rows.expect("the node has a session").get::<_, bool>(0));
    }
}

macro_rules! tenure {
    ($($area:ident :: $case:ident),* $(,)?) => {
        mod nodes_in_memory {
            $(#[tokio::test]
            async fn $case() { super::$area::$case(super::NodesInMemory::default()).await; })*
        }
        mod nodes_over_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { super::$area::$case(super::NodesOverDatabase::default()).await; })*
        }
    };
}

tenure! {
    tenure::nodes_see_each_other,
    tenure::one_claim_wins,
    tenure::stale_claims_fail,
    tenure::a_living_owner_keeps_its_shards,
    tenure::a_tenure_ends_early_with_its_session,
    tenure::many_are_claimed_at_once,
    tenure::giving_hands_over,
    tenure::tenure_runs_out,
    tenure::an_address_is_one_nodes,
    tenure::leaving_frees,
    tenure::nodes_are_notified_of_changes,
    prepared::only_the_tail_is_read,
    prepared::a_checkpoint_of_what_was_read,
    prepared::a_checkpoint_of_what_was_not_read,
    prepared::another_epoch_voids_a_preparation,
}

fn step() -> impl Strategy<Value = model::Step> {
    use model::{HISTORIES, KEYS, Step};
    let change = (0..KEYS, proptest::option::weighted(0.6, any::<u16>()));
    // More steps than a run takes, and fewer.
    let count = prop_oneof![3 => 1..6u16, 1 => 250..600u16];
    let place = (0..=HISTORIES, prop_oneof![0..30u16, 0..2000u16]);
    let stop = prop_oneof![Just(Stop::Clean), Just(Stop::Kill), any::<u64>().prop_map(Stop::PowerLoss)];
    prop_oneof![
        6 => proptest::collection::vec(change, 0..8).prop_map(|changes| Step::Append(BTreeMap::from_iter(changes))),
        5 => (0..KEYS, 0..KEYS, 0..12usize).prop_map(|(from, to, limit)| Step::Look(from, to, limit)),
        5 => proptest::collection::btree_map(0..HISTORIES, count, 0..3).prop_map(Step::Extend),
        5 => (place.clone(), place, 0..400usize).prop_map(|(from, to, limit)| Step::LookIntoHistories(from, to, limit)),
        1 => (0..HISTORIES).prop_map(Step::Forget),
        3 => Just(Step::Checkpoint),
        2 => Just(Step::LoadFilter),
        1 => Just(Step::Retake),
        1 => stop.prop_map(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 50, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn memory_agrees_with_the_model(steps in proptest::collection::vec(step(), 0..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(model::check(InMemory::default(), steps));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn embedded_agrees_with_the_model(steps in proptest::collection::vec(step(), 0..40)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
        runtime.block_on(model::check(InDirectory::default(), steps));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn postgres_agrees_with_the_model(steps in proptest::collection::vec(step(), 0..40)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        runtime.expect("a runtime").block_on(model::check(InDatabase::default(), steps));
    }
}
