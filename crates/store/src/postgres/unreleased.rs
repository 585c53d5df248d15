//! The part of the journal that is kept for this node.

use crate::{JournalStats, Seq, ShardId};
use std::collections::{BTreeMap, VecDeque};

/// Appends are counted in pieces of about this size, which saves memory.
const PIECE_BYTES: u64 = 256 << 10;
/// The number of shards with the most unreleased bytes that are reported.
const NAMED: usize = 8;

/// What this node appended, or read when it opened a shard, and did not release yet.
#[derive(Debug, Default)]
pub(super) struct Unreleased {
    shards: BTreeMap<ShardId, VecDeque<Piece>>,
    statements: u64,
    appends: u64,
}

/// Some consecutive appends.
#[derive(Debug)]
struct Piece {
    first: Seq,
    last: Seq,
    bytes: u64,
}

impl Unreleased {
    /// One statement made this many appends durable.
    pub(super) fn count(&mut self, appends: usize) {
        self.statements += 1;
        self.appends += appends as u64;
    }

    /// The journal has this append. An append that is known already is not counted again.
    pub(super) fn add(&mut self, shard: ShardId, seq: Seq, bytes: usize) {
        let bytes = bytes as u64;
        let pieces = self.shards.entry(shard).or_default();
        match pieces.back_mut() {
            Some(last) if seq <= last.last => {}
            Some(last) if last.bytes < PIECE_BYTES => {
                last.last = seq;
                last.bytes += bytes;
            }
            _ => pieces.push_back(Piece { first: seq, last: seq, bytes }),
        }
    }

    /// The journal need not keep the shard up to `upto`. A piece counts until all of it is released.
    pub(super) fn release(&mut self, shard: ShardId, upto: Seq) {
        if let Some(pieces) = self.shards.get_mut(&shard) {
            while pieces.front().is_some_and(|piece| piece.last <= upto) {
                pieces.pop_front();
            }
        }
    }

    /// This node has taken the shard.
    pub(super) fn take(&mut self, shard: ShardId) {
        self.shards.entry(shard).or_default();
    }

    /// Whether this node has taken the shard. It may also read the journals of other nodes' shards, and need not release these.
    pub(super) fn is_taken(&self, shard: ShardId) -> bool {
        self.shards.contains_key(&shard)
    }

    /// Another node owns the shard now.
    pub(super) fn forget(&mut self, shard: ShardId) {
        self.shards.remove(&shard);
    }

    pub(super) fn stats(&self) -> JournalStats {
        let sizes = self.shards.iter().filter_map(|(shard, pieces)| {
            let bytes: u64 = pieces.iter().map(|piece| piece.bytes).sum();
            Some((bytes, *shard, pieces.front()?.first))
        });
        let mut sizes: Vec<(u64, ShardId, Seq)> = sizes.collect();
        sizes.sort_unstable_by_key(|(bytes, ..)| std::cmp::Reverse(*bytes));
        JournalStats {
            live_bytes: sizes.iter().map(|(bytes, ..)| bytes).sum(),
            frames: self.statements,
            appends: self.appends,
            syncs: self.statements,
            pinning: sizes.iter().take(NAMED).map(|(_, shard, first)| (*shard, *first)).collect(),
            ..JournalStats::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the live bytes, and the reported shards with their first seqs.
    #[track_caller]
    fn check(unreleased: &Unreleased, bytes: u64, pinning: &[(u16, u64)]) {
        let stats = unreleased.stats();
        assert_eq!(stats.live_bytes, bytes);
        assert_eq!(stats.pinning.iter().map(|(shard, seq)| (shard.0, seq.0)).collect::<Vec<_>>(), pinning);
    }

    #[test]
    fn released_appends_are_not_counted() {
        let (a, b, half) = (ShardId(1), ShardId(2), PIECE_BYTES as usize / 2);
        let mut unreleased = Unreleased::default();
        check(&unreleased, 0, &[]);
        for seq in 1..=3 {
            unreleased.add(a, Seq(seq), half);
        }
        unreleased.add(b, Seq(9), 1);
        check(&unreleased, 3 * half as u64 + 1, &[(1, 1), (2, 9)]);
        unreleased.add(a, Seq(3), half);
        check(&unreleased, 3 * half as u64 + 1, &[(1, 1), (2, 9)]);
        unreleased.release(a, Seq(1));
        check(&unreleased, 3 * half as u64 + 1, &[(1, 1), (2, 9)]);
        unreleased.release(a, Seq(2));
        check(&unreleased, half as u64 + 1, &[(1, 3), (2, 9)]);
        unreleased.release(a, Seq(3));
        check(&unreleased, 1, &[(2, 9)]);
        unreleased.forget(b);
        check(&unreleased, 0, &[]);
    }
}
