//! A store that fails on demand and counts its calls.

use bytes::Bytes;
use limina_store::{
    Announcement, AppendError, ConfirmError, Epoch, FreeSpace, Journal, JournalStats, NodeId, Records, Seq,
    ShardId, StoreError, Table, Tenure, View,
};
use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::watch;

/// Longer than anything takes, also on a busy machine.
const LONG: Duration = Duration::from_secs(60);
/// The message of a panic that was asked for.
pub(crate) const PANIC: &str = "on purpose";

pub(crate) struct FaultyStore<S> {
    inner: Arc<S>,
    faults: Mutex<Faults>,
    appends_may_go: watch::Sender<bool>,
    held_loading: Mutex<Option<Arc<HeldLoading>>>,
    appends: AtomicUsize,
    takes: AtomicUsize,
}

/// The loading of a shard, which blocks its thread until it may go on, as the loading of many records does.
pub(crate) struct HeldLoading {
    shard: ShardId,
    has_begun: watch::Sender<bool>,
    may_go: Mutex<bool>,
    goes: Condvar,
}

impl HeldLoading {
    /// Waits until the shard is being loaded.
    pub(crate) async fn begun(&self) {
        drop(self.has_begun.subscribe().wait_for(|has_begun| *has_begun).await);
    }

    pub(crate) fn go_on(&self) {
        *self.may_go.lock().expect("nothing panics while it holds this") = true;
        self.goes.notify_all();
    }

