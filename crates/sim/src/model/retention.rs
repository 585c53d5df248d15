//! How long things are remembered.

/// How long a reply and a decision that has ended are kept, in milliseconds.
pub(super) const DAY: u64 = 24 * 60 * 60 * 1000;
