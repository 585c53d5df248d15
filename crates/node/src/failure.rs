//! A panic in one of a node's tasks: the node reports it to its owner, and serves on with the rest.
//!
//! The memory of a shard whose task panicked cannot be trusted, so the shard stays closed. Everything that was acknowledged
//! is stored. The next process that opens the shard loads it from there.

use crate::{Service, service::Location};
use futures_util::FutureExt;
use limina_store::ShardId;
use std::{any::Any, panic::AssertUnwindSafe};

/// Why a node has failed. It does not recover: its owner should stop it, and start a new one in a new process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeFailure {
    /// The shard's requests are rejected with [`crate::Unavailable::ShardUnavailable`] from now on. A write that was waiting for its
    /// answer was rejected with [`crate::Unavailable::OutcomeUnknown`]. Other shards are not affected.
    #[error("the task of shard {shard} panicked: {panic}")]
    Shard {
        /// The shard's number.
        shard: u16,
        /// The message of the panic.
        panic: String,
    },
    /// Work in the background has stopped, such as checkpoints. Requests are still served, but not for long: the journal
    /// grows, or the node's tenure expires.
    #[error("the {task} panicked: {panic}")]
    Background {
        /// The name of the task.
        task: &'static str,
        /// The message of the panic.
        panic: String,
    },
}

/// Runs a task to its end. If it panics, returns the message of the panic.
pub(crate) async fn catch_panic<R>(task: impl Future<Output = R>) -> Result<R, String> {
    // Nothing looks at the task after a panic, and what it shares with others stays valid at every step.
    AssertUnwindSafe(task).catch_unwind().await.map_err(|panic| message(&*panic))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

impl Service {
    /// Runs a background task of the node to its end. If it panics, the node has failed.
    pub(crate) async fn run_background(self, task: &'static str, work: impl Future<Output = ()>) {
        if let Err(panic) = catch_panic(work).await {
            self.report_failure(NodeFailure::Background { task, panic });
        }
    }

    /// Closes a shard of this process for good, because its task panicked. Its channel is gone already, and with it every
    /// request that waited for an answer.
    pub(crate) fn shard_failed(&self, shard: ShardId, panic: String) {
        self.set_location(shard, Location::Failed);
        self.set_open(shard, false);
        self.shard_left(shard);
        self.report_failure(NodeFailure::Shard { shard: shard.0, panic });
    }
}
