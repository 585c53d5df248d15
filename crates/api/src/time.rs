//! Time and order. Time is always an argument: nothing in this crate reads a clock.

use crate::Duration;
use core::fmt;
use serde::{Deserialize, Serialize};

/// An instant of shard time, in milliseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Time(pub u64);

/// A span of time, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Millis(pub u64);

/// The position of a change in the order of all changes of its namespace. It grows with every change of any family. It is never
/// used twice, not even by a namespace that was deleted and created again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Position(pub u64);

impl Time {
    /// The span from an instant to this one; 0 if that is later.
    pub fn since(self, earlier: Time) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }

    /// The instant `span` later.
    pub fn after(self, span: Millis) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl From<Duration> for Millis {
    fn from(duration: Duration) -> Millis {
        Millis(duration.millis)
    }
}

/// A part of a millisecond is dropped.
impl From<core::time::Duration> for Millis {
    fn from(duration: core::time::Duration) -> Millis {
        Millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }
}

impl Millis {
    /// An hour.
    pub const HOUR: Millis = Millis(60 * 60 * 1000);
    /// A day.
    pub const DAY: Millis = Millis(24 * 60 * 60 * 1000);
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Position {
    /// The next position.
    pub fn next(self) -> Position {
        Position(self.0 + 1)
    }
}
