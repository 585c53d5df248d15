//! What the engine wants done besides answering. One closed list; all of it waits for durability.

use crate::{
    Name, Position,
    events::{Change, KeyFrame},
};

/// Something to tell others, released in order once the writes sealed with it are durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// An unfinished hold was rolled back because its time had run out.
    HoldExpired {
        /// Where.
        namespace: Name,
        /// Whose hold it was.
        operation_id: Name,
        /// The position of the rollback.
        position: Position,
    },
    /// What a limiter's lease held was given back because its time had run out.
    LeaseExpired {
        /// Where.
        namespace: Name,
        /// Which.
        lease_id: Name,
    },
    /// A lock was taken back because its holder gave no sign of life.
    LockExpired {
        /// Where.
        namespace: Name,
        /// Which.
        lock_id: Name,
        /// Whose it was.
        owner: Option<Name>,
    },
    /// A stream of events has changed. Clocks ascend by one.
    StreamChanged {
        /// Where.
        namespace: Name,
        /// Which.
        stream: Name,
        /// What became of which event.
        change: Change,
    },
    /// All that incubates in a stream, in its place among the changes.
    KeyFrame {
        /// Where.
        namespace: Name,
        /// Which stream.
        stream: Name,
        /// What incubates.
        frame: KeyFrame,
    },
    /// A stream is gone. One that is made under the same name is another.
    StreamDeleted {
        /// Where.
        namespace: Name,
        /// Which.
        stream: Name,
    },
    /// Something was due, but a stored record that it needs could not be read; it is tried again a little later.
    DuePostponed {
        /// Where.
        namespace: Name,
    },
}
