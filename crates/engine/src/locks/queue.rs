//! The holders of one lock, and the requests that wait for it.

use crate::{Position, WaitId};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};
use limina_api::locks::Mode;

/// One lock, while it has holders or waiters. Waiters are in the order of their arrival.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Whether the holders share the lock. Meaningless without holders.
    is_shared: bool,
    holders: BTreeSet<Position>,
    waiters: BTreeMap<WaitId, Mode>,
    /// The waiters that want the lock exclusively.
    exclusive: BTreeSet<WaitId>,
}

impl Queue {
    /// Whether the lock can be granted: neither a holder nor an earlier waiter conflicts.
    pub(super) fn admits(&self, mode: Mode, wait: WaitId) -> bool {
        let (is_free, first) = match mode {
            Mode::Exclusive => (self.holders.is_empty(), self.waiters.keys().next()),
            Mode::Shared => (self.holders.is_empty() || self.is_shared, self.exclusive.first()),
        };
        is_free && first.is_none_or(|first| *first >= wait)
    }

    /// The waiters at the head of the queue that this lock no longer blocks, after a holder or a waiter of this mode has left. One that
    /// shared the lock has blocked only those that want it exclusively.
    pub(super) fn next_in_line(&self, left: Mode) -> Vec<WaitId> {
        let Some((first, mode)) = self.waiters.first_key_value() else { return Vec::new() };
        if !self.admits(*mode, *first) {
            return Vec::new();
        }
        match (mode, left) {
            (Mode::Exclusive, _) => [*first].into(),
            (Mode::Shared, Mode::Shared) => Vec::new(),
            (Mode::Shared, Mode::Exclusive) => {
                let sharing = self.waiters.iter().take_while(|(_, mode)| **mode == Mode::Shared);
                sharing.map(|(wait, _)| *wait).collect()
            }
        }
    }

    /// Adds a holder. Returns false if it conflicts with another holder.
    pub(super) fn hold(&mut self, token: Position, mode: Mode) -> bool {
        let is_free = self.holders.is_empty() || (self.is_shared && mode == Mode::Shared);
        self.is_shared = mode == Mode::Shared;
        self.holders.insert(token) && is_free
    }

    pub(super) fn release(&mut self, token: Position) {
        self.holders.remove(&token);
    }

    pub(super) fn join(&mut self, wait: WaitId, mode: Mode) {
        self.waiters.insert(wait, mode);
        if mode == Mode::Exclusive {
            self.exclusive.insert(wait);
        }
    }

    pub(super) fn leave(&mut self, wait: WaitId) {
        self.waiters.remove(&wait);
        self.exclusive.remove(&wait);
    }

    /// The oldest holder.
    pub(super) fn holder(&self) -> Option<Position> {
        self.holders.first().copied()
    }

    pub(super) fn waiters(&self) -> impl ExactSizeIterator<Item = WaitId> {
        self.waiters.keys().copied()
    }

    pub(super) fn has_waiter(&self, wait: WaitId) -> bool {
        self.waiters.contains_key(&wait)
    }

    pub(super) fn is_unused(&self) -> bool {
        self.holders.is_empty() && self.waiters.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thousands may share a lock and wait for another one. They are not asked again whenever one of them leaves.
    #[test]
    fn who_shared_a_lock_blocked_only_those_that_want_it_alone() {
        let mut queue = Queue::default();
        (1..=3).for_each(|wait| queue.join(WaitId(wait), Mode::Shared));
        assert_eq!(queue.next_in_line(Mode::Shared), []);
        assert_eq!(queue.next_in_line(Mode::Exclusive), [WaitId(1), WaitId(2), WaitId(3)]);
        queue.join(WaitId(0), Mode::Exclusive);
        assert_eq!(queue.next_in_line(Mode::Shared), [WaitId(0)]);
        assert!(queue.hold(Position(1), Mode::Shared));
        assert_eq!(queue.next_in_line(Mode::Shared), []);
    }
}
