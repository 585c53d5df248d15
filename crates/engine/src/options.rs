//! Options of the engine.

use crate::{answer_size, quotas::QuotaTable};
use alloc::sync::Arc;

/// Options of the engine.
#[derive(Debug, Clone)]
pub struct Options {
    /// The number of counters that one slice of a backfill sums up. Other requests run between slices.
    pub backfill_slice: usize,
    /// The largest size of an answer, in bytes. A request whose answer would be larger is refused before it changes anything.
    pub max_answer: usize,
    /// How much each namespace may have.
    pub quotas: Arc<QuotaTable>,
}

impl Default for Options {
    fn default() -> Options {
        Options { backfill_slice: 1_024, max_answer: answer_size::MAX_BYTES, quotas: Arc::default() }
    }
}
