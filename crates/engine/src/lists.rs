//! Lists come in parts. A command looks at a bounded number of objects, so that nobody is held up by millions.

use crate::answer_size;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// How many objects one command looks at.
const LOOKED_AT: usize = 4_096;

/// From so many bytes on a part is not continued. A part is made in one step, and what it shows is copied.
const PART_BYTES: usize = 16 << 20;

/// A part that is asked for: at most `limit` items that follow `after`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page<C> {
    /// The last item of the page before.
    pub after: Option<C>,
    /// How many at most; at least 1.
    pub limit: usize,
}

/// A part that was found. It may be short, or even empty, and yet there is more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Listed<T, C> {
    /// What was found.
    pub items: Vec<T>,
    /// Where the next part begins, if there may be more.
    pub next: Option<C>,
}

/// Up to `limit` of what is found, as far as an answer has room for it, and where to go on.
pub(crate) fn pick<O, T: Serialize, C>(
    objects: impl Iterator<Item = O>,
    limit: usize,
    find: impl Fn(&O) -> Option<T>,
    cursor: impl Fn(&O) -> C,
) -> Listed<T, C> {
    let mut items = Vec::new();
    let mut last = None;
    let mut bytes = 0;
    for (number, object) in objects.enumerate() {
        if items.len() == limit || number == LOOKED_AT || bytes >= PART_BYTES {
            return Listed { items, next: last };
        }
        if let Some(item) = find(&object) {
            bytes += answer_size::estimate(&item);
            items.push(item);
        }
        last = Some(cursor(&object));
    }
    Listed { items, next: None }
}
