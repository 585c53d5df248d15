//! The machine's wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

/// Refuses a wall clock that nobody has set. HTTP dates and the table's files cannot hold a time before 1970.
pub(crate) fn check() -> Result<(), String> {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!(
            "the machine's clock is {} s before 1970: set it, and start again",
            error.duration().as_secs()
        )),
    }
}
