//! Heart-beats: how often each side sends something, so that the other side knows that it is alive.

use core::fmt;

/// What one side offers: the two numbers of the header `heart-beat`, in milliseconds. 0 means never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeartBeat {
    /// How often it can send something.
    pub send_ms: u64,
    /// How often it wants to receive something.
    pub expect_ms: u64,
}

impl HeartBeat {
    /// `None` if the value is not two numbers. A missing header means that neither is offered.
    pub(super) fn from_header(value: Option<&str>) -> Option<HeartBeat> {
        let Some(value) = value else { return Some(HeartBeat::default()) };
        let number = |text: &str| {
            let text = text.trim_matches(' ');
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            // A period that does not fit a u64 is treated as the longest one.
            digits.then(|| text.parse().unwrap_or(u64::MAX))
        };
        let (send, expect) = value.split_once(',')?;
        Some(HeartBeat { send_ms: number(send)?, expect_ms: number(expect)? })
    }
}

/// The format of the header.
impl fmt::Display for HeartBeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.send_ms, self.expect_ms)
    }
}

/// The periods that both sides agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Agreement {
    /// The server must send something at least this often.
    send_ms: Option<u64>,
    /// The client should send something at least this often.
    expect_ms: Option<u64>,
}

/// The peer counts as dead after this many silent periods, because timers of browser tabs in the background are late.
const TOLERATED_PERIODS: u64 = 3;

impl Agreement {
    /// For each direction, the slower of what one side can do and the other side wants. `None` if either says never.
    pub(super) fn between(ours: HeartBeat, theirs: HeartBeat) -> Agreement {
        let slower = |can: u64, wants: u64| (can != 0 && wants != 0).then(|| can.max(wants));
        Agreement {
            send_ms: slower(ours.send_ms, theirs.expect_ms),
            expect_ms: slower(theirs.send_ms, ours.expect_ms),
        }
    }

    /// A heart-beat is due after this much silence of the server. It is earlier than agreed, because some clients hang
    /// up after one and a half periods, and timers and networks have delays.
    pub(super) fn beat_after(&self) -> Option<u64> {
        self.send_ms.map(|period| period - period / 4)
    }

    /// The peer counts as dead after this much silence.
    pub(super) fn dead_after(&self) -> Option<u64> {
        self.expect_ms.map(|period| period.saturating_mul(TOLERATED_PERIODS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers() {
        let check = |header: Option<&str>, expect: Option<(u64, u64)>| {
            let parsed = HeartBeat::from_header(header).map(|beat| (beat.send_ms, beat.expect_ms));
            assert_eq!(parsed, expect, "{header:?}");
        };
        check(None, Some((0, 0)));
        check(Some("0,0"), Some((0, 0)));
        check(Some("10000,5000"), Some((10_000, 5_000)));
        check(Some("10000, 5000"), Some((10_000, 5_000)));
        check(Some("99999999999999999999,1"), Some((u64::MAX, 1)));
        for wrong in ["", ",", "1", "1,", ",1", "1,2,3", "-1,0", "+1,0", "1.5,0", "a,b"] {
            check(Some(wrong), None);
        }
    }

    #[test]
    fn negotiation() {
        // Ours, theirs, then: what we send, what we expect.
        let check = |ours: (u64, u64), theirs: (u64, u64), send: Option<u64>, expect: Option<u64>| {
            let [ours, theirs] = [ours, theirs].map(|(send_ms, expect_ms)| HeartBeat { send_ms, expect_ms });
            let agreed = Agreement::between(ours, theirs);
            assert_eq!((agreed.send_ms, agreed.expect_ms), (send, expect), "{ours} {theirs}");
        };
        check((0, 0), (0, 0), None, None);
        check((10, 20), (0, 0), None, None);
        check((0, 0), (10, 20), None, None);
        check((10, 20), (30, 40), Some(40), Some(30));
        check((50, 60), (30, 40), Some(50), Some(60));
        check((10, 20), (0, 40), Some(40), None);
        check((10, 20), (30, 0), None, Some(30));
        check((0, 20), (30, 40), None, Some(30));
        check((10, 0), (30, 40), Some(40), None);
        check((10, 20), (u64::MAX, u64::MAX), Some(u64::MAX), Some(u64::MAX));
    }
}
