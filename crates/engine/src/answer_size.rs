//! How large an answer may become.
//!
//! An answer that grows with the rules, overrides or holds that a request happens to meet is measured before anything is
//! done. So a request whose answer would be too large is refused as a whole, and neither the answer nor the kept reply
//! is ever built.
//!
//! The measure is an upper bound of the bytes in any form in which a front end may write the answer.

use alloc::vec::Vec;
use postcard::ser_flavors::Size;
use serde::Serialize;

/// The most bytes of an answer, unless [`crate::Options`] say otherwise. Kept replies are answers, so they have the
/// same bound.
pub const MAX_BYTES: usize = 64 << 20;

/// What a front end adds to an item of a list: names of fields, brackets, small numbers.
const ITEM: usize = 256;
/// How much longer an item can be than its encoding. A control character of one byte is written as six (`\u0001`).
const FACTOR: usize = 8;

/// The answer would be too large. Nothing was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLarge;

/// The bytes that an answer may still grow by.
#[derive(Debug)]
pub(crate) struct AnswerBudget(usize);

impl AnswerBudget {
    pub(crate) fn new(max_bytes: usize) -> AnswerBudget {
        AnswerBudget(max_bytes)
    }

    pub(crate) fn spend(&mut self, bytes: usize) -> Result<(), TooLarge> {
        self.0 = self.0.checked_sub(bytes).ok_or(TooLarge)?;
        Ok(())
    }
}

/// An upper bound of the bytes of a text, or of encoded key-values, with quotes and escapes.
pub(crate) fn text(bytes: &[u8]) -> usize {
    let escaped = |byte: &u8| match byte {
        0..0x20 => 6,
        b'"' | b'\\' => 2,
        _ => 1,
    };
    2 + bytes.iter().map(escaped).sum::<usize>()
}

/// An upper bound of the bytes of something of which only its encoding is known.
pub fn estimate<T: Serialize>(value: &T) -> usize {
    let encoded = postcard::serialize_with_flavor(value, Size::default());
    // Counting cannot fail, and every reply has a known length for its sequences.
    ITEM + FACTOR * encoded.expect("a reply encodes")
}

/// As many of `items` as an answer has room for, but at least one of them; and whether some were left out.
pub(crate) fn fitting<T: Serialize>(items: impl Iterator<Item = T>, max_bytes: usize) -> (Vec<T>, bool) {
    let mut budget = AnswerBudget::new(max_bytes);
    let mut fitting = Vec::new();
    for item in items {
        if budget.spend(estimate(&item)).is_err() && !fitting.is_empty() {
            return (fitting, true);
        }
        fitting.push(item);
    }
    (fitting, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{string::String, vec};

    #[test]
    fn texts_are_measured_as_they_are_written() {
        let check = |given: &str, expect: usize| assert_eq!(text(given.as_bytes()), expect, "{given:?}");
        check("", 2);
        check("abc", 5);
        check("a\"b\\", 8);
        check("\u{1}\n", 14);
        check("🌮", 6);
    }

    #[test]
    fn a_list_ends_where_its_answer_would_be_too_large() {
        let check = |lengths: &[usize], max: usize, expect: usize, more: bool| {
            let items = lengths.iter().map(|length| String::from_utf8(vec![b'x'; *length]).unwrap());
            let (found, is_more) = fitting(items, max);
            assert_eq!((found.len(), is_more), (expect, more), "{lengths:?} in {max}");
        };
        check(&[], 0, 0, false);
        check(&[10, 10, 10], 3 * (ITEM + 11 * FACTOR), 3, false);
        check(&[10, 10, 10], 3 * (ITEM + 11 * FACTOR) - 1, 2, true);
        // One item is always shown, or a list would never come to its end.
        check(&[10, 10], 1, 1, true);
        check(&[10], 1, 1, false);
    }
}