    /// Fails if this blocks the thread that would let it go on.
    fn block(&self) {
        self.has_begun.send_replace(true);
        let may_go = self.may_go.lock().expect("nothing panics while it holds this");
        let waited = self.goes.wait_timeout_while(may_go, LONG, |may_go| !*may_go);
        let (may_go, _) = waited.expect("nothing panics while it holds this");
        assert!(*may_go, "the loading of a shard blocks the runtime");
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Faults {
    panic_in: Option<ShardId>,
    /// Set while every append fails for lack of space. [`Journal::free_space`] returns this meanwhile.
    is_full: Option<FreeSpace>,
}

impl<S> FaultyStore<S> {
    pub(crate) fn new(inner: Arc<S>) -> FaultyStore<S> {
        FaultyStore {
            inner,
            faults: Mutex::default(),
            appends_may_go: watch::Sender::new(true),
            held_loading: Mutex::default(),
            appends: AtomicUsize::new(0),
            takes: AtomicUsize::new(0),
        }
    }

    pub(crate) fn inner(&self) -> &S {
        &self.inner
    }

    /// Panics in every append of this shard, before the append is done.
    pub(crate) fn panic_in_appends_of(&self, shard: ShardId) {
        self.faults().panic_in = Some(shard);
    }

    pub(crate) fn stop_panicking(&self) {
        self.faults().panic_in = None;
    }

    /// How many appends were begun.
    pub(crate) fn appends(&self) -> usize {
        self.appends.load(Ordering::SeqCst)
    }

    /// How often a shard was opened.
    pub(crate) fn takes(&self) -> usize {
        self.takes.load(Ordering::SeqCst)
    }

    /// While this is set, appends wait.
    pub(crate) fn hold_appends(&self, are_held: bool) {
        self.appends_may_go.send_replace(!are_held);
    }

    /// From now on this shard cannot be loaded, until [`HeldLoading::go_on`].
    pub(crate) fn hold_loading_of(&self, shard: ShardId) -> Arc<HeldLoading> {
        let held = Arc::new(HeldLoading {
            shard,
            has_begun: watch::Sender::new(false),
            may_go: Mutex::new(false),
            goes: Condvar::new(),
        });
        *self.held_loading.lock().expect("nothing panics while it holds this") = Some(held.clone());
        held
    }

    /// From now on every append fails because the disk is full, and [`Journal::free_space`] returns this; or there is room again.
    pub(crate) fn fill(&self, room: Option<FreeSpace>) {
        self.faults().is_full = room;
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().expect("nothing panics while it holds this")
    }
}

impl<S: Journal> Journal for FaultyStore<S> {
    async fn take(&self, shard: ShardId) -> Result<Epoch, StoreError> {
        self.takes.fetch_add(1, Ordering::SeqCst);
        self.inner.take(shard).await
    }

    async fn tail(&self, shard: ShardId, epoch: Epoch, after: Seq) -> Result<Vec<(Seq, Bytes)>, StoreError> {
        self.inner.tail(shard, epoch, after).await
    }

    async fn append(
        &self,
        shard: ShardId,
        epoch: Epoch,
        seq: Seq,
        payload: Bytes,
    ) -> Result<(), AppendError> {
        self.appends.fetch_add(1, Ordering::SeqCst);
        let mut may_go = self.appends_may_go.subscribe();
        drop(may_go.wait_for(|may_go| *may_go).await);
        let Faults { panic_in, is_full } = *self.faults();
        assert!(panic_in != Some(shard), "{PANIC}");
        if is_full.is_some() {
            return Err(AppendError::Full);
        }
        self.inner.append(shard, epoch, seq, payload).await
    }

    async fn confirm(&self, shard: ShardId, epoch: Epoch, seq: Seq) -> Result<(), ConfirmError> {
        self.inner.confirm(shard, epoch, seq).await
    }

    fn release(&self, shard: ShardId, upto: Seq) {
        self.inner.release(shard, upto);
    }

    fn free_space(&self) -> FreeSpace {
        let full = self.faults().is_full;
        full.unwrap_or_else(|| self.inner.free_space())
    }

    fn stats(&self) -> JournalStats {
        self.inner.stats()
    }
}

impl<S: Table> Table for FaultyStore<S> {
    async fn applied(&self, shard: ShardId) -> Result<Seq, StoreError> {
        self.inner.applied(shard).await
    }

    async fn get_many(&self, shard: ShardId, keys: Vec<Bytes>) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.inner.get_many(shard, keys).await
    }

    async fn scan(
        &self,
        shard: ShardId,
        from: Bytes,
        to: Bytes,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        let held = self.held_loading.lock().expect("nothing panics while it holds this").clone();
        if let Some(held) = held.filter(|held| held.shard == shard) {
            held.block();
        }
        self.inner.scan(shard, from, to, limit).await
    }

    async fn last_at_or_before(
        &self,
        shard: ShardId,
        ranges: Vec<(Bytes, Bytes)>,
    ) -> Result<Vec<Option<(Bytes, Bytes)>>, StoreError> {
        self.inner.last_at_or_before(shard, ranges).await
    }

    async fn checkpoint(
        &self,
        shard: ShardId,
        epoch: Epoch,
        upto: Seq,
        records: Arc<Records>,
    ) -> Result<(), StoreError> {
        self.inner.checkpoint(shard, epoch, upto, records).await
    }
}

impl<S: Tenure> Tenure for FaultyStore<S> {
    fn me(&self) -> NodeId {
        self.inner.me()
    }

    async fn renew(&self, announcement: Announcement) -> Result<View, StoreError> {
        self.inner.renew(announcement).await
    }

    async fn end_tenure(&self, node: NodeId) -> Result<bool, StoreError> {
        self.inner.end_tenure(node).await
    }

    async fn claim(&self, wanted: Vec<(ShardId, Epoch)>) -> Result<Vec<ShardId>, StoreError> {
        self.inner.claim(wanted).await
    }

    async fn give(
        &self,
        shard: ShardId,
        epoch: Epoch,
        to: Option<NodeId>,
        shard_time_ms: u64,
    ) -> Result<bool, StoreError> {
        self.inner.give(shard, epoch, to, shard_time_ms).await
    }

    async fn leave(&self) -> Result<(), StoreError> {
        self.inner.leave().await
    }

    async fn disconnected(&self) {
        self.inner.disconnected().await;
    }

    async fn changed(&self) {
        self.inner.changed().await;
    }

    fn is_available(&self) -> bool {
        self.inner.is_available()
    }
}
