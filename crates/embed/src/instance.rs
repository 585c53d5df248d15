//! A running instance: the node, its store, and how both end.

use limina_node::{Node, Service};
use limina_store::StoreError;
use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::{runtime::Handle, sync::watch, task::JoinHandle};

/// A node on its store.
pub(crate) struct Running {
    node: Node,
    store: Store,
    /// The directory of the store, if it has one.
    directory: Option<PathBuf>,
    /// Dropped when the instance has ended and nothing uses its directory any more: it is the last field.
    ended: watch::Sender<()>,
}

enum Store {
    Memory,
    #[cfg(feature = "embedded")]
    Embedded {
        store: Arc<limina_store::embedded::Embedded>,
        /// Opens the table again after a failure, and reports the failure if that does not help.
        watcher: JoinHandle<()>,
        failed: Failed,
    },
    #[cfg(feature = "postgres")]
    Postgres(Arc<limina_store::postgres::Postgres>),
}

/// Why the store cannot be used any more; `None` while it can.
pub(crate) type Failed = watch::Receiver<Option<Arc<StoreError>>>;

impl Running {
    pub(crate) fn in_memory(node: Node) -> Running {
        Running::new(node, Store::Memory, None)
    }

    #[cfg(feature = "embedded")]
    pub(crate) fn embedded(
        node: Node,
        store: Arc<limina_store::embedded::Embedded>,
        directory: &Path,
        service: &Service,
    ) -> Running {
        let (report, failed) = watch::channel(None);
        let watcher = tokio::spawn({
            let (store, service) = (store.clone(), service.clone());
            async move {
                let error = store.watch_table(|is_open| service.set_store_open(is_open)).await;
                report.send_replace(Some(Arc::new(error)));
            }
        });
        Running::new(node, Store::Embedded { store, watcher, failed }, Some(full_path(directory)))
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn postgres(node: Node, store: Arc<limina_store::postgres::Postgres>) -> Running {
        Running::new(node, Store::Postgres(store), None)
    }

    fn new(node: Node, store: Store, directory: Option<PathBuf>) -> Running {
        Running { node, store, directory, ended: watch::Sender::new(()) }
    }

    /// Reports a store that cannot be used any more. Only the embedded store ever fails for good.
    fn failed(&self) -> Option<Failed> {
        match &self.store {
            Store::Memory => None,
            #[cfg(feature = "embedded")]
            Store::Embedded { failed, .. } => Some(failed.clone()),
            #[cfg(feature = "postgres")]
            Store::Postgres(_) => None,
        }
    }

    /// Answers the requests that were accepted, then closes the store.
    async fn stop(self) -> Result<(), StoreError> {
        self.node.stop().await;
        match self.store {
            Store::Memory => Ok(()),
            #[cfg(feature = "embedded")]
            Store::Embedded { store, watcher, .. } => {
                watcher.abort();
                let _aborted = watcher.await;
                store.close().await
            }
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
    failed: Option<Failed>,
    running: Mutex<Option<Running>>,
    /// Closed once the instance has ended.
    ended: watch::Receiver<()>,
}

impl Instance {
    pub(crate) fn new(service: Service, running: Running) -> Instance {
        let failed = running.failed();
        let (runtime, ended) = (Handle::current(), running.ended.subscribe());
        Instance { service, runtime, failed, running: Mutex::new(Some(running)), ended }
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

    /// Returns when the store cannot be used any more.
    pub(crate) async fn failed(&self) -> Arc<StoreError> {
        if let Some(failed) = &self.failed
            && let Ok(reason) = failed.clone().wait_for(Option::is_some).await
            && let Some(reason) = &*reason
        {
            return reason.clone();
        }
        std::future::pending().await
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
pub(crate) async fn until_free(directory: &Path) {
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
fn full_path(directory: &Path) -> PathBuf {
    std::fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned())
}
