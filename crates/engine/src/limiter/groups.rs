//! The state of every group of every rule: what is in use, or a window.
//!
//! What is in use is not stored for groups, because it is the sum of counters: it is updated as they change, and computed
//! again when a shard opens. Windows are stored. A group that is back in its initial state is dropped, so that a rule with one
//! group per address does not grow without bound.

use super::{keys, window::GroupState};
use crate::{
    Millis, Position,
    ids::NamespaceId,
    key_values::KeyValues,
    record::{self, Malformed},
    resident::{self, Heap},
    slab::{Slab, SlabIndex},
    turn::BatchChanges,
};
use alloc::{collections::VecDeque, vec::Vec};
use core::hint::black_box;
use hashbrown::Equivalent;
use serde::{Deserialize, Serialize};

/// The number of groups that are read from memory together, before they are written one after the other.
const LOADED_TOGETHER: usize = 32;

/// What a group belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum GroupOwner {
    /// The rule of this generation. An override for the whole group uses the group of its rule.
    Rule(Position),
    /// The override with this id, of the rule of this generation.
    Override { generation: Position, id: Position },
    /// Limits with a window of this length that come with requests.
    Request(Millis),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct GroupKey {
    pub(crate) owner: GroupOwner,
    pub(crate) values: KeyValues,
}

/// A [`GroupKey`] with borrowed values, for look-ups.
#[derive(Hash)]
struct GroupRef<'a> {
    owner: GroupOwner,
    values: &'a [u8],
}

impl Equivalent<GroupKey> for GroupRef<'_> {
    fn equivalent(&self, key: &GroupKey) -> bool {
        self.owner == key.owner && self.values == key.values.as_bytes()
    }
}

#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) state: GroupState,
    to_write: WriteWhen,
    is_stored: bool,
}

/// When the state of a group must be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WriteWhen {
    /// The state has not changed since it was stored, or is not stored at all.
    Never,
    /// A relaxed check changed the state, so no reply waits for it. A timer writes it within 100 ms.
    Soon,
    /// With the batch in which the state changed.
    Now,
}

/// A window as it is stored.
#[derive(Deserialize)]
struct StoredWindow {
    owner: GroupOwner,
    values: KeyValues,
    state: GroupState,
}

/// A [`StoredWindow`] with borrowed parts, to be written.
#[derive(Serialize)]
struct StoredWindowRef<'a> {
    owner: GroupOwner,
    values: &'a KeyValues,
    state: &'a GroupState,
}

#[derive(Debug, Default)]
pub(crate) struct Groups {
    groups: Slab<GroupKey, Group>,
    write_now: Vec<SlabIndex>,
    write_soon: VecDeque<SlabIndex>,
    /// The number of groups that are windows.
    windows: usize,
    /// The resident bytes of all groups without the slab.
    entry_bytes: u64,
    /// Where the next slice of the scan for idle groups begins.
    idle_from: SlabIndex,
    /// The number of scans that must still look for groups of removed rules.
    stale_scan_rounds: u8,
}

/// The resident bytes of a group without its place in the slab: its texts, and its place in a list of groups to write.
fn entry_bytes(values: &KeyValues, state: &GroupState) -> u64 {
    values.heap() + state.heap() + resident::vec_slot::<SlabIndex>()
}

/// The resident bytes of a new group.
pub(super) fn group_bytes(values: &KeyValues, state: &GroupState) -> u64 {
    resident::slab_slot::<(GroupKey, Group)>() + entry_bytes(values, state)
}

/// A list of groups to write keeps this much room for the next ones.
const KEPT_ROOM: usize = 256;

impl Groups {
    pub(crate) fn len(&self) -> usize {
        self.groups.len()
    }

    pub(crate) fn resident_bytes(&self) -> u64 {
        self.entry_bytes + self.groups.bytes()
    }

    /// The resident bytes, summed up anew.
    pub(crate) fn recount_bytes(&self) -> u64 {
        let entries = self.groups.iter_from(0).map(|(_, key, group)| entry_bytes(&key.values, &group.state));
        entries.sum::<u64>() + self.groups.recount_bytes()
    }

    /// Whether a scan for idle groups could find any.
    pub(crate) fn may_be_idle(&self) -> bool {
        self.windows > 0 || self.stale_scan_rounds > 0
    }

    /// A rule was removed or has a new generation, so its groups must be dropped. The scan under way may have passed some of
    /// them already; the one after it finds the rest.
    pub(crate) fn mark_stale_groups(&mut self) {
        self.stale_scan_rounds = 2;
    }

    pub(crate) fn has_to_write_now(&self) -> bool {
        !self.write_now.is_empty()
    }

    pub(crate) fn has_to_write_soon(&self) -> bool {
        !self.write_soon.is_empty()
    }

    pub(crate) fn find(&self, owner: GroupOwner, values: &[u8]) -> Option<SlabIndex> {
        self.groups.find(&GroupRef { owner, values })
    }

    /// The hash of a group's key, for [`Groups::probable_index`].
    pub(crate) fn hash(&self, owner: GroupOwner, values: &[u8]) -> u32 {
        self.groups.hash(&GroupRef { owner, values })
    }

