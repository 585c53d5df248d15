//! How much may be in use, or happen in a window.

use crate::{Invalid, Reason};
use core::fmt;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The largest count, limit or burst: the largest integer that a JSON number carries exactly.
pub const MAX_COUNT: u64 = (1 << 53) - 1;

/// How much may be in use, or happen in a window. JSON writes it as a number, and no limit as −1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Any amount. It is counted all the same.
    Unlimited,
    /// At most this much. In a request it is at most [`MAX_COUNT`].
    AtMost(u64),
}

impl Limit {
    /// What is left if so much is used. `None` without a limit.
    pub fn remaining(self, used: u64) -> Option<u64> {
        match self {
            Limit::Unlimited => None,
            Limit::AtMost(limit) => Some(limit.saturating_sub(used)),
        }
    }

    /// Checks the limit of a request.
    pub fn validate(self) -> Result<(), Invalid> {
        match self {
            Limit::AtMost(..=MAX_COUNT) | Limit::Unlimited => Ok(()),
            Limit::AtMost(_) => Err(Invalid::new("limit", Reason::Number { min: 0, max: MAX_COUNT as i64 })),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Unlimited => f.write_str("no limit"),
            Limit::AtMost(limit) => fmt::Display::fmt(limit, f),
        }
    }
}

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (serializer.is_human_readable(), *self) {
            (true, Limit::Unlimited) => serializer.serialize_i64(-1),
            (true, Limit::AtMost(limit)) => serializer.serialize_u64(limit.min(i64::MAX as u64)),
            (false, Limit::Unlimited) => serializer.serialize_unit_variant("Limit", 0, "Unlimited"),
            (false, Limit::AtMost(limit)) => {
                serializer.serialize_newtype_variant("Limit", 1, "AtMost", &limit)
            }
        }
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Limit, D::Error> {
        /// The same variants, as they are stored, and as nodes send them.
        #[derive(Deserialize)]
        enum Encoded {
            Unlimited,
            AtMost(u64),
        }
        if !deserializer.is_human_readable() {
            return Ok(match Encoded::deserialize(deserializer)? {
                Encoded::Unlimited => Limit::Unlimited,
                Encoded::AtMost(limit) => Limit::AtMost(limit),
            });
        }
        match i64::deserialize(deserializer)? {
            -1 => Ok(Limit::Unlimited),
            limit => u64::try_from(limit)
                .map(Limit::AtMost)
                .map_err(|_| de::Error::custom("must be from 0 to 2^53−1, or −1 for no limit")),
        }
    }
}
