//! Removing whole ranges of records without holding anyone up.
//!
//! What a deleted namespace held, or a period of old replies, is out of reach at once; its records are removed in
//! slices, between other work. The pending sweep is itself a record, so that a restart goes on with it.

use bytes::Bytes;

/// How many records one slice looks at.
pub(crate) const SLICE: usize = 512;

/// A sweep under way.
#[derive(Debug)]
pub(crate) struct Sweeping {
    /// Where the next slice begins; everything before is done.
    pub(crate) from: Bytes,
    /// Where it ends.
    pub(crate) to: Bytes,
}
