//! Who holds one lock, and who waits for it.

use super::command::Mode;
use crate::{Position, WaitId};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

/// One lock, while anybody holds it or waits for it. Waiters stand in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// How its holders hold it. Only meaningful while there are any.
    is_shared: bool,
    holders: BTreeSet<Position>,
    waiters: BTreeMap<WaitId, Mode>,
    /// Those of the waiters that want it for themselves.
    exclusive: BTreeSet<WaitId>,
}

impl Queue {
    /// Whether this one may have it: no holder conflicts, and no waiter that came earlier does.
    pub(super) fn admits(&self, mode: Mode, wait: WaitId) -> bool {
        let (is_free, first) = match mode {
            Mode::Exclusive => (self.holders.is_empty(), self.waiters.keys().next()),
            Mode::Shared => (self.holders.is_empty() || self.is_shared, self.exclusive.first()),
        };
        is_free && first.is_none_or(|first| *first >= wait)
    }

    /// Those at the head who might have it now, as far as this lock goes.
    pub(super) fn next_in_line(&self) -> Vec<WaitId> {
        let Some((first, mode)) = self.waiters.first_key_value() else { return Vec::new() };
        if !self.admits(*mode, *first) {
            return Vec::new();
        }
        match mode {
            Mode::Exclusive => [*first].into(),
            Mode::Shared => {
                let sharing = self.waiters.iter().take_while(|(_, mode)| **mode == Mode::Shared);
                sharing.map(|(wait, _)| *wait).collect()
            }
        }
    }

    /// From now on this one holds it. Says whether that is possible at all.
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

    /// Who has held it longest.
    pub(super) fn holder(&self) -> Option<Position> {
        self.holders.first().copied()
    }

    pub(super) fn waiters(&self) -> impl ExactSizeIterator<Item = WaitId> {
        self.waiters.keys().copied()
    }

    pub(super) fn is_unused(&self) -> bool {
        self.holders.is_empty() && self.waiters.is_empty()
    }
}
