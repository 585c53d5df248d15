//! A running instance: the node, its store, and how both end.

#[cfg(test)]
mod tests;

use limina_node::{Node, NodeFailure, Service};
use limina_store::StoreError;
use std::{
    future::Future,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::{runtime::Handle, sync::watch, task::JoinHandle};

/// Why an instance cannot be used any more.
#[derive(Debug, Clone, thiserror::Error)]
pub enum InstanceFailure {
    /// The store failed, and could not be opened again.
    #[error("the store cannot be used any more")]
    Store(#[source] Arc<StoreError>),
    /// A task has panicked, which is a bug. Its shard stays closed.
    #[error("the node has failed")]
    Node(#[source] NodeFailure),
}

/// A node on its store.
pub(crate) struct Running {
    node: Node,
    store: Store,
    /// Waits for a failure of the node or the store.
    watcher: JoinHandle<()>,
    failed: Failed,
    /// The directory of the store, if it has one.
    directory: Option<PathBuf>,
    /// Dropped when the instance has ended and nothing uses its directory any more: it is the last field.
    ended: watch::Sender<()>,
}

enum Store {
    Memory,
    #[cfg(feature = "embedded")]
    Embedded(Arc<limina_store::embedded::Embedded>),
    #[cfg(feature = "postgres")]
    Postgres(Arc<limina_store::postgres::Postgres>),
}

/// The first failure; `None` while there is none.
type Failed = watch::Receiver<Option<InstanceFailure>>;

impl Running {
    pub(crate) fn in_memory(node: Node) -> Running {
        Running::new(node, Store::Memory, None, std::future::pending())
    }

    #[cfg(feature = "embedded")]
    pub(crate) fn embedded(
        node: Node,
        store: Arc<limina_store::embedded::Embedded>,
        directory: &std::path::Path,
        service: &Service,
    ) -> Running {
        let store_failed = {
            let (store, service) = (store.clone(), service.clone());
            async move { store.watch_table(|is_open| service.set_store_open(is_open)).await }
        };
        Running::new(node, Store::Embedded(store), Some(full_path(directory)), store_failed)
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn postgres(node: Node, store: Arc<limina_store::postgres::Postgres>) -> Running {
        Running::new(node, Store::Postgres(store), None, std::future::pending())
    }

    fn new(
        node: Node,
        store: Store,
        directory: Option<PathBuf>,
        store_failed: impl Future<Output = StoreError> + Send + 'static,
    ) -> Running {
        let (report, failed) = watch::channel(None);
        let node_failed = node.failed();
        let watcher = tokio::spawn(async move {
            let failure = tokio::select! {
                failure = node_failed => InstanceFailure::Node(failure),
                error = store_failed => InstanceFailure::Store(Arc::new(error)),
            };
            report.send_replace(Some(failure));
        });
        Running { node, store, watcher, failed, directory, ended: watch::Sender::new(()) }
    }

    /// Answers the requests that were accepted, then closes the store.
    async fn stop(self) -> Result<(), StoreError> {
        self.node.stop().await;
        self.watcher.abort();
        let _aborted = self.watcher.await;
        match self.store {
            Store::Memory => Ok(()),
            #[cfg(feature = "embedded")]
            Store::Embedded(store) => store.close().await,
            #[cfg(feature = "postgres")]
            Store::Postgres(store) => {
                store.close().await;
                Ok(())
            }
        }
    }
}

/// What all handles of an instance share. When the last handle is dropped, the instance ends.
pub(crate) struct Instance {
    pub(crate) service: Service,
    runtime: Handle,
    failed: Failed,
    running: Mutex<Option<Running>>,
    /// Closed once the instance has ended.
    ended: watch::Receiver<()>,
}

impl Instance {
    pub(crate) fn new(service: Service, running: Running) -> Instance {
        let failed = running.failed.clone();
        let (runtime, ended) = (Handle::current(), running.ended.subscribe());
        Instance { service, runtime, failed, running: Mutex::new(Some(running)), ended }
    }

    /// See [`Node::leave`].
    pub(crate) async fn leave(&self) -> bool {
        let leaving = {
            let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            running.as_ref().map(|running| running.node.leave())
        };
        match leaving {
            Some(leaving) => leaving.await,
            None => false,
        }
    }

    /// Ends the instance. The work is a task of its own, so it goes on if the caller does not wait for it.
    pub(crate) async fn close(&self) -> Result<(), StoreError> {
        match self.end() {
            Some(ending) => match ending.await {
                Ok(result) => result,
                Err(error) => Err(StoreError::Unavailable(error.to_string())),
            },
            None => {
                // Another call is ending the instance, or has ended it and returned the result.
                let _closed = self.ended.clone().changed().await;
                Ok(())
            }
        }
    }

    /// Begins to end the instance, unless that has begun already.
    fn end(&self) -> Option<JoinHandle<Result<(), StoreError>>> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        self.service.begin_stop();
        if let Some(directory) = &running.directory {
            ending().push((directory.clone(), self.ended.clone()));
        }
        Some(self.runtime.spawn(running.stop()))
    }

    /// Returns when the instance cannot be used any more.
    pub(crate) async fn failed(&self) -> InstanceFailure {
        match self.failed.clone().wait_for(Option::is_some).await.as_deref() {
            Ok(Some(failure)) => failure.clone(),
            // The instance was closed before it failed.
            _ => std::future::pending().await,
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // If the runtime is gone, the task is dropped at once, and the instance ends as in a crash.
        let _detached = self.end();
    }
}

/// The directories of instances of this process that are ending. The lock of a directory cannot tell such an instance from
/// one that is in use.
static ENDING: Mutex<Vec<(PathBuf, watch::Receiver<()>)>> = Mutex::new(Vec::new());

fn ending() -> MutexGuard<'static, Vec<(PathBuf, watch::Receiver<()>)>> {
    ENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until no instance of this process that uses the directory is ending.
#[cfg(feature = "embedded")]
pub(crate) async fn until_free(directory: &std::path::Path) {
    let directory = full_path(directory);
    loop {
        let ended = {
            let mut ending = ending();
            ending.retain(|(_, ended)| ended.has_changed().is_ok());
            ending.iter().find(|(path, _)| *path == directory).map(|(_, ended)| ended.clone())
        };
        let Some(mut ended) = ended else { return };
        let _closed = ended.changed().await;
    }
}

#[cfg(feature = "embedded")]
fn full_path(directory: &std::path::Path) -> PathBuf {
    std::fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned())
}
