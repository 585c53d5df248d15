//! Renews this node's tenure. It is a task of its own, so that the tenure does not expire while shards are claimed, opened or
//! handed over.

use crate::{Joining, driver::ShardContext, ownership::is_current, stores::Stores};
use limina_store::{Announcement, Journal, ShardId, StoreError, Table, Tenure, View};
use std::{
    collections::BTreeSet,
    error::Error,
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    sync::{Notify, watch},
    time::{MissedTickBehavior, timeout},
};

/// How many renewals fall into one tenure, at least.
const RENEWALS: u32 = 5;
/// The longest time between two renewals, however long the tenure is. A renewal also shows what other nodes do.
const MAX_INTERVAL: Duration = Duration::from_secs(1);

/// The time between two renewals of a tenure of this length.
pub(crate) fn interval(tenure: Duration) -> Duration {
    MAX_INTERVAL.min(tenure / RENEWALS)
}

/// What a node announces about itself.
pub(crate) fn announcement(joining: &Joining, is_leaving: bool, prepared: Vec<ShardId>) -> Announcement {
    let Joining { address, host, tenure, peers } = joining;
    let (address, host, certificate) = (address.clone(), host.clone(), peers.certificate());
    Announcement { address, host, is_leaving, tenure: *tenure, certificate, prepared }
}

/// The view that the store returned with a renewal.
#[derive(Clone, Default)]
pub(crate) struct SeenView {
    pub(crate) view: View,
    /// When the view arrived, by this node's monotonic clock, in microseconds.
    pub(crate) at: u64,
}

/// How the ownership manager and the shards' tasks control the renewal. A clone controls the same renewal.
#[derive(Clone, Default)]
pub(crate) struct RenewalControl {
    wake: Arc<Notify>,
    is_leaving: Arc<AtomicBool>,
    has_left: Arc<AtomicBool>,
    prepared: Arc<Mutex<BTreeSet<ShardId>>>,
}

impl RenewalControl {
    /// Renews at once, to get a new view: something has changed.
    pub(crate) fn renew_now(&self) {
        self.wake.notify_one();
    }

    /// From now on, every renewal announces that this node leaves.
    pub(crate) fn leave(&self) {
        self.is_leaving.store(true, Ordering::Release);
        self.renew_now();
    }

    /// From now on, every renewal announces that this node has prepared the shard, or no longer has.
    pub(crate) fn set_prepared(&self, shard: ShardId, is_prepared: bool) {
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        let is_changed = if is_prepared { prepared.insert(shard) } else { prepared.remove(&shard) };
        drop(prepared);
        // Other nodes wait for what is prepared, not for what is dropped.
        if is_changed && is_prepared {
            self.renew_now();
        }
    }

    /// The shards that renewals announce as prepared.
    pub(crate) fn prepared(&self) -> Vec<ShardId> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    /// Ends the renewal.
    pub(crate) fn end(&self) {
        self.has_left.store(true, Ordering::Release);
        self.renew_now();
    }
}

pub(crate) struct TenureRenewal<S> {
    pub(crate) store: Arc<S>,
    pub(crate) context: ShardContext,
    pub(crate) joining: Arc<Joining>,
    pub(crate) stores: Stores<S, S>,
    pub(crate) control: RenewalControl,
    pub(crate) seen: watch::Sender<SeenView>,
}

impl<S: Journal + Table + Tenure> TenureRenewal<S> {
    /// Renews until [`RenewalControl::end`]. Waits for a renewal that is under way then: it must not reach the store after the
    /// node has left.
    pub(crate) async fn run(self) {
        let mut tick = tokio::time::interval(interval(self.joining.tenure));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The time of the first failure, while renewals fail.
        let mut failing = None;
        loop {
            tokio::select! {
                biased;
                () = self.store.disconnected() => self.context.tenure_guard.doubt(),
                _ = tick.tick() => {}
                () = self.store.changed() => {}
                () = self.control.wake.notified() => {}
            }
            if self.control.has_left.load(Ordering::Acquire) {
                return;
            }
            self.renew(&mut failing).await;
        }
    }