    /// Loads from memory what [`Groups::probable_index`] looks at. The result has no meaning.
    pub(crate) fn load_place(&self, hash: u32) -> u32 {
        self.groups.load_place(hash)
    }

    /// Where a group with this hash is. It may be another group than the one that is looked for.
    pub(crate) fn probable_index(&self, hash: u32) -> Option<SlabIndex> {
        self.groups.probable_index(hash)
    }

    /// Loads all of a group from memory, which is two or three lines of the processor's cache. The result has no meaning.
    pub(crate) fn load_group(&self, index: SlabIndex) -> u32 {
        self.groups.at(index).map_or(0, |(key, group)| {
            let is_count = matches!(group.state, GroupState::Count(_));
            key.values.as_bytes().len() as u32 ^ u32::from(is_count) ^ group.to_write as u32
        })
    }

    /// As [`Groups::find`], for a group that probably is at this index.
    pub(crate) fn find_at(
        &self,
        index: Option<SlabIndex>,
        owner: GroupOwner,
        values: &[u8],
    ) -> Option<SlabIndex> {
        let key = GroupRef { owner, values };
        match index.and_then(|index| self.groups.at(index)) {
            Some((other, _)) if key.equivalent(other) => index,
            _ => self.groups.find(&key),
        }
    }

    pub(crate) fn at(&self, index: SlabIndex) -> Option<(&GroupKey, &GroupState)> {
        self.groups.at(index).map(|(key, group)| (key, &group.state))
    }

    /// The state of the group at an index. `None` if there is no group.
    pub(crate) fn state_at(&self, index: Option<SlabIndex>) -> Option<&GroupState> {
        self.at(index?).map(|(_, state)| state)
    }

    /// All indexes in use are below this one.
    pub(crate) fn end(&self) -> SlabIndex {
        self.groups.end()
    }

    /// The groups from index `from` on, by index.
    pub(crate) fn iter_from(
        &self,
        from: SlabIndex,
    ) -> impl Iterator<Item = (SlabIndex, &GroupKey, &GroupState)> {
        self.groups.iter_from(from).map(|(index, key, group)| (index, key, &group.state))
    }

    /// Inserts a window that does not exist yet.
    pub(crate) fn insert(&mut self, owner: GroupOwner, values: &KeyValues, initial: GroupState) -> SlabIndex {
        self.windows += 1;
        self.entry_bytes += entry_bytes(values, &initial);
        let group = Group { state: initial, to_write: WriteWhen::Never, is_stored: false };
        self.groups.insert(GroupKey { owner, values: values.clone() }, group)
    }

    /// Changes the state of a window, and marks it to be written.
    pub(crate) fn change(&mut self, index: SlabIndex, when: WriteWhen, change: impl FnOnce(&mut GroupState)) {
        let (_, group) = self.groups.at_mut(index).expect("the index was just found");
        if when > group.to_write {
            group.to_write = when;
            match when {
                WriteWhen::Now => self.write_now.push(index),
                WriteWhen::Soon => self.write_soon.push_back(index),
                WriteWhen::Never => {}
            }
        }
        self.entry_bytes -= group.state.heap();
        change(&mut group.state);
        self.entry_bytes += group.state.heap();
    }

    /// Adds to what is in use in a group. The group is created if it does not exist, and dropped if nothing is in use.
    pub(crate) fn count(&mut self, owner: GroupOwner, values: &[u8], change: i128) {
        let index = self.find(owner, values);
        let used = match index.and_then(|index| self.groups.at(index)) {
            Some((_, Group { state: GroupState::Count(used), .. })) => *used,
            _ => 0,
        };
        let used = used.saturating_add_signed(change);
        match index {
            Some(index) if used == 0 => {
                if let Some((key, group)) = self.groups.remove(index) {
                    self.entry_bytes -= entry_bytes(&key.values, &group.state);
                }
            }
            Some(index) => {
                let (_, group) = self.groups.at_mut(index).expect("the index was just found");
                group.state = GroupState::Count(used);
            }
            None if used == 0 => {}
            None => {
                let group =
                    Group { state: GroupState::Count(used), to_write: WriteWhen::Never, is_stored: false };
                let key = GroupKey { owner, values: KeyValues::from_projected(values) };
                self.entry_bytes += entry_bytes(&key.values, &group.state);
                self.groups.insert(key, group);
            }
        }
    }

    /// Restores a window to the state that it had before; `None` removes the window.
    pub(crate) fn restore(
        &mut self,
        owner: GroupOwner,
        values: &KeyValues,
        before: Option<GroupState>,
        namespace: NamespaceId,
        changes: &mut BatchChanges,
    ) {
        let Some(index) = self.find(owner, values.as_bytes()) else { return };
        match before {
            Some(state) => {
                let (_, group) = self.groups.at_mut(index).expect("the index was just found");
                self.entry_bytes = self.entry_bytes + state.heap() - group.state.heap();
                group.state = state;
            }
            None => self.remove(index, namespace, changes),
        }
    }

