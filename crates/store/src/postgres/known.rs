//! What this node has seen of each shard in the database. If the database has less, it has gone back to an older state: a standby that
//! lacked appends was promoted, or an older copy was restored.

use crate::{Epoch, LostAppends, Seq, ShardId};
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The newest state of each shard that this node has seen.
#[derive(Debug, Default)]
pub(super) struct KnownShards(Mutex<BTreeMap<ShardId, KnownShard>>);

/// The newest state of a shard that was seen.
#[derive(Debug, Clone, Copy)]
pub(super) struct KnownShard {
    epoch: Epoch,
    seq: Seq,
    /// What the shard lacked when this node took it. Stays until this node has appended to the shard.
    lost: Option<LostAppends>,
}

impl KnownShards {
    /// The state of all shards that were seen. To be taken before the rows are read that are to be compared with it.
    pub(super) fn snapshot(&self) -> BTreeMap<ShardId, KnownShard> {
        self.lock().clone()
    }

    /// The highest epoch of the shard that was seen. The next one must be higher, even if the database has forgotten it.
    pub(super) fn epoch(&self, shard: ShardId) -> Epoch {
        self.lock().get(&shard).map_or(Epoch(0), |known| known.epoch)
    }

    /// The shard's row was read.
    pub(super) fn observe(&self, shard: ShardId, epoch: Epoch, seq: Seq) {
        let mut shards = self.lock();
        let known = shards.entry(shard).or_insert(KnownShard { epoch, seq, lost: None });
        known.epoch = known.epoch.max(epoch);
        known.seq = known.seq.max(seq);
    }

    /// The shard's row was read, and another node owns the shard. If that node has taken the shard since, it has dealt with a loss.
    pub(super) fn observe_other(&self, shard: ShardId, epoch: Epoch, seq: Seq) {
        if let Some(known) = self.lock().get_mut(&shard).filter(|known| epoch > known.epoch) {
            *known = KnownShard { epoch, seq, lost: None };
        }
        self.observe(shard, epoch, seq);
    }

    /// This node has taken the shard, whose last append was `last`.
    pub(super) fn taken(&self, shard: ShardId, epoch: Epoch, last: Seq) {
        self.observe(shard, epoch, last);
        if let Some(known) = self.lock().get_mut(&shard) {
            known.lost = (last < known.seq).then_some(LostAppends { first: last.next(), last: known.seq });
        }
    }

    /// This node has made an append. What it knew of a state that was lost does not matter any more. An append of an older epoch than that
    /// of the last taking was answered late, maybe by another server.
    pub(super) fn appended(&self, shard: ShardId, epoch: Epoch, seq: Seq) {
        let mut shards = self.lock();
        let known = shards.entry(shard).or_insert(KnownShard { epoch, seq, lost: None });
        if epoch >= known.epoch {
            (known.seq, known.lost) = (seq, None);
        }
    }

    pub(super) fn lost(&self, shard: ShardId) -> Option<LostAppends> {
        self.lock().get(&shard)?.lost
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ShardId, KnownShard>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownShard {
    /// Whether a row that was read later is older than this.
    pub(super) fn is_newer_than(&self, epoch: Epoch, seq: Seq) -> bool {
        epoch < self.epoch || seq < self.seq
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_known_until_the_next_append() {
        let (shard, known) = (ShardId(1), KnownShards::default());
        let lost = |first, last| Some(LostAppends { first: Seq(first), last: Seq(last) });
        known.taken(shard, Epoch(1), Seq(4));
        assert_eq!(known.lost(shard), None);
        known.appended(shard, Epoch(1), Seq(5));
        known.observe(shard, Epoch(1), Seq(7));
        known.observe(shard, Epoch(1), Seq(6));
        let before = known.snapshot()[&shard];
        assert!(before.is_newer_than(Epoch(1), Seq(6)) && before.is_newer_than(Epoch(0), Seq(7)));
        assert!(!before.is_newer_than(Epoch(1), Seq(7)) && !before.is_newer_than(Epoch(2), Seq(8)));

        // The shard cannot be loaded at once, and is taken again.
        for epoch in 2..=3 {
            known.taken(shard, Epoch(epoch), Seq(5));
            known.appended(shard, Epoch(1), Seq(8));
            assert_eq!(known.lost(shard), lost(6, 7));
        }
        known.appended(shard, Epoch(3), Seq(6));
        assert_eq!((known.lost(shard), known.epoch(shard)), (None, Epoch(3)));
        known.taken(shard, Epoch(4), Seq(6));
        assert_eq!(known.lost(shard), None);
        known.taken(shard, Epoch(5), Seq(2));
        assert_eq!(known.lost(shard), lost(3, 6));
    }

    #[test]
    fn the_next_owner_deals_with_a_loss_once() {
        let (shard, known) = (ShardId(1), KnownShards::default());
        let check = |epoch, seq, expect| {
            let behind =
                known.snapshot().get(&shard).is_some_and(|known| known.is_newer_than(Epoch(epoch), Seq(seq)));
            assert_eq!(behind, expect, "epoch {epoch}, append {seq}");
            known.observe_other(shard, Epoch(epoch), Seq(seq));
        };
        check(3, 7, false);
        // The database has gone back. Its owner has not taken the shard again yet.
        check(3, 5, true);
        check(3, 5, true);
        check(4, 6, true);
        check(4, 6, false);
        known.taken(shard, Epoch(6), Seq(6));
        assert_eq!(known.lost(shard), None);
    }
}
