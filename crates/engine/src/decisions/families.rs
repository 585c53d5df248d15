//! The state of the four families, as decisions see it.

use crate::{events::Events, ledger::Ledger, limiter::Limiter, locks::Locks};

/// The state of the families that decisions are made about.
pub(crate) struct Families<'a> {
    pub(crate) ledger: &'a mut Ledger,
    pub(crate) limiter: &'a mut Limiter,
    pub(crate) locks: &'a mut Locks,
    pub(crate) events: &'a mut Events,
}

impl Families<'_> {
    pub(super) fn resident_bytes(&self) -> u64 {
        self.ledger.resident_bytes()
            + self.limiter.resident_bytes()
            + self.locks.resident_bytes()
            + self.events.resident_bytes()
    }
}
