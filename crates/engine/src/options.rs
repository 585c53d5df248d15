//! Options of the engine.

use crate::{Millis, answer_size, quotas::QuotaTable};
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
    /// The work that one turn of a batch does, in units of about a microsecond. Requests of other namespaces run between
    /// turns. An item of a batch is never divided.
    pub slice_work: usize,
    /// How long the audit is kept.
    pub audit_kept: Millis,
}

impl Default for Options {
    fn default() -> Options {
        let quotas = Arc::default();
        Options {
            backfill_slice: 1_024,
            max_answer: answer_size::MAX_BYTES,
            quotas,
            slice_work: 4_096,
            audit_kept: Millis(400 * Millis::DAY.0),
        }
    }
}
