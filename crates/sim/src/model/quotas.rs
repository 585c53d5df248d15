//! The quotas of every namespace of a run, and what the model says about them.

use crate::random::Random;
use limina_engine::{Quota, QuotaExceeded, QuotaTable};
use std::{collections::BTreeMap, sync::Arc};

/// How much each namespace may have. What is not named is not bounded.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bounds(Arc<BTreeMap<Quota, u64>>);

impl Bounds {
    /// Takes the bounds.
    pub fn new(bounds: impl IntoIterator<Item = (Quota, u64)>) -> Bounds {
        Bounds(Arc::new(bounds.into_iter().collect()))
    }

    /// Bounds so small that clients meet them often.
    pub fn random(random: &mut Random) -> Bounds {
        let most = [
            (Quota::Rules, 8),
            (Quota::Overrides, 6),
            (Quota::Groups, 12),
            (Quota::Counters, 8),
            (Quota::Leases, 4),
            (Quota::LedgerLimits, 8),
            (Quota::Streams, 3),
            (Quota::LocksHeld, 4),
            (Quota::LocksWaiting, 4),
        ];
        let chosen = most.into_iter().filter_map(|(quota, most)| {
            let limit = random.below(most);
            (!random.one_in(3)).then_some((quota, limit))
        });
        Bounds::new(chosen)
    }

    /// The same without the quotas of the limiter that the model of decisions does not know.
    #[must_use]
    pub fn without_limiter(&self) -> Bounds {
        let unknown = [Quota::Rules, Quota::Groups, Quota::Counters];
        Bounds::new(
            self.0.iter().map(|(quota, most)| (*quota, *most)).filter(|(quota, _)| !unknown.contains(quota)),
        )
    }

    /// The same for the engine.
    pub fn table(&self) -> Arc<QuotaTable> {
        let section = self.0.iter().map(|(quota, limit)| (*quota, Some(*limit))).collect();
        Arc::new(QuotaTable::new(section, []))
    }

    pub(super) fn limit(&self, quota: Quota) -> Option<u64> {
        self.0.get(&quota).copied()
    }

    /// The refusal, if a namespace with so many may not have more.
    pub(super) fn refuses(&self, quota: Quota, used: usize, more: usize) -> Option<QuotaExceeded> {
        let (used, more) = (used as u64, more as u64);
        let limit = self.limit(quota)?;
        (more > 0 && used + more > limit).then_some(QuotaExceeded { quota, limit, used })
    }
}
