//! Effects: what the engine wants pushed, logged or counted besides its answers. An effect is released when the batch that it
//! was sealed with is durable.

use crate::{Name, Position, Time};
use alloc::{sync::Arc, vec::Vec};
use serde::{Deserialize, Serialize};

/// Something to push, log or count. Effects are released in order, when their batch is durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Open holds were rolled back because they had expired.
    HoldExpired {
        /// The namespace.
        namespace: Name,
        /// The operation whose hold expired.
        operation_id: Name,
        /// The position of the rollback.
        position: Position,
    },
    /// A lease of the limiter has expired, and what it held was given back.
    LeaseExpired {
        /// The namespace.
        namespace: Name,
        /// The lease.
        lease_id: Name,
    },
    /// A grant of locks ended because its holder had sent no heartbeat.
    LockExpired {
        /// The namespace.
        namespace: Name,
        /// The id of the grant.
        lock_id: Name,
        /// The name that the holder gave itself.
        owner: Option<Name>,
    },
    /// A decision ended, with all its parts, because its holder had sent no heartbeat.
    OperationExpired {
        /// The namespace.
        namespace: Name,
        /// The decision.
        operation_id: Name,
        /// The position of its end.
        position: Position,
    },
    /// A stream has changed. The clocks of its changes ascend by one.
    StreamChanged {
        /// The namespace.
        namespace: Name,
        /// The stream.
        stream: Name,
        /// The change.
        change: Change,
    },
    /// A key frame of a stream, in order with the changes of the stream.
    KeyFrame {
        /// The namespace.
        namespace: Name,
        /// The stream.
        stream: Name,
        /// The key frame.
        frame: KeyFrame,
    },
    /// A stream was deleted. A stream that is created later under the same name is another one.
    StreamDeleted {
        /// The namespace.
        namespace: Name,
        /// The stream.
        stream: Name,
    },
    /// A timer was due, but a stored record that it needs could not be read. It fires again a second later.
    TimerPostponed {
        /// The namespace.
        namespace: Name,
    },
}

/// An event. Its text is also its key.
pub type Event = Arc<str>;

/// An incubating event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventInfo {
    /// The event.
    pub event: Event,
    /// The shard time at which the event was accepted.
    pub time: Time,
    /// The time at which the event is published, unless it is invalidated before.
    pub publishes_at: Time,
}

/// A snapshot of all incubating events of a stream, as of a clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyFrame {
    /// The clock of the last change that the snapshot contains.
    pub clock: u64,
    /// The incubating events, in the order of acceptance.
    pub events: Vec<EventInfo>,
}

/// A change of a stream: a step in the life of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The number of the change in its stream.
    pub clock: u64,
    /// The kind of the change.
    pub kind: ChangeKind,
    /// The event.
    pub event: Event,
    /// The time at which the event was accepted.
    pub time: Time,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangeKind {
    /// The event was accepted, and incubates.
    Submitted,
    /// A duplicate arrived while the event incubated. This is final.
    Invalidated,
    /// No duplicate arrived while the event incubated. This is final.
    Published,
}
