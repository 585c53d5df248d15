//! What was counted for every group of every rule.
//!
//! What is in use is never stored for groups: it is the sum of counters, kept up as they change and made anew at opening.
//! Windows are stored. A group back in its initial state is dropped, so that a rule per address does not grow for ever.

use super::{keys, window::State};
use crate::{
    Millis, Position,
    ids::NamespaceId,
    key_values::KeyValues,
    keyed::{Keyed, Place},
    record::{self, Malformed},
    turn::Changes,
};
use alloc::{collections::VecDeque, vec::Vec};
use hashbrown::Equivalent;
use serde::{Deserialize, Serialize};

/// Whose count it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Owner {
    /// A rule of this generation, or an override that stands for the whole group.
    Rule(Position),
    /// The override of this id, of a rule of this generation.
    Override { generation: Position, id: Position },
    /// Limits of this window that come with requests.
    Request(Millis),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct GroupKey {
    pub(crate) owner: Owner,
    pub(crate) values: KeyValues,
}

/// A group's key, to look it up by.
#[derive(Hash)]
struct GroupRef<'a> {
    owner: Owner,
    values: &'a [u8],
}

impl Equivalent<GroupKey> for GroupRef<'_> {
    fn equivalent(&self, key: &GroupKey) -> bool {
        self.owner == key.owner && self.values == key.values.as_bytes()
    }
}

#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) state: State,
    to_write: When,
    is_stored: bool,
}

/// When a group's state is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum When {
    /// It is as it was stored, or is never stored.
    Never,
    /// Within instants: no answer waits for it.
    Soon,
    /// With the batch in which it changed.
    Now,
}

/// A window as it is stored.
#[derive(Serialize, Deserialize)]
struct StoredWindow {
    owner: Owner,
    values: KeyValues,
    state: State,
}

#[derive(Debug, Default)]
pub(crate) struct Groups {
    groups: Keyed<GroupKey, Group>,
    write_now: Vec<Place>,
    write_soon: VecDeque<Place>,
    /// How many of them are windows.
    windows: usize,
    /// Where the next look for idle ones begins.
    idle_from: Place,
    /// How many more rounds must look for groups of rules that are gone.
    rounds_for_gone: u8,
}

impl Groups {
    pub(crate) fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether rounds that look for idle ones have anything to find.
    pub(crate) fn may_be_idle(&self) -> bool {
        self.windows > 0 || self.rounds_for_gone > 0
    }

    /// A rule is gone: a whole round, from its beginning, finds its groups.
    pub(crate) fn note_gone(&mut self) {
        self.rounds_for_gone = 2;
    }

    pub(crate) fn has_to_write_now(&self) -> bool {
        !self.write_now.is_empty()
    }

    pub(crate) fn has_to_write_soon(&self) -> bool {
        !self.write_soon.is_empty()
    }

    pub(crate) fn find(&self, owner: Owner, values: &[u8]) -> Option<Place> {
        self.groups.find(&GroupRef { owner, values })
    }

    pub(crate) fn at(&self, place: Place) -> Option<(&GroupKey, &State)> {
        self.groups.at(place).map(|(key, group)| (key, &group.state))
    }

    /// Puts in a window that is not there yet.
    pub(crate) fn insert(&mut self, owner: Owner, values: &KeyValues, initial: State) -> Place {
        self.windows += 1;
        let group = Group { state: initial, to_write: When::Never, is_stored: false };
        self.groups.insert(GroupKey { owner, values: values.clone() }, group)
    }

    /// The state of a window, to be changed.
    pub(crate) fn change(&mut self, place: Place, when: When) -> &mut State {
        let (_, group) = self.groups.at_mut(place).expect("it is there");
        if when > group.to_write {
            group.to_write = when;
            match when {
                When::Now => self.write_now.push(place),
                When::Soon => self.write_soon.push_back(place),
                When::Never => {}
            }
        }
        &mut group.state
    }

