//! Instants of the token file, in epoch milliseconds.

use std::time::{SystemTime, UNIX_EPOCH};
use toml::value::{Datetime, Offset};

/// The present time of the system's clock.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The instant of a TOML date or date-time. A date is its beginning in UTC. A date-time needs an offset, because a server has no
/// time zone of its own.
pub(crate) fn instant(value: &Datetime) -> Result<u64, &'static str> {
    const SHAPE: &str = "must be a date, or a date-time with an offset, such as 2027-01-31T00:00:00Z";
    let date = value.date.ok_or(SHAPE)?;
    let days = days_since_epoch(i64::from(date.year), i64::from(date.month), i64::from(date.day));
    let (seconds, nanos, offset) = match (value.time, value.offset) {
        (None, None) => (0, 0, 0),
        (Some(time), Some(offset)) => {
            let seconds = i64::from(time.hour) * 3600
                + i64::from(time.minute) * 60
                + i64::from(time.second.unwrap_or_default());
            let offset = match offset {
                Offset::Z => 0,
                Offset::Custom { minutes } => i64::from(minutes) * 60,
            };
            (seconds, i64::from(time.nanosecond.unwrap_or_default()), offset)
        }
        _ => return Err(SHAPE),
    };
    let millis = (days * 86_400 + seconds - offset) * 1000 + nanos / 1_000_000;
    u64::try_from(millis).map_err(|_| "must not be before 1970")
}

/// The days from 1970-01-01 to a date of the Gregorian calendar. Years are counted from March, so that the leap day is the last
/// day of its year.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days_before_month = (153 * month + 2) / 5;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + days_before_month + day
        - 719_469
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants() {
        #[track_caller]
        fn check(text: &str, expect: Result<u64, &str>) {
            let found = instant(&text.parse().unwrap());
            match expect {
                Ok(millis) => assert_eq!(found, Ok(millis), "{text}"),
                Err(reason) => assert!(found.unwrap_err().contains(reason), "{text}"),
            }
        }
        check("1970-01-01", Ok(0));
        check("1970-01-02T00:00:00Z", Ok(86_400_000));
        check("2000-02-29", Ok(951_782_400_000));
        check("2000-03-01", Ok(951_868_800_000));
        check("2026-11-16T10:30:00.250Z", Ok(1_794_825_000_250));
        check("2026-11-16T12:30:00+02:00", Ok(1_794_825_000_000));
        check("2027-01-31T00:00:00", Err("with an offset"));
        check("12:00:00", Err("must be a date"));
        check("1969-12-31", Err("before 1970"));
    }
}
