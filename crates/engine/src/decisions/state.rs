//! The open decisions of a namespace. Each is one stored record, which contains all its parts that have no record of their own:
//! so there is no part without its decision, and no decision without its parts.

use super::{
    keys,
    open::Open,
    reply::{Refusal, Reply},
    waiters::Waiters,
};
use crate::{
    Name, Position, Time, WaitId,
    leftovers::Leftovers,
    resident::{self, Shrink},
    turn::Turn,
};
use alloc::{collections::BTreeMap, vec::Vec};
use hashbrown::HashMap;

/// The decisions of a namespace.
#[derive(Debug, Default)]
pub(crate) struct Decisions {
    pub(super) open: BTreeMap<Position, Open>,
    pub(super) by_id: HashMap<Name, Position>,
    /// The first and the last period with an ended decision that held nothing.
    pub(super) periods: Option<(u32, u32)>,
    /// The resident bytes of all open decisions, without what the families count.
    bytes: u64,
    pub(super) waiters: Waiters,
    /// Replies to requests that waited.
    pub(super) completed: Vec<(WaitId, Result<Reply, Refusal>)>,
}

/// What the first decision takes besides.
const FIRST_OPEN_BYTES: u64 = resident::first_in_tree::<(Position, Open)>()
    + resident::first_in_hash::<(Name, Position)>()
    + resident::first_in_hash::<(Name, Time)>();

impl Decisions {
    /// The number of open decisions.
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn resident_bytes(&self) -> u64 {
        self.bytes + resident::unless_empty(self.open.len(), FIRST_OPEN_BYTES) + self.waiters.resident_bytes()
    }

    /// The resident bytes, summed up anew.
    pub(crate) fn recount_bytes(&self) -> u64 {
        let open = self.open.values().map(Open::resident_bytes).sum::<u64>();
        open + resident::unless_empty(self.open.len(), FIRST_OPEN_BYTES) + self.waiters.recount_bytes()
    }

    /// The number of decisions that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// The replies to requests that waited, since the last call, in order.
    pub(crate) fn take_completed(&mut self) -> Vec<(WaitId, Result<Reply, Refusal>)> {
        core::mem::take(&mut self.completed)
    }

    pub(super) fn find(&self, id: &Name) -> Option<&Open> {
        self.by_id.get(id).map(|position| &self.open[position])
    }

    /// Inserts a decision. Returns false if there is one under the same id: that is a bug, or a damaged record.
    pub(super) fn insert(&mut self, open: Open) -> bool {
        self.bytes += open.resident_bytes();
        let is_new = self.by_id.insert(open.id().clone(), open.position).is_none();
        is_new && self.open.insert(open.position, open).is_none()
    }

    pub(super) fn remove(&mut self, turn: &mut Turn<'_>, position: Position) -> Option<Open> {
        let open = self.open.remove(&position)?;
        self.bytes -= open.resident_bytes();
        self.by_id.remove(open.id());
        self.by_id.shrink();
        turn.timers.cancel(open.timer_key(turn.namespace));
        turn.remove(keys::open(turn.namespace, position));
        Some(open)
    }

    /// The requests that wait in a deleted namespace, and the rest of its memory.
    pub(crate) fn into_waits_and_leftovers(self) -> (Vec<WaitId>, Leftovers, Leftovers) {
        let (waits, waiting) = self.waiters.into_waits_and_leftovers();
        (waits, Leftovers::of(self.open).and(self.by_id), waiting)
    }
}
