//! Checks the clients' answers against each other.
//!
//! The property is strict serializability of a list that only grows. A read that begins after an append was
//! acknowledged contains it. A read that begins after another read has ended contains no less. In the end, everything
//! that was acknowledged is there once.

use super::event_queue::{Answer, Millis};
use limina_store::ShardId;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestKind {
    Append(u64),
    Read,
    /// A request that is answered at once, from memory, while the node's tenure certainly lasts.
    Relaxed,
}

#[derive(Debug)]
struct PendingRequest {
    shard: ShardId,
    kind: RequestKind,
    since: Millis,
}

/// All clients together.
#[derive(Default)]
pub(super) struct Clients {
    asking: BTreeMap<u64, PendingRequest>,
    count: u64,
    /// For each shard, what was acknowledged at which time.
    acknowledged: BTreeMap<ShardId, Vec<(Millis, u64)>>,
    /// For each shard, the longest result of all reads that ended by a time.
    reads: BTreeMap<ShardId, Vec<(Millis, Vec<u64>)>>,
    /// The time of the last request that failed or whose outcome is unknown.
    pub(super) last_failure: Millis,
    pub(super) successes: u64,
    pub(super) relaxed: u64,
    pub(super) failures: u64,
    pub(super) unknown: u64,
}

impl Clients {
    /// A client sends a request. Its number is also the number that it appends.
    pub(super) fn begin(&mut self, now: Millis, shard: ShardId, kind: u64) -> (u64, RequestKind) {
        self.count += 1;
        let kind = match kind {
            0 => RequestKind::Read,
            1..=3 => RequestKind::Relaxed,
            _ => RequestKind::Append(self.count),
        };
        self.asking.insert(self.count, PendingRequest { shard, kind, since: now });
        (self.count, kind)
    }

    /// A client receives an answer, which must agree with all answers before its request was sent.
    pub(super) fn answered(&mut self, now: Millis, client: u64, answer: Answer) -> Result<(), String> {
        // A client ignores a second answer.
        let Some(PendingRequest { shard, kind, since }) = self.asking.remove(&client) else { return Ok(()) };
        match (kind, answer) {
            (RequestKind::Append(number), Answer::Appended) => {
                self.successes += 1;
                self.acknowledged.entry(shard).or_default().push((now, number));
                Ok(())
            }
            (RequestKind::Read, Answer::Read(found)) => {
                self.successes += 1;
                self.check_read(shard, since, &found)?;
                self.remember(now, shard, found);
                Ok(())
            }
            (RequestKind::Relaxed, Answer::Relaxed) => {
                self.relaxed += 1;
                Ok(())
            }
            (RequestKind::Append(_), Answer::Unknown) => {
                self.unknown += 1;
                self.last_failure = now;
                Ok(())
            }
            (_, Answer::NotDone | Answer::Unknown) => {
                self.failures += 1;
                self.last_failure = now;
                Ok(())
            }
            (kind, answer) => Err(format!("a client that requested {kind:?} was answered {answer:?}")),
        }
    }

    fn check_read(&self, shard: ShardId, since: Millis, found: &[u64]) -> Result<(), String> {
        let acknowledged = self.acknowledged.get(&shard).into_iter().flatten();
        for (at, number) in acknowledged.filter(|(at, _)| *at < since) {
            if !found.contains(number) {
                return Err(format!(
                    "a read of {shard:?} begun at {since} does not show {number}, acknowledged at {at}"
                ));
            }
        }
        let earlier = self.reads.get(&shard).into_iter().flatten().rev().find(|(at, _)| *at < since);
        match earlier {
            Some((at, earlier)) if !found.starts_with(earlier) => {
                Err(format!("a read of {shard:?} begun at {since} does not go on from what was read at {at}"))
            }
            _ => Ok(()),
        }
    }

    fn remember(&mut self, now: Millis, shard: ShardId, found: Vec<u64>) {
        let reads = self.reads.entry(shard).or_default();
        let longest = reads.last().map_or(0, |(_, longest)| longest.len());
        if found.len() > longest || reads.is_empty() {
            reads.push((now, found));
        }
    }

    /// In the end, a shard must contain everything that was acknowledged, and begin with everything that was read.
    pub(super) fn check_end(&self, shard: ShardId, held: &[u64]) -> Result<(), String> {
        let mut sorted = held.to_vec();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(format!("{shard:?} holds something twice: {held:?}"));
        }
        for (at, number) in self.acknowledged.get(&shard).into_iter().flatten() {
            if !held.contains(number) {
                return Err(format!("{shard:?} does not hold {number}, acknowledged at {at}"));
            }
        }
        for (at, found) in self.reads.get(&shard).into_iter().flatten() {
            if !held.starts_with(found) {
                return Err(format!("{shard:?} does not begin with what was read at {at}"));
            }
        }
        Ok(())
    }
}
