//! Renews this node's tenure, in a task of its own: however long it takes to claim, open or hand over shards, the tenure does
//! not run out for it.

use crate::{Joining, driver::ShardContext, node::Stores, ownership::is_current};
use limina_store::{Announcement, Journal, StoreError, Table, Tenure, View};
use std::{
    error::Error,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    sync::{Notify, watch},
    time::{MissedTickBehavior, timeout},
};

/// How often a tenure is renewed while it lasts, at least.
pub(crate) const RENEWALS: u32 = 5;
/// However long it lasts, the others are looked at so often.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often a tenure of this length is renewed.
pub(crate) fn every(tenure: Duration) -> Duration {
    LOOK_EVERY.min(tenure / RENEWALS)
}

/// What a node says of itself.
pub(crate) fn announcement(joining: &Joining, is_leaving: bool) -> Announcement {
    let Joining { address, host, tenure, .. } = joining;
    Announcement { address: address.clone(), host: host.clone(), is_leaving, tenure: *tenure }
}

/// What the store showed with a renewal.
#[derive(Clone, Default)]
pub(crate) struct Seen {
    pub(crate) view: View,
    /// When it was here, by this node's monotonic clock, in microseconds.
    pub(crate) at: u64,
}

/// What the ownership manager says to the task that renews. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Bell {
    wake: Arc<Notify>,
    is_leaving: Arc<AtomicBool>,
    has_left: Arc<AtomicBool>,
}

impl Bell {
    /// Renew now: something has changed.
    pub(crate) fn ring(&self) {
        self.wake.notify_one();
    }

    /// From now on the others are told that this node leaves.
    pub(crate) fn leave(&self) {
        self.is_leaving.store(true, Ordering::Release);
        self.ring();
    }

    /// Renew no more.
    pub(crate) fn end(&self) {
        self.has_left.store(true, Ordering::Release);
        self.ring();
    }
}

pub(crate) struct Renewing<S> {
    pub(crate) store: Arc<S>,
    pub(crate) context: ShardContext,
    pub(crate) joining: Arc<Joining>,
    pub(crate) stores: Stores<S, S>,
    pub(crate) bell: Bell,
    pub(crate) seen: watch::Sender<Seen>,
}

impl<S: Journal + Table + Tenure> Renewing<S> {
    /// Renews until it is told to end. One that is under way then is waited for: it must not come after the node has left.
    pub(crate) async fn run(self) {
        let mut tick = tokio::time::interval(every(self.joining.tenure));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Since when the tenure is not renewed.
        let mut failing = None;
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = self.store.changed() => {}
                () = self.bell.wake.notified() => {}
            }
            if self.bell.has_left.load(Ordering::Acquire) {
                return;
            }
            self.renew(&mut failing).await;
        }
    }

    async fn renew(&self, failing: &mut Option<Instant>) {
        let tenure = self.joining.tenure;
        let announcement = announcement(&self.joining, self.bell.is_leaving.load(Ordering::Acquire));
        let sent_at = self.context.clocks.monotonic();
        // One that takes longer would renew for next to nothing.
        let answer = timeout(tenure * (RENEWALS - 1) / RENEWALS, self.store.renew(announcement));
        let answer = self.tell_when_away(failing.is_some(), answer).await;
        let answer = answer.unwrap_or_else(|_| Err(StoreError::Unavailable("it does not answer".to_owned())));
        let is_renewed = match answer {
            Ok(view) => self.see(view, sent_at, failing.is_none()),
            Err(error) => {
                self.context.tenure_guard.heard_of_store(false);
                if failing.is_none() {
                    tracing::error!(
                        error = &error as &dyn Error,
                        "the tenure could not be renewed; trying again"
                    );
                }
                false
            }
        };
        if !is_renewed {
            self.context.metrics.cluster.renewal_failures.inc();
            failing.get_or_insert_with(Instant::now);
        } else if let Some(since) = failing.take() {
            let after_ms = since.elapsed().as_millis() as u64;
            tracing::info!(after_ms, "the tenure is renewed again");
        }
    }

    /// Waits for an answer. If an earlier renewal has failed, the store is away as soon as the tenure has run out, whether or
    /// not this renewal has failed too by then.
    async fn tell_when_away<T>(&self, is_failing: bool, answer: impl Future<Output = T>) -> T {
        let mut answer = pin!(answer);
        if is_failing {
            let tenure_guard = &self.context.tenure_guard;
            tokio::select! {
                answer = &mut answer => return answer,
                () = tokio::time::sleep(tenure_guard.left()) => tenure_guard.heard_of_store(false),
            }
        }
        answer.await
    }

    /// Says whether the tenure was renewed.
    fn see(&self, view: View, sent_at: u64, tell: bool) -> bool {
        let me = self.store.me();
        let serving = self.stores.all().into_iter().map(|(shard, store)| (shard, store.epoch()));
        if is_current(&view, me, serving) {
            self.context.tenure_guard.renewed(sent_at, self.joining.tenure);
        }
        self.context.tenure_guard.heard_of_store(true);
        let occupant = view.occupant(&self.joining.address, me);
        let is_renewed = occupant.is_none();
        if let Some(other) = occupant.filter(|_| tell) {
            tracing::error!(
                address = self.joining.address,
                node = %other.id,
                host = other.host,
                started_s_ago = other.age.as_secs(),
                "another node has taken this node's address, which must be its own; nothing is served until it is free again"
            );
        }
        self.seen.send_replace(Seen { view, at: self.context.clocks.monotonic() });
        is_renewed
    }
}
