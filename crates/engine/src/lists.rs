//! Lists are returned in pages. A command looks at a bounded number of objects, so that a list of millions delays nobody.

use crate::{Invalid, Reason, answer_size};
use alloc::vec::Vec;
use limina_api::Listed;
use serde::{Deserialize, Serialize};

/// The number of objects that one command looks at, if looking at one of them is little work.
pub(crate) const LOOKED_AT: usize = 4_096;

/// The work of one command, in conditions that are tested.
const LOOKING: usize = 1 << 17;

/// A part of a page ends when it has reached this many bytes. A front end collects parts until it has a page.
const PART_BYTES: usize = answer_size::PAGE_BYTES / 2;

/// A page that is asked for: at most `limit` items, from the first one behind `after`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page<C> {
    /// The last item of the previous page. None asks for the first page.
    pub after: Option<C>,
    limit: usize,
}

impl<C> Page<C> {
    /// The most items that one page may ask for. It bounds the memory of a page whose items are stored records.
    pub const MAX_LIMIT: usize = 100_000;

    /// Asks for at most `limit` items, from 1 to [`Page::MAX_LIMIT`].
    pub fn new(after: Option<C>, limit: usize) -> Result<Page<C>, Invalid> {
        let page = Page { after, limit };
        page.validate()?;
        Ok(page)
    }

    /// The most items that are returned, at least 1.
    pub fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn validate(&self) -> Result<(), Invalid> {
        match self.limit {
            1..=Self::MAX_LIMIT => Ok(()),
            _ => Err(Invalid::new("limit", Reason::Number { min: 1, max: Self::MAX_LIMIT as i64 })),
        }
    }
}

/// The number of objects that one command looks at, if looking at one of them is as much work as testing `weight` conditions.
pub(crate) fn looked_at(weight: usize) -> usize {
    (LOOKING / weight.max(1)).clamp(1, LOOKED_AT)
}

/// Collects up to `limit` items, fewer if the page becomes too large, and says where the next page begins. Looks at no more
/// than `looked_at` objects.
pub(crate) fn pick<O, T: Serialize, C>(
    objects: impl Iterator<Item = O>,
    limit: usize,
    looked_at: usize,
    find: impl Fn(&O) -> Option<T>,
    cursor: impl Fn(&O) -> C,
) -> Listed<T, C> {
    let mut items = Vec::new();
    let mut last = None;
    let mut bytes = 0;
    for (number, object) in objects.enumerate() {
        if items.len() == limit || number == looked_at || bytes >= PART_BYTES {
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
