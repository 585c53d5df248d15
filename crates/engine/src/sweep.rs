//! Removal of whole ranges of records in slices, between other work, so that no request waits for it.
//!
//! The records of a deleted namespace, or of a period of old replies, cannot be reached any more when the sweep begins. A
//! pending sweep is itself a record, so that it continues after a restart.

use bytes::Bytes;

/// The number of records that one slice removes.
pub(crate) const SLICE: usize = 512;

/// A pending sweep.
#[derive(Debug)]
pub(crate) struct Sweeping {
    /// The first key of the next slice. The records before it are removed.
    pub(crate) from: Bytes,
    /// The first key behind the range.
    pub(crate) to: Bytes,
}
