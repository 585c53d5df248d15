//! Log lines about denied attempts.

use super::Identity;
use limina_engine::{Caller, RequestId};
use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The most log lines in [`SPAN`]. Anybody can cause denials, and must not be able to fill the disk with log lines.
const MAX_LINES: u32 = 20;
const SPAN: Duration = Duration::from_secs(1);

/// Writes denied attempts to the log, so many in each second.
#[derive(Debug, Default)]
pub(crate) struct Denials(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    begin: Option<Instant>,
    lines: u32,
    suppressed: u64,
}

impl Denials {
    /// Logs a denied attempt. Contains no text that the client has sent, except valid names and the request's id.
    pub(crate) fn log(&self, identity: &Identity, operation: &str, needs: &str, reason: &str) {
        let Some(suppressed) = self.next(Instant::now()) else { return };
        let Caller { actor, address, request_id } = identity.caller();
        let actor = actor.as_ref().map(|name| name.as_str());
        let address = address.map(tracing::field::display);
        let request_id = request_id.as_ref().map(RequestId::as_str);
        tracing::warn!(actor, address, request_id, operation, needs, suppressed, "denied: {reason}");
    }

    /// The number of denials that were not logged since the last line; `None` if this one is not logged either.
    fn next(&self, now: Instant) -> Option<u64> {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if window.begin.is_none_or(|begin| now.duration_since(begin) >= SPAN) {
            window.begin = Some(now);
            window.lines = 0;
        }
        if window.lines == MAX_LINES {
            window.suppressed += 1;
            return None;
        }
        window.lines += 1;
        Some(std::mem::take(&mut window.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_lines_in_each_second() {
        let denials = Denials::default();
        let now = Instant::now();
        for _ in 0..MAX_LINES {
            assert_eq!(denials.next(now), Some(0));
        }
        assert_eq!(denials.next(now), None);
        assert_eq!(denials.next(now + SPAN / 2), None);
        assert_eq!(denials.next(now + SPAN), Some(2));
        assert_eq!(denials.next(now + SPAN), Some(0));
    }
}
