//! Durations in requests: a string with units, or 0.
//!
//! A bare number has no unit, and nobody means 60 ms by `"per": 60`. So it is refused. A request may also use the names that
//! replies use: `per_ms` is a whole number of milliseconds. Each type of a request has both fields, and whoever reads it
//! refuses a request that has both.

use alloc::{borrow::ToOwned, string::String};
use core::{fmt, str::FromStr};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, Visitor},
};

/// A span of time in a request: `"250ms"`, `"10s"`, `"1m30s"`, `"24h"`, `"30d"`, or 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration {
    /// The length in milliseconds.
    pub millis: u64,
}

/// Why a text is not a [`Duration`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InvalidDuration {
    /// The text is empty.
    Empty,
    /// There is no number at this point of the text.
    NumberExpected(String),
    /// This number, the last one, has no unit.
    UnitMissing(String),
    /// There is no such unit.
    UnknownUnit(String),
    /// This unit is not smaller than the one before it.
    UnitOutOfOrder(&'static str),
    /// More milliseconds than 64 bits hold.
    TooLong,
}

/// The units with their milliseconds. A text may use each unit once, in this order.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

impl FromStr for Duration {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Duration, InvalidDuration> {
        if text.is_empty() {
            return Err(InvalidDuration::Empty);
        }
        let mut millis: u64 = 0;
        let mut next_unit = 0;
        let mut rest = text;
        while !rest.is_empty() {
            let (digits, after) = split_where(rest, |c| !c.is_ascii_digit());
            if digits.is_empty() {
                return Err(InvalidDuration::NumberExpected(rest.to_owned()));
            }
            let (unit, after) = split_where(after, |c| c.is_ascii_digit());
            if unit.is_empty() {
                return Err(InvalidDuration::UnitMissing(digits.to_owned()));
            }
            let Some(place) = UNITS.iter().position(|(name, _)| *name == unit) else {
                return Err(InvalidDuration::UnknownUnit(unit.to_owned()));
            };
            let (name, size) = UNITS[place];
            if place < next_unit {
                return Err(InvalidDuration::UnitOutOfOrder(name));
            }
            next_unit = place + 1;
            let number: u64 = digits.parse().map_err(|_| InvalidDuration::TooLong)?;
            let part = number.checked_mul(size).ok_or(InvalidDuration::TooLong)?;
            millis = millis.checked_add(part).ok_or(InvalidDuration::TooLong)?;
            rest = after;
        }
        Ok(Duration { millis })
    }
}

fn split_where(text: &str, ends: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

impl fmt::Display for InvalidDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("must be a duration such as \"1m30s\": ")?;
        match self {
            InvalidDuration::Empty => f.write_str("an empty string"),
            InvalidDuration::NumberExpected(found) => write!(f, "no whole number at {found:?}"),
            InvalidDuration::UnitMissing(number) => write!(f, "{number} has no unit (d, h, m, s or ms)"),
            InvalidDuration::UnknownUnit(unit) => write!(f, "{unit:?} is not a unit (d, h, m, s or ms)"),
            InvalidDuration::UnitOutOfOrder(unit) => {
                write!(f, "the unit {unit:?} is repeated, or comes after a smaller one")
            }
            InvalidDuration::TooLong => f.write_str("more than 2^64−1 milliseconds"),
        }
    }
}

impl core::error::Error for InvalidDuration {}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match serializer.is_human_readable() {
            true => serializer.collect_str(&format_args!("{}ms", self.millis)),
            false => serializer.serialize_u64(self.millis),
        }
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        struct DurationVisitor;

        impl Visitor<'_> for DurationVisitor {
            type Value = Duration;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as \"1m30s\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Duration, E> {
                match number {
                    0 => Ok(Duration { millis: 0 }),
                    _ => Err(E::custom(format_args!(
                        "must have a unit, such as \"{number}s\" or \"{number}ms\", and must not be the bare number \
                         {number}; a number of milliseconds goes into the field whose name ends in _ms"
                    ))),
                }
            }
        }
        match deserializer.is_human_readable() {
            true => deserializer.deserialize_any(DurationVisitor),
            false => u64::deserialize(deserializer).map(|millis| Duration { millis }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        #[track_caller]
        fn check(text: &str, expect: Result<u64, InvalidDuration>) {
            assert_eq!(text.parse::<Duration>().map(|duration| duration.millis), expect, "{text:?}");
        }
        use InvalidDuration::*;
        check("250ms", Ok(250));
        check("10s", Ok(10_000));
        check("1m30s", Ok(90_000));
        check("24h", Ok(86_400_000));
        check("30d", Ok(2_592_000_000));
        check("1d2h3m4s5ms", Ok(93_784_005));
        check("0s", Ok(0));
        check("007s", Ok(7_000));
        check("1m5ms", Ok(60_005));
        check("18446744073709551615ms", Ok(u64::MAX));
        check("", Err(Empty));
        check("250", Err(UnitMissing("250".into())));
        check("1m30", Err(UnitMissing("30".into())));
        check("s", Err(NumberExpected("s".into())));
        check("-5s", Err(NumberExpected("-5s".into())));
        check("+5s", Err(NumberExpected("+5s".into())));
        check(" 5s", Err(NumberExpected(" 5s".into())));
        check("5 s", Err(UnknownUnit(" s".into())));
        check("5s ", Err(UnknownUnit("s ".into())));
        check("1.5s", Err(UnknownUnit(".".into())));
        check("5S", Err(UnknownUnit("S".into())));
        check("5w", Err(UnknownUnit("w".into())));
        check("5µs", Err(UnknownUnit("µs".into())));
        check("٥s", Err(NumberExpected("٥s".into())));
        check("30s1m", Err(UnitOutOfOrder("m")));
        check("1s1s", Err(UnitOutOfOrder("s")));
        check("18446744073709551616ms", Err(TooLong));
        check("18446744073709551615s", Err(TooLong));
        check("213503982334d18446744073709551615ms", Err(TooLong));
    }

    #[test]
    fn json() {
        #[track_caller]
        fn check(json: &str, expect: Result<u64, &str>) {
            let found = serde_json::from_str::<Duration>(json).map(|duration| duration.millis);
            match (found, expect) {
                (Ok(found), Ok(expect)) => assert_eq!(found, expect, "{json}"),
                (Err(error), Err(part)) => {
                    assert!(error.to_string().contains(part), "{json} gave {error}");
                }
                (found, _) => panic!("{json} gave {found:?}"),
            }
        }
        check("0", Ok(0));
        check("250", Err("must have a unit, such as \"250s\" or \"250ms\""));
        check("18446744073709551615", Err("must have a unit"));
        check("\"10s\"", Ok(10_000));
        check("-1", Err("expected a duration"));
        check("1.0", Err("expected a duration"));
        check("1e3", Err("expected a duration"));
        check("true", Err("expected a duration"));
        check("[]", Err("expected a duration"));
        check("\"10\"", Err("10 has no unit"));
        check("\"\"", Err("an empty string"));
        let written = serde_json::to_string(&Duration { millis: 90_000 }).unwrap();
        assert_eq!(written, "\"90000ms\"");
        check(&written, Ok(90_000));
    }
}
