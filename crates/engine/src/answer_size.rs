//! The size of an answer, estimated before the answer is built.
//!
//! Some answers grow with the rules, overrides or holds that a request applies to. Their size is estimated before the request
//! changes anything, so that a request with a too large answer is refused as a whole.
//!
//! The estimate is an upper bound of the bytes of the answer in any format of a front end.

use alloc::vec::Vec;
use postcard::ser_flavors::Size;
use serde::Serialize;

/// The default of the largest size of an answer, in bytes. It bounds kept replies too.
pub const MAX_BYTES: usize = 64 << 20;

/// The size at which a page of a list ends, in bytes. As sizes are estimated upwards, most pages are much smaller, and a page of
/// 1,000 small items is not cut.
pub const PAGE_BYTES: usize = 2 << 20;

/// What a front end adds to each item of a list: names of fields, brackets, small numbers.
const ITEM: usize = 256;
/// How many times longer than its encoding an item can be. JSON writes a control character of one byte as six (`\u0001`).
const FACTOR: usize = 8;

/// The answer would be too large. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLarge;

/// The bytes that an answer may still grow by.
#[derive(Debug)]
pub(crate) struct AnswerBudget(usize);

impl AnswerBudget {
    pub(crate) fn new(max_bytes: usize) -> AnswerBudget {
        AnswerBudget(max_bytes)
    }

    /// For an answer that is known to fit.
    pub(crate) fn unlimited() -> AnswerBudget {
        AnswerBudget(usize::MAX)
    }

    pub(crate) fn spend(&mut self, bytes: usize) -> Result<(), TooLarge> {
        if !self.is_unlimited() {
            self.0 = self.0.checked_sub(bytes).ok_or(TooLarge)?;
        }
        Ok(())
    }

    /// The result of [`text`]. 0 if nobody needs to know.
    pub(crate) fn text(&self, bytes: &[u8]) -> usize {
        if self.is_unlimited() { 0 } else { text(bytes) }
    }

    fn is_unlimited(&self) -> bool {
        self.0 == usize::MAX
    }
}

/// An upper bound of the bytes of a text, or of encoded key-values, in JSON.
pub(crate) fn text(bytes: &[u8]) -> usize {
    /// The additional bytes of so many bytes, five each at most, fit into a byte.
    const BLOCK: usize = 32;
    let additional = |byte: &u8| match byte {
        0..0x20 => 5,
        b'"' | b'\\' => 1,
        _ => 0,
    };
    // This runs for every limit of every answer. Additions that are checked one by one took a tenth of the time of a check.
    let sum = |block: &[u8]| block.iter().fold(0u8, |sum, byte| sum.wrapping_add(additional(byte)));
    2 + bytes.len() + bytes.chunks(BLOCK).map(|block| usize::from(sum(block))).sum::<usize>()
}

/// An upper bound of the bytes of any value, computed from its compact encoding.
pub fn estimate<T: Serialize>(value: &T) -> usize {
    let encoded = postcard::serialize_with_flavor(value, Size::default());
    // Counting bytes cannot fail, and all sequences of replies have known lengths.
    ITEM + FACTOR * encoded.expect("a reply encodes")
}

/// As many of the first `items` as fit into the answer, but at least one; and whether some are left out.
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
        check(&"\u{1}\"".repeat(100), 2 + 800);
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
        // One item is always included. Otherwise a list could never continue behind it.
        check(&[10, 10], 1, 1, true);
        check(&[10], 1, 1, false);
    }
}
