//! Effects: what the engine wants pushed, logged or counted besides its answers. One closed list. Every effect waits until
//! the writes sealed with it are durable.

use crate::{Name, Position, Time};
use alloc::{sync::Arc, vec::Vec};
use serde::{Deserialize, Serialize};

/// Something to tell others, released in order once the writes sealed with it are durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// An unfinished hold was rolled back because its time had run out.
    HoldExpired {
        /// The namespace.
        namespace: Name,
        /// The operation whose hold expired.
        operation_id: Name,
        /// The position of the rollback.
        position: Position,
    },
    /// What a limiter's lease held was given back because its time had run out.
    LeaseExpired {
        /// The namespace.
        namespace: Name,
        /// The lease.
        lease_id: Name,
    },
    /// A lock was taken back because its holder gave no sign of life.
    LockExpired {
        /// The namespace.
        namespace: Name,
        /// The lock.
        lock_id: Name,
        /// The owner that the holder had named.
        owner: Option<Name>,
    },
    /// A stream of events has changed. Clocks ascend by one.
    StreamChanged {
        /// The namespace.
        namespace: Name,
        /// The stream.
        stream: Name,
        /// What became of which event.
        change: Change,
    },
    /// All that incubates in a stream, in its place among the changes.
    KeyFrame {
        /// The namespace.
        namespace: Name,
        /// The stream.
        stream: Name,
        /// What incubates.
        frame: KeyFrame,
    },
    /// A stream is gone. One that is made under the same name is another.
    StreamDeleted {
        /// The namespace.
        namespace: Name,
        /// The stream.
        stream: Name,
    },
    /// Something was due, but a stored record that it needs could not be read; it is tried again a little later.
    TimerPostponed {
        /// The namespace.
        namespace: Name,
    },
}

/// An event: a text, which is its own key.
pub type Event = Arc<str>;

/// An event that incubates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventInfo {
    /// What happened.
    pub event: Event,
    /// When it happened.
    pub time: Time,
    /// When it is published, unless it is invalidated.
    pub publishes_at: Time,
}

/// All that incubates after the change with this clock, in the order of acceptance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyFrame {
    /// The clock of the last change that it contains.
    pub clock: u64,
    /// What incubates.
    pub events: Vec<EventInfo>,
}

/// A step in an event's life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Its place in the stream.
    pub clock: u64,
    /// What became of the event.
    pub kind: ChangeKind,
    /// The event.
    pub event: Event,
    /// When the event had happened.
    pub time: Time,
}

/// What becomes of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangeKind {
    /// It was accepted, and incubates.
    Submitted,
    /// A duplicate came. This is final.
    Invalidated,
    /// None came. This is final.
    Published,
}
