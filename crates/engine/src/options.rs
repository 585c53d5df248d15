//! Bounds of the engine.

use crate::answer_size;

/// Bounds of the engine.
#[derive(Debug, Clone)]
pub struct Options {
    /// How many counters a change of rules sums up at a time, before other requests have their turn.
    pub backfill_slice: usize,
    /// The most bytes of an answer. A request whose answer would be larger is refused before anything is done.
    pub max_answer: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { backfill_slice: 1_024, max_answer: answer_size::MAX_BYTES }
    }
}
