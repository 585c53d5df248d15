//! How many connections a node has, and for what.

/// The number of connections for appends. Each runs one statement at a time.
pub(super) const APPEND_CONNECTIONS: usize = 3;
/// The number of connections for confirms: two, so that one can go on if the statement of the other takes long.
pub(super) const CONFIRM_CONNECTIONS: usize = 2;
/// The number of connections for look-ups.
pub(super) const READ_CONNECTIONS: usize = 2;
/// The number of connections for changes of ownership.
pub(super) const OWNERSHIP_CONNECTIONS: usize = 1;
/// The number of connections for renewals, which also receive the notifications of other nodes.
pub(super) const RENEW_CONNECTIONS: usize = 1;
/// The number of connections for checkpoints, and for removing released appends.
pub(super) const CHECKPOINT_CONNECTIONS: usize = 1;
/// The number of connections of a node.
pub(super) const CONNECTIONS: usize = APPEND_CONNECTIONS
    + CONFIRM_CONNECTIONS
    + READ_CONNECTIONS
    + OWNERSHIP_CONNECTIONS
    + RENEW_CONNECTIONS
    + CHECKPOINT_CONNECTIONS;
