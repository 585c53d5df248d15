//! How much an engine holds.

use crate::{Quota, events, limiter, locks};

/// How much a shard holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Namespaces.
    pub namespaces: usize,
    /// What the namespaces hold in memory.
    pub sizes: Sizes,
    /// Timers that are set.
    pub timers: usize,
    /// Pending sweeps.
    pub sweeps: usize,
}

impl Stats {
    /// The sum over several engines.
    pub fn sum(engines: impl IntoIterator<Item = Stats>) -> Stats {
        engines.into_iter().fold(Stats::default(), |mut sum, stats| {
            sum.namespaces += stats.namespaces;
            sum.sizes.change(Sizes::default(), stats.sizes);
            sum.timers += stats.timers;
            sum.sweeps += stats.sweeps;
            sum
        })
    }
}

/// How much a namespace has, or all of them together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Ledger limits.
    pub ledger_limits: usize,
    /// Rules, groups, counters and leases.
    pub limiter: limiter::Sizes,
    /// Grants of locks, and requests that wait for locks.
    pub locks: locks::Sizes,
    /// Streams of events.
    pub events: events::Sizes,
    /// Open decisions. Their leases, locks and events are counted above too.
    pub decisions: usize,
    /// Replies that are kept under idempotency keys, and waiting requests whose reply will be kept.
    pub kept_replies: u64,
    /// An estimate of the memory that all of this takes, in bytes.
    pub resident_bytes: u64,
}

impl Sizes {
    /// Replaces one namespace's contribution to a sum.
    pub(super) fn change(&mut self, before: Sizes, after: Sizes) {
        self.ledger_limits = self.ledger_limits + after.ledger_limits - before.ledger_limits;
        self.limiter.change(before.limiter, after.limiter);
        self.locks.change(before.locks, after.locks);
        self.events.streams = self.events.streams + after.events.streams - before.events.streams;
        self.decisions = self.decisions + after.decisions - before.decisions;
        self.kept_replies = self.kept_replies + after.kept_replies - before.kept_replies;
        self.resident_bytes = self.resident_bytes + after.resident_bytes - before.resident_bytes;
    }

    /// What a quota is compared with.
    pub fn of(&self, quota: Quota) -> u64 {
        let count = match quota {
            Quota::Rules => self.limiter.rules,
            Quota::Overrides => self.limiter.overrides,
            Quota::Groups => self.limiter.groups,
            Quota::Counters => self.limiter.counters,
            Quota::Leases => self.limiter.leases,
            Quota::LedgerLimits => self.ledger_limits,
            Quota::Streams => self.events.streams,
            Quota::LocksHeld => self.locks.held,
            Quota::LocksWaiting => self.locks.waiting,
            Quota::KeptReplies => return self.kept_replies,
            Quota::ResidentBytes => return self.resident_bytes,
        };
        count as u64
    }
}
