//! How much an engine holds.

use crate::{events, limiter, locks};

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

/// How much the families hold in memory.
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
}

impl Sizes {
    /// Replaces one namespace's contribution to a sum.
    pub(super) fn change(&mut self, before: Sizes, after: Sizes) {
        self.ledger_limits = self.ledger_limits + after.ledger_limits - before.ledger_limits;
        self.limiter.change(before.limiter, after.limiter);
        self.locks.change(before.locks, after.locks);
        self.events.streams = self.events.streams + after.events.streams - before.events.streams;
    }
}