    /// Removes a group and its record.
    pub(crate) fn remove(&mut self, index: SlabIndex, namespace: NamespaceId, changes: &mut BatchChanges) {
        if let Some((key, group)) = self.groups.remove(index) {
            self.entry_bytes -= entry_bytes(&key.values, &group.state);
            self.windows -= usize::from(!matches!(group.state, GroupState::Count(_)));
            if group.is_stored {
                changes.remove(keys::window(namespace, index));
            }
        }
    }

    /// Continues the scan for idle groups over up to `limit` slab indexes, and drops those that are. Returns whether the scan
    /// has reached the end.
    pub(crate) fn drop_idle(
        &mut self,
        limit: usize,
        namespace: NamespaceId,
        changes: &mut BatchChanges,
        is_idle: impl Fn(&GroupKey, &GroupState) -> bool,
    ) -> bool {
        let end = self.groups.end();
        let until = self.idle_from.saturating_add(limit as SlabIndex).min(end);
        let groups = self.groups.iter_from(self.idle_from).take_while(|(index, ..)| *index < until);
        let idle: Vec<SlabIndex> =
            groups.filter(|(_, key, group)| is_idle(key, &group.state)).map(|(index, ..)| index).collect();
        for index in idle {
            self.remove(index, namespace, changes);
        }
        self.idle_from = if until == end { 0 } else { until };
        if until == end {
            self.stale_scan_rounds = self.stale_scan_rounds.saturating_sub(1);
        }
        until == end
    }

    /// Chooses up to `limit` of the states that must be written soon. The next [`Groups::flush`] writes them.
    pub(crate) fn write_some_now(&mut self, limit: usize) {
        let some = limit.min(self.write_soon.len());
        self.write_now.extend(self.write_soon.drain(..some));
        if self.write_soon.is_empty() {
            self.write_soon.shrink_to(KEPT_ROOM);
        }
    }

    /// Writes the after-images of the states that must be written now.
    pub(crate) fn flush(&mut self, namespace: NamespaceId, changes: &mut BatchChanges) {
        let mut to_write = core::mem::take(&mut self.write_now);
        for together in to_write.chunks(LOADED_TOGETHER) {
            // Relaxed checks changed these groups up to 100 ms ago. Among millions of groups, they have left the processor's cache
            // since. Reading several in a row is faster than waiting for each one when it is written.
            black_box(together.iter().fold(0, |loaded, index| loaded ^ self.load_group(*index)));
            for index in together {
                if let Some((key, group)) = self.groups.at_mut(*index)
                    && group.to_write > WriteWhen::Never
                {
                    group.to_write = WriteWhen::Never;
                    group.is_stored = true;
                    let (owner, values, state) = (key.owner, &key.values, &group.state);
                    changes.put(&keys::window(namespace, *index), &StoredWindowRef { owner, values, state });
                }
            }
        }
        // A little of the memory is used again.
        to_write.clear();
        to_write.shrink_to(KEPT_ROOM);
        self.write_now = to_write;
    }

    /// Loads a stored window. All windows must be loaded before anything is counted.
    pub(crate) fn load(&mut self, index: SlabIndex, bytes: &[u8]) -> Result<(), Malformed> {
        let StoredWindow { owner, values, state } = record::decode(bytes)?;
        if matches!(state, GroupState::Count(_)) || self.find(owner, values.as_bytes()).is_some() {
            return Err(Malformed);
        }
        let group = Group { state, to_write: WriteWhen::Never, is_stored: true };
        self.entry_bytes += entry_bytes(&values, &group.state);
        self.groups.insert_at(index, GroupKey { owner, values }, group);
        self.windows += 1;
        Ok(())
    }

    /// Replaces the stored window at an index, or removes it. Returns false if that is not possible, because this slab has another
    /// entry where the one that was stored had none.
    pub(crate) fn amend(&mut self, index: SlabIndex, bytes: Option<&[u8]>) -> Result<bool, Malformed> {
        let new: Option<StoredWindow> = bytes.map(record::decode).transpose()?;
        if let Some((key, group)) = self.groups.at(index) {
            if matches!(group.state, GroupState::Count(_)) {
                // The index of what is in use is not stored.
                return Ok(new.is_none());
            }
            let is_same = |new: &StoredWindow| new.owner == key.owner && new.values == key.values;
            if let Some(new) = new.as_ref().filter(|new| is_same(new)) {
                let (_, group) = self.groups.at_mut(index).expect("the index was just found");
                self.entry_bytes = self.entry_bytes + new.state.heap() - group.state.heap();
                group.state = new.state.clone();
                return Ok(true);
            }
            if let Some((key, group)) = self.groups.remove(index) {
                self.entry_bytes -= entry_bytes(&key.values, &group.state);
                self.windows -= 1;
            }
        }
        match (new, bytes) {
            (Some(new), Some(_)) if self.find(new.owner, new.values.as_bytes()).is_some() => Ok(false),
            (Some(_), Some(bytes)) => self.load(index, bytes).map(|()| true),
            _ => Ok(true),
        }
    }

    /// Frees a part of the memory. Returns whether any was left.
    pub(crate) fn free_chunk(&mut self) -> bool {
        self.groups.free_chunk()
    }
}
