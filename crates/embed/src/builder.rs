//! Opening: options, stores, and what can go wrong.

use crate::{Limina, instance::Running};
use limina_engine::{Millis, QuotaTable};
use limina_node::{Metrics, Node, NodeOptions, Service};
use limina_store::{
    ShardStoreOptions, Sharding, ShardingKey, StoreError,
    memory::{Memory, MemoryOptions},
};
use std::{pin::Pin, sync::Arc};

/// Options of an instance. [`Limina::builder`] makes one with the defaults; the last call names the store.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limina = limina_embed::Limina::builder().shards(4).in_memory().await?;
/// # limina.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
#[must_use = "a builder opens nothing before its store is named"]
pub struct Builder {
    shards: Option<u16>,
    #[cfg(feature = "embedded")]
    embedded: limina_store::embedded::EmbeddedOptions,
    #[cfg(feature = "postgres")]
    pub(crate) database: crate::postgres::DatabaseOptions,
    node: NodeOptions,
    service: Option<(Service, Metrics)>,
}

/// Why an instance could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The store cannot be opened: it is in use by another instance, damaged, of another version, was created with another
    /// number of shards, or cannot be reached.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A shard cannot be loaded from the store.
    #[error(transparent)]
    Shard(#[from] limina_node::OpenError),
    /// Another process uses the database. An instance that was not opened with [`Builder::cluster`] needs a database of its
    /// own.
    #[cfg(feature = "postgres")]
    #[error("the database is in use by another process: {0}")]
    DatabaseInUse(String),
    /// Another node of the cluster has the address of this one.
    #[cfg(feature = "postgres")]
    #[error(transparent)]
    AddressTaken(#[from] limina_node::AddressTaken),
    /// The operating system returned no random numbers.
    #[error(transparent)]
    NoRandomNumbers(#[from] limina_node::NoRandomNumbers),
}

impl Builder {
    /// The number of shards of a new store, from 1 to 65,534; 64 by default (8 in memory). Each namespace is in one shard, and shards
    /// work in parallel. The number is fixed when a store is created: opening it with another number fails.
    pub fn shards(mut self, shards: u16) -> Builder {
        self.shards = Some(shards);
        self
    }

    /// The journal size in bytes that triggers a checkpoint. The default is 1 GiB.
    pub fn journal_bytes(mut self, bytes: u64) -> Builder {
        self.node.journal_bytes = bytes;
        self
    }

    /// The bytes of one shard's new records in memory that trigger a checkpoint. The default is 64 MiB. At four times this
    /// size, writes to the shard wait for the checkpoint.
    pub fn checkpoint_bytes(mut self, bytes: usize) -> Builder {
        self.node.store = ShardStoreOptions { soft_bytes: bytes, hard_bytes: bytes.saturating_mul(4) };
        self
    }

    /// How much each namespace may have. By default nothing is bounded. What would exceed a quota is refused with the
    /// `QuotaExceeded` of the family, for example [`limiter::Refusal::QuotaExceeded`](crate::limiter::Refusal). A
    /// namespace that already has more keeps it.
    pub fn quotas(mut self, quotas: QuotaTable) -> Builder {
        self.node.quotas = Arc::new(quotas);
        self
    }

    /// How long the audit of management commands is kept. The default is 400 days.
    pub fn audit_kept(mut self, kept: std::time::Duration) -> Builder {
        self.node.audit_kept = Millis(u64::try_from(kept.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// The longest time that a request may wait for its shard. The default is 250 ms. A request that would wait longer is refused
    /// at once with [`Failure::Overloaded`](crate::Failure::Overloaded).
    pub fn max_wait(mut self, max_wait: std::time::Duration) -> Builder {
        self.node.queue.max_wait = max_wait;
        self
    }

    /// Serves on a service that exists already, instead of a new one, and counts with its metrics. A server uses this to
    /// answer probes before its store is open.
    pub fn service(mut self, service: Service, metrics: Metrics) -> Builder {
        self.service = Some((service, metrics));
        self
    }

    /// Opens an instance whose data are gone when it is closed or dropped. For tests, and for state that need not last.
    pub async fn in_memory(self) -> Result<Limina, OpenError> {
        self.open_memory().await
    }

    fn open_memory(self) -> Opening {
        Box::pin(async move {
            let defaults = MemoryOptions::default();
            let options = MemoryOptions {
                shards: self.shards.unwrap_or(defaults.shards),
                segment_bytes: 1 << 20,
                reserve_bytes: 0,
                seed: defaults.seed,
            };
            let sharding = Sharding { shards: options.shards, key: ShardingKey::draw()? };
            let store = Arc::new(Memory::new(&options)?);
            let (service, metrics) = self.service.unwrap_or_else(new_service);
            let node =
                Node::start(service.clone(), metrics, store.clone(), store, sharding, self.node).await?;
            Ok(Limina::new(service, Running::in_memory(node)))
        })
    }
}

#[cfg(feature = "embedded")]
impl Builder {
    /// The size of a journal segment in bytes. The default is 64 MiB. Only [`Builder::open`] uses it.
    pub fn journal_segment_bytes(mut self, bytes: u64) -> Builder {
        self.embedded.segment_bytes = bytes;
        self
    }

    /// The free disk space in bytes below which writes fail with [`Failure::StorageFull`](crate::Failure::StorageFull). The
    /// default is two journal segments, and at least 64 MiB. Only [`Builder::open`] uses it.
    pub fn storage_reserve_bytes(mut self, bytes: u64) -> Builder {
        self.embedded.reserve_bytes = Some(bytes);
        self
    }

    /// The most files of the table that stay open between look-ups. The default is 384. Only [`Builder::open`] uses it.
    pub fn cached_table_files(mut self, files: usize) -> Builder {
        self.embedded.cached_files = files;
        self
    }

    /// Memory for the table's block cache, in bytes. The default is 64 MiB. Only [`Builder::open`] uses it.
    pub fn table_cache_bytes(mut self, bytes: u64) -> Builder {
        self.embedded.cache_bytes = bytes;
        self
    }

    /// Opens the store in this directory, or creates it.
    ///
    /// A directory belongs to one instance at a time, in this process or any other; a second one is refused with
    /// [`OpenError::Store`]. If an earlier instance of this process was dropped without [`Limina::close`], this waits until
    /// that instance has ended.
    pub async fn open(self, directory: impl AsRef<std::path::Path>) -> Result<Limina, OpenError> {
        self.open_directory(directory.as_ref().to_owned()).await
    }

    fn open_directory(self, directory: std::path::PathBuf) -> Opening {
        use limina_store::embedded::{Embedded, EmbeddedOptions};

        Box::pin(async move {
            crate::instance::until_free(&directory).await;
            let options = EmbeddedOptions { shards: self.shards, ..self.embedded };
            let opening = {
                let directory = directory.clone();
                tokio::task::spawn_blocking(move || Embedded::open(&directory, options))
            };
            let store = opening.await.map_err(|error| StoreError::Unavailable(error.to_string()))??;
            let store = Arc::new(store);
            let (service, metrics) = self.service.unwrap_or_else(new_service);
            let (journal, table, sharding) = (store.clone(), store.clone(), store.sharding());
            let node = Node::start(service.clone(), metrics, journal, table, sharding, self.node).await?;
            let running = Running::embedded(node, store, &directory, &service);
            Ok(Limina::new(service, running))
        })
    }
}

#[cfg(feature = "postgres")]
impl Builder {
    /// Opens the store in a PostgreSQL database, or creates it: see [`Limina::postgres`].
    pub async fn postgres(self, url: &str) -> Result<Limina, OpenError> {
        self.open_database(url.to_owned()).await
    }

    fn open_database(self, url: String) -> Opening {
        Box::pin(async move {
            let (service, metrics) = self.service.unwrap_or_else(new_service);
            let (node, store) =
                self.database.open(&url, self.shards, service.clone(), metrics, self.node).await?;
            Ok(Limina::new(service, Running::postgres(node, store)))
        })
    }
}

/// An instance that is being opened. It is boxed so that the code of a whole node is compiled once, in this crate, and not again in
/// each crate that waits for it.
type Opening = Pin<Box<dyn Future<Output = Result<Limina, OpenError>> + Send>>;

fn new_service() -> (Service, Metrics) {
    let metrics = Metrics::new();
    (Service::new(metrics.clone()), metrics)
}
