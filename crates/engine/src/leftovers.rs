//! Memory that is no longer in use and is freed in slices: freeing a map of a million entries at once would delay every
//! request of the shard.

use alloc::boxed::Box;
use core::fmt;

/// Maps and lists that are no longer in use.
pub(crate) struct Leftovers(Box<dyn Iterator<Item = ()> + Send + Sync>);

impl Leftovers {
    /// Takes the entries of one map or list.
    pub(crate) fn of<I>(entries: I) -> Leftovers
    where
        I: IntoIterator<Item: 'static, IntoIter: Send + Sync + 'static>,
    {
        Leftovers(Box::new(entries.into_iter().map(drop)))
    }

    /// Adds the entries of another one.
    pub(crate) fn and<I>(self, entries: I) -> Leftovers
    where
        I: IntoIterator<Item: 'static, IntoIter: Send + Sync + 'static>,
    {
        Leftovers(Box::new(self.0.chain(entries.into_iter().map(drop))))
    }

    /// Frees up to `limit` entries. Returns whether none are left.
    pub(crate) fn free_some(&mut self, limit: usize) -> bool {
        self.0.by_ref().take(limit).count() < limit
    }
}

impl fmt::Debug for Leftovers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Leftovers")
    }
}
