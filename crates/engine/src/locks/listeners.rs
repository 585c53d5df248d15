//! The requests that were answered with a grant. A hang-up of one of them does not end a grant that another one still has.
//!
//! A retry under the same idempotency key is answered with the grant that the first request made. From then on the grant
//! has two listeners, and ends by a hang-up only when both have hung up. Listeners are stored: a hang-up may be reported
//! after the shard was opened again, or by another node to the shard's next owner.

use super::{keys, state::Locks};
use crate::{
    Name, Position,
    record::{self, Malformed},
    resident::{self, Heap},
    turn::Turn,
};
use alloc::{vec, vec::Vec};
use serde::{Deserialize, Serialize};

/// The largest number of listeners of a grant that are stored. A client that retries more often has probably received its
/// grant; if not, the ttl ends it.
const MAX_LISTENERS: usize = 8;

/// The requests that were answered with a grant and have not hung up. A grant that was returned to its own request alone has
/// no such record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Listeners {
    /// The ids of the requests.
    Known(Vec<Name>),
    /// There were more than [`MAX_LISTENERS`]. No hang-up ends the grant any more.
    Unknown,
}

/// What the first of them take besides.
pub(super) const FIRST_LISTENERS_BYTES: u64 =
    resident::first_in_tree::<(Position, Listeners)>() + resident::first_in_tree::<(Name, Position)>();

impl Listeners {
    pub(super) fn resident_bytes(&self) -> u64 {
        let names = match self {
            Listeners::Known(names) => &names[..],
            Listeners::Unknown => &[],
        };
        let each = |name: &Name| name.heap() + resident::tree_slot::<(Name, Position)>();
        let list = resident::heap(size_of_val(names));
        resident::tree_slot::<(Position, Listeners)>() + list + names.iter().map(each).sum::<u64>()
    }
}

impl Locks {
    /// Adds a request that is answered with this grant. `request` is `None` for a request that is not `acquire`: its hang-up is
    /// not reported.
    pub(super) fn listen(&mut self, turn: &mut Turn<'_>, token: Position, request: Option<&Name>) {
        let Some(grant) = self.grants.get(&token) else { return };
        let listeners = self.listeners.get(&token);
        let mut names = match listeners {
            None => vec![grant.id.clone()],
            Some(Listeners::Known(names)) => names.clone(),
            Some(Listeners::Unknown) => return,
        };
        match request {
            Some(request) if names.contains(request) => return,
            Some(request) if names.len() < MAX_LISTENERS => {
                names.push(request.clone());
                self.set_listeners(token, Listeners::Known(names));
            }
            _ => self.set_listeners(token, Listeners::Unknown),
        }
        turn.put(keys::listeners(turn.namespace, token), &self.listeners[&token]);
    }

    /// Handles a hang-up: each grant without other listeners ends, the oldest first.
    pub(super) fn hang_up(&mut self, turn: &mut Turn<'_>, request: &Name) {
        for token in self.listened_to_by(request) {
            let mut others = match self.listeners.get(&token) {
                Some(Listeners::Known(names)) => names.clone(),
                Some(Listeners::Unknown) | None => Vec::new(),
            };
            others.retain(|other| other != request);
            if others.is_empty() {
                self.end_grant(turn, token);
            } else {
                self.set_listeners(token, Listeners::Known(others));
                turn.put(keys::listeners(turn.namespace, token), &self.listeners[&token]);
            }
        }
    }

    fn listened_to_by(&self, request: &Name) -> Vec<Position> {
        let is_own = |token: &&Position| {
            !self.listeners.contains_key(*token) && self.grants[*token].operation_id.is_none()
        };
        let own = self.tokens.get(request).filter(is_own).copied();
        let first = (request.clone(), Position(0));
        let others = self.listening.range(first..).take_while(|(name, _)| name == request);
        let mut tokens: Vec<Position> = own.into_iter().chain(others.map(|(_, token)| *token)).collect();
        tokens.sort_unstable();
        tokens
    }

    fn set_listeners(&mut self, token: Position, listeners: Listeners) {
        self.forget_listeners(token);
        if let Listeners::Known(names) = &listeners {
            self.listening.extend(names.iter().map(|name| (name.clone(), token)));
        }
        self.bytes += listeners.resident_bytes();
        self.listeners.insert(token, listeners);
    }

    /// Removes the listeners of a grant from memory. Returns whether there is a record to remove.
    pub(super) fn forget_listeners(&mut self, token: Position) -> bool {
        let listeners = self.listeners.remove(&token);
        self.bytes -= listeners.as_ref().map_or(0, Listeners::resident_bytes);
        if let Some(Listeners::Known(names)) = &listeners {
            for name in names {
                self.listening.remove(&(name.clone(), token));
            }
        }
        listeners.is_some()
    }

    /// Loads the listeners of a grant, which was loaded before.
    pub(super) fn load_listeners(&mut self, token: Position, bytes: &[u8]) -> Result<(), Malformed> {
        let listeners: Listeners = record::decode(bytes)?;
        if !self.grants.contains_key(&token) {
            return Err(Malformed);
        }
        self.set_listeners(token, listeners);
        Ok(())
    }
}
