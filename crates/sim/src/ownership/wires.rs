//! What is on its way, by when it arrives.

use super::node::{Asked, Call, Done};
use limina_store::NodeId;
use std::collections::BTreeMap;

/// Milliseconds since the beginning.
pub(super) type Millis = u64;

/// Something that happens at its time.
#[derive(Debug)]
pub(super) enum Event {
    /// A node renews.
    Tick(NodeId),
    /// A call arrives at the store.
    Called { node: NodeId, number: u64, call: Call },
    /// A node hears how its call went, or gives it up.
    Heard { node: NodeId, number: u64, done: Option<Done> },
    /// A node is asked for something, by a client or by another node.
    Asked { node: NodeId, asked: Asked },
    /// A client is answered.
    Answered { client: u64, answer: Answer },
    /// A client asks.
    Client,
    /// Something goes wrong, or is set right.
    Trouble,
    /// Another process starts at this address.
    Start(u64),
}

/// What a client is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// It is appended.
    Appended,
    /// All that the shard holds.
    Read(Vec<u64>),
    /// The node answered from its memory.
    Relaxed,
    /// Nothing was done.
    NotDone,
    /// It may have been done.
    Unknown,
}

/// Everything that is on its way.
#[derive(Default)]
pub(super) struct Wires {
    events: BTreeMap<(Millis, u64), Event>,
    count: u64,
}

impl Wires {
    /// Lets it happen then. What happens at the same time happens in the order in which it was said.
    pub(super) fn at(&mut self, time: Millis, event: Event) {
        self.count += 1;
        self.events.insert((time, self.count), event);
    }

    pub(super) fn next(&mut self) -> Option<(Millis, Event)> {
        self.events.pop_first().map(|((time, _), event)| (time, event))
    }
}
