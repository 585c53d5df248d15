//! Opens shards away from the runtime's workers.
//!
//! Loading a shard computes without a pause: about a second for a million records. On a worker of the runtime, every other
//! shard and connection that the worker serves would wait for it. So shards are opened on blocking threads: as many at a time
//! as there are processors, and at least two, because an opening also waits for the store.

use std::{convert::Infallible, panic::resume_unwind, sync::Arc, thread::available_parallelism};
use tokio::{
    runtime::Handle,
    select,
    sync::{Semaphore, oneshot},
    task::spawn_blocking,
};

/// Runs openings on blocking threads. A clone shares the threads.
#[derive(Debug, Clone)]
pub(crate) struct Opener {
    threads: Arc<Semaphore>,
    count: u32,
}

impl Opener {
    pub(crate) fn new() -> Opener {
        Opener::with(processors().clamp(2, Opener::MAX_THREADS))
    }

    /// For work that no client waits for: half of the processors.
    pub(crate) fn in_background() -> Opener {
        Opener::with((processors() / 2).clamp(1, Opener::MAX_THREADS))
    }

    fn with(count: u32) -> Opener {
        Opener { threads: Arc::new(Semaphore::new(count as usize)), count }
    }

    /// A runtime has 512 blocking threads, and an opening needs another one while it reads the table.
    const MAX_THREADS: u32 = 64;

    /// How many openings run at a time.
    pub(crate) fn threads(&self) -> usize {
        self.count as usize
    }

    /// Runs an opening on a blocking thread, and returns its result. If the caller drops this future, the opening ends where
    /// it next waits for the store.
    pub(crate) async fn run<R: Send + 'static>(
        &self,
        opening: impl Future<Output = R> + Send + 'static,
    ) -> R {
        let thread = self.threads.clone().acquire_owned().await.expect("nothing closes it");
        let (wanted, unwanted) = oneshot::channel::<Infallible>();
        let runtime = Handle::current();
        let opened = spawn_blocking(move || {
            let _until_it_ends = thread;
            runtime.block_on(async {
                select! {
                    biased;
                    _ = unwanted => None,
                    opened = opening => Some(opened),
                }
            })
        });
        let opened = opened.await;
        drop(wanted);
        match opened {
            Ok(Some(opened)) => opened,
            Ok(None) => unreachable!("`wanted` is dropped when the opening has ended"),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The runtime is being shut down, and will drop this future.
                Err(_) => std::future::pending().await,
            },
        }
    }

    /// Waits until no opening runs, also none whose caller has gone.
    pub(crate) async fn until_idle(&self) {
        drop(self.threads.acquire_many(self.count).await);
    }
}

fn processors() -> u32 {
    available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
}
