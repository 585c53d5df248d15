//! Durations, times, numbers and names, as people read them.

use limina_api::limiter::Limit;
use std::fmt::Write;

const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// A duration that was measured, as exact as people need it: `850ms`, `3.2s`, `59s`, `3m20s`.
pub fn duration(millis: u64) -> String {
    // From one second to what is rounded to less than ten, with one decimal.
    if (1_000..9_950).contains(&millis) {
        let tenths = (millis + 50) / 100;
        return match tenths % 10 {
            0 => format!("{}s", tenths / 10),
            tenth => format!("{}.{tenth}s", tenths / 10),
        };
    }
    match millis {
        // Milliseconds do not matter from ten seconds on.
        1_000.. => units(millis.max(10_000) / 1_000 * 1_000, 2),
        _ => units(millis, 1),
    }
}

/// A duration that somebody has chosen, exactly and in the form of requests: `1m`, `1s500ms`, `1d12h`.
pub fn setting(millis: u64) -> String {
    units(millis, UNITS.len())
}

/// A duration with so many of its largest units.
fn units(millis: u64, most: usize) -> String {
    let Some(largest) = UNITS.iter().position(|(_, unit)| millis >= *unit) else { return "0s".to_owned() };
    let mut text = String::new();
    let mut rest = millis;
    for (name, unit) in UNITS[largest..].iter().take(most) {
        if rest >= *unit {
            // Writing to a string cannot fail.
            let _ = write!(text, "{}{name}", rest / unit);
            rest %= unit;
        }
    }
    text
}

/// A number with commas: `1,000,000`.
pub fn number(number: impl Into<i128>) -> String {
    let number = number.into();
    let digits = number.unsigned_abs().to_string();
    let mut text = if number < 0 { "-".to_owned() } else { String::new() };
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 slot`, `2 slots`.
pub fn counted(count: impl TryInto<i128>, word: &str) -> String {
    let count = count.try_into().unwrap_or(i128::MAX);
    format!("{} {word}{}", number(count), if count == 1 { "" } else { "s" })
}

/// An instant in UTC: `2026-11-16 17:00:05Z`.
pub fn time(epoch_millis: u64) -> String {
    let seconds = epoch_millis / 1000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // The civil calendar in eras of 400 years, each of which begins on 1 March.
    let day = days + 719_468;
    let (era, day_of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{day_of_month:02} {hour:02}:{minute:02}:{second:02}Z")
}

/// Text of clients, safe for a terminal: control characters, which could move the cursor or set a title, are escaped.
pub fn printable(text: &str) -> String {
    // The bidirectional overrides are no control characters by their category, but can make a text look like another one.
    let hostile = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if !text.chars().any(hostile) {
        return text.to_owned();
    }
    text.chars().map(|c| if hostile(c) { format!("\\u{{{:x}}}", c as u32) } else { c.to_string() }).collect()
}

/// An argument for a shell, in quotes only where it needs them.
pub fn shell_quoted(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "=:._-/@,+%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", printable(text).replace('\'', "'\\''"))
}

/// Something that may be absent.
pub fn or_dash(text: Option<impl AsRef<str>>) -> String {
    text.map_or_else(|| "-".to_owned(), |text| printable(text.as_ref()))
}

/// A text in a colour. The colour is dropped where it is not wanted: `NO_COLOR`, or standard output is no terminal.
pub fn red(text: &str) -> String {
    format!("\x1b[31m{text}\x1b[0m")
}

/// The same in green.
pub fn green(text: &str) -> String {
    format!("\x1b[32m{text}\x1b[0m")
}

/// The same in bold.
pub fn bold(text: &str) -> String {
    format!("\x1b[1m{text}\x1b[0m")
}

/// A fraction of seconds, as latencies are: `640 µs`, `25.6 ms`, `1.5 s`.
pub fn latency(seconds: f64) -> String {
    if seconds < 0.001 {
        format!("{:.0} µs", seconds * 1e6)
    } else if seconds < 1.0 {
        format!("{:.1} ms", seconds * 1e3)
    } else {
        format!("{seconds:.1} s")
    }
}

/// A limit of the limiter.
pub fn limit(limit: Limit) -> String {
    match limit {
        Limit::Unlimited => "none".to_owned(),
        Limit::AtMost(limit) => number(limit),
    }
}

/// How much of a limit is used, as a bar of ten characters and a percentage; empty without a limit.
pub fn bar(used: i128, limit: i128) -> String {
    if limit <= 0 {
        return String::new();
    }
    let used = used.clamp(0, limit * 10);
    let tenths = (used * 10 / limit).min(10) as usize;
    format!("{}{} {:>3}%", "█".repeat(tenths), "░".repeat(10 - tenths), used * 100 / limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        #[track_caller]
        fn check(millis: u64, expect: &str) {
            assert_eq!(duration(millis), expect);
        }
        check(0, "0s");
        check(850, "850ms");
        check(999, "999ms");
        check(1_000, "1s");
        check(1_250, "1.3s");
        check(3_186, "3.2s");
        check(3_960, "4s");
        check(9_949, "9.9s");
        check(9_950, "10s");
        check(12_345, "12s");
        check(60_000, "1m");
        check(200_000, "3m20s");
        check(7_200_000, "2h");
        check(90_061_000, "1d1h");
    }

    #[test]
    fn chosen_durations_are_exact() {
        #[track_caller]
        fn check(millis: u64, expect: &str) {
            assert_eq!(setting(millis), expect);
            let request = expect.parse::<limina_api::Duration>();
            assert_eq!(request, Ok(limina_api::Duration { millis }));
        }
        check(60_000, "1m");
        check(1_500, "1s500ms");
        check(90_061_000, "1d1h1m1s");
    }

    #[test]
    fn counts_agree_with_their_words() {
        assert_eq!([0_u64, 1, 2].map(|count| counted(count, "lease")), ["0 leases", "1 lease", "2 leases"]);
    }

    #[test]
    fn instants() {
        assert_eq!(time(0), "1970-01-01 00:00:00Z");
        assert_eq!(time(951_782_400_000), "2000-02-29 00:00:00Z");
        assert_eq!(time(1_763_312_405_999), "2025-11-16 17:00:05Z");
    }

    #[test]
    fn numbers() {
        assert_eq!(number(0), "0");
        assert_eq!(number(-1_234_567), "-1,234,567");
        assert_eq!(number(i64::MIN), "-9,223,372,036,854,775,808");
    }

    #[test]
    fn names_cannot_move_the_cursor() {
        assert_eq!(printable("a\u{1b}[2Jb\u{202e}"), "a\\u{1b}[2Jb\\u{202e}");
        assert_eq!(shell_quoted("it's"), "'it'\\''s'");
    }
}
