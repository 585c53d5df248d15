//! The queue of events, by time of arrival.

use super::node::{NodeRequest, StoreCall, StoreReply};
use limina_store::NodeId;
use std::collections::BTreeMap;

/// Milliseconds since the beginning of the run.
pub(super) type Millis = u64;

/// Something that happens at a scheduled time.
#[derive(Debug)]
pub(super) enum Event {
    /// A node renews.
    Tick(NodeId),
    /// A call arrives at the store.
    Called { node: NodeId, number: u64, call: StoreCall },
    /// A node receives the result of its call, or gives the call up (`None`).
    Heard { node: NodeId, number: u64, done: Option<StoreReply> },
    /// A request arrives at a node, from a client or from another node.
    NodeRequest { node: NodeId, asked: NodeRequest },
    /// A node notices that its session with the store has ended.
    Disconnected(NodeId),
    /// A connection to the address of a node is tried.
    Probe { by: NodeId, of: NodeId },
    /// A node learns whether the connection was refused.
    Probed { by: NodeId, of: NodeId, is_refused: bool },
    /// A client receives an answer.
    Answered { client: u64, answer: Answer },
    /// A client sends a request.
    Client,
    /// Something fails, or is repaired.
    Trouble,
    /// Another process starts at this address.
    Start(u64),
}

/// The answer to a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// The number was appended.
    Appended,
    /// The content of the shard.
    Read(Vec<u64>),
    /// The node answered from its memory.
    Relaxed,
    /// Nothing was done.
    NotDone,
    /// It may have been done.
    Unknown,
}

/// All scheduled events.
#[derive(Default)]
pub(super) struct EventQueue {
    events: BTreeMap<(Millis, u64), Event>,
    count: u64,
}

impl EventQueue {
    /// Schedules an event. Events at the same time happen in the order in which they were scheduled.
    pub(super) fn at(&mut self, time: Millis, event: Event) {
        self.count += 1;
        self.events.insert((time, self.count), event);
    }

    pub(super) fn next(&mut self) -> Option<(Millis, Event)> {
        self.events.pop_first().map(|((time, _), event)| (time, event))
    }
}