    async fn renew(&self, failing: &mut Option<Instant>) {
        let tenure = self.joining.tenure;
        let is_leaving = self.control.is_leaving.load(Ordering::Acquire);
        let announcement = announcement(&self.joining, is_leaving, self.control.prepared());
        let sent_at = self.context.clocks.monotonic();
        let asked_at = tokio::time::Instant::now();
        // If a renewal takes longer, hardly any of the tenure that it renews is left.
        let answer = timeout(tenure * (RENEWALS - 1) / RENEWALS, self.store.renew(announcement));
        let (answer, was_disconnected) =
            self.watch_session(self.watch_expiry(failing.is_some(), answer)).await;
        let answer = answer.unwrap_or_else(|_| Err(StoreError::Unavailable("it does not answer".to_owned())));
        let is_renewed = match answer {
            Ok(view) => {
                let listed = view.members.iter().filter_map(|member| member.certificate).collect();
                self.joining.peers.handle_certificates(listed, asked_at);
                self.handle_view(view, sent_at, failing.is_none())
            }
            Err(error) => {
                self.context.tenure_guard.handle_renewal(false);
                if failing.is_none() {
                    tracing::error!(
                        error = &error as &dyn Error,
                        "the tenure could not be renewed; trying again"
                    );
                }
                false
            }
        };
        if was_disconnected {
            // The answer may have come over the session that has ended.
            self.context.tenure_guard.doubt();
            self.control.renew_now();
        }
        if !is_renewed {
            self.context.metrics.cluster.renewal_failures.inc();
            failing.get_or_insert_with(Instant::now);
        } else if let Some(since) = failing.take() {
            let after_ms = since.elapsed().as_millis() as u64;
            tracing::info!(after_ms, "the tenure is renewed again");
        }
    }

    /// Waits for the answer to a renewal. Returns also whether the session with the store has ended meanwhile. From then on other nodes may
    /// mistake this one for a dead node, until it has renewed over another session.
    async fn watch_session<T>(&self, answer: impl Future<Output = T>) -> (T, bool) {
        let mut answer = pin!(answer);
        tokio::select! {
            biased;
            () = self.store.disconnected() => {
                self.context.tenure_guard.doubt();
                (answer.await, true)
            }
            answer = &mut answer => (answer, false),
        }
    }

    /// Waits for the answer to a renewal. If an earlier renewal has failed, the store counts as away as soon as the tenure has
    /// expired, even if this renewal has not failed by then.
    async fn watch_expiry<T>(&self, is_failing: bool, answer: impl Future<Output = T>) -> T {
        let mut answer = pin!(answer);
        if is_failing {
            let tenure_guard = &self.context.tenure_guard;
            tokio::select! {
                answer = &mut answer => return answer,
                () = tokio::time::sleep(tenure_guard.left()) => tenure_guard.handle_renewal(false),
            }
        }
        answer.await
    }

    /// Returns whether the tenure was renewed: not if another node has this node's address.
    fn handle_view(&self, view: View, sent_at: u64, is_new_failure: bool) -> bool {
        let me = self.store.me();
        let serving = self.stores.all().into_iter().map(|(shard, store)| (shard, store.epoch()));
        match is_current(&view, me, serving) {
            true => self.context.tenure_guard.renewed(sent_at, self.joining.tenure),
            false => self.context.tenure_guard.revoke(),
        }
        self.context.tenure_guard.handle_renewal(true);
        let occupant = view.occupant(&self.joining.address, me);
        let is_renewed = occupant.is_none();
        if let Some(other) = occupant.filter(|_| is_new_failure) {
            tracing::error!(
                address = self.joining.address,
                node = %other.id,
                host = other.host,
                started_s_ago = other.age.as_secs(),
                "another node has taken this node's address, which must be unique; this node serves nothing until the address is free again"
            );
        }
        self.seen.send_replace(SeenView { view, at: self.context.clocks.monotonic() });
        is_renewed
    }
}