    /// Adds to what is in use in a group.
    pub(crate) fn count(&mut self, owner: Owner, values: &[u8], change: i128) {
        let place = self.find(owner, values);
        let used = match place.and_then(|place| self.groups.at(place)) {
            Some((_, Group { state: State::Count(used), .. })) => *used,
            _ => 0,
        };
        let used = used.saturating_add_signed(change);
        match place {
            Some(place) if used == 0 => {
                self.groups.remove(place);
            }
            Some(place) => {
                let (_, group) = self.groups.at_mut(place).expect("it was found");
                group.state = State::Count(used);
            }
            None if used == 0 => {}
            None => {
                let group = Group { state: State::Count(used), to_write: When::Never, is_stored: false };
                self.groups.insert(GroupKey { owner, values: KeyValues::from_projected(values) }, group);
            }
        }
    }

    /// Puts a window back as it was before.
    pub(crate) fn restore(
        &mut self,
        owner: Owner,
        values: &KeyValues,
        before: Option<State>,
        namespace: NamespaceId,
        changes: &mut Changes,
    ) {
        let Some(place) = self.find(owner, values.as_bytes()) else { return };
        match before {
            Some(state) => self.groups.at_mut(place).expect("it was found").1.state = state,
            None => self.remove(place, namespace, changes),
        }
    }

    /// Takes a group away, and its record.
    pub(crate) fn remove(&mut self, place: Place, namespace: NamespaceId, changes: &mut Changes) {
        if let Some((_, group)) = self.groups.remove(place) {
            self.windows -= usize::from(!matches!(group.state, State::Count(_)));
            if group.is_stored {
                changes.remove(keys::window(namespace, place));
            }
        }
    }

    /// Looks at up to `limit` places for groups that are idle, from where it stopped last time, and drops those of
    /// which `is_idle` says so. Says whether it came to the end.
    pub(crate) fn drop_idle(
        &mut self,
        limit: usize,
        namespace: NamespaceId,
        changes: &mut Changes,
        is_idle: impl Fn(&GroupKey, &State) -> bool,
    ) -> bool {
        let end = self.groups.end();
        let until = self.idle_from.saturating_add(limit as Place).min(end);
        let groups = self.groups.iter_from(self.idle_from).take_while(|(place, ..)| *place < until);
        let idle: Vec<Place> =
            groups.filter(|(_, key, group)| is_idle(key, &group.state)).map(|(place, ..)| place).collect();
        for place in idle {
            self.remove(place, namespace, changes);
        }
        self.idle_from = if until == end { 0 } else { until };
        if until == end {
            self.rounds_for_gone = self.rounds_for_gone.saturating_sub(1);
        }
        until == end
    }

    /// Of what is to be written soon, up to `limit` is written with this batch.
    pub(crate) fn write_some_now(&mut self, limit: usize) {
        for _ in 0..limit {
            let Some(place) = self.write_soon.pop_front() else { return };
            if let Some((_, group)) = self.groups.at_mut(place)
                && group.to_write == When::Soon
            {
                group.to_write = When::Now;
                self.write_now.push(place);
            }
        }
    }

    /// Writes what is to be written now.
    pub(crate) fn flush(&mut self, namespace: NamespaceId, changes: &mut Changes) {
        for place in self.write_now.drain(..) {
            if let Some((key, group)) = self.groups.at_mut(place)
                && group.to_write == When::Now
            {
                group.to_write = When::Never;
                group.is_stored = true;
                let window =
                    StoredWindow { owner: key.owner, values: key.values.clone(), state: group.state.clone() };
                changes.put(&keys::window(namespace, place), &window);
            }
        }
    }

    /// Takes in a stored window. Windows come before anything is counted.
    pub(crate) fn load(&mut self, place: Place, bytes: &[u8]) -> Result<(), Malformed> {
        let StoredWindow { owner, values, state } = record::decode(bytes)?;
        if matches!(state, State::Count(_)) || self.find(owner, values.as_bytes()).is_some() {
            return Err(Malformed);
        }
        let group = Group { state, to_write: When::Never, is_stored: true };
        self.groups.insert_at(place, GroupKey { owner, values }, group);
        self.windows += 1;
        Ok(())
    }

    /// Frees a part of the memory, if any is left.
    pub(crate) fn drop_part(&mut self) -> bool {
        self.groups.drop_part()
    }
}
