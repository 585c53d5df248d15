//! The machine's wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

/// Fails if the wall clock was never set. HTTP dates and the table's files cannot represent a time before 1970.
pub(crate) fn check() -> Result<(), String> {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!(
            "the machine's clock is {} s before 1970: set the clock, and start again",
            error.duration().as_secs()
        )),
    }
}
