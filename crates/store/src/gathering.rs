//! How many items share a write.
//!
//! A frame of the journal, or a statement, costs about the same however many appends it has. On a fast disk a write takes less time
//! than the shards need to react to its end. If the next one were sent as soon as there is one append, two or three shards would
//! share a write, however many are busy. So a write waits a moment until it has as many items as the last two had on average. A
//! client that is alone never waits. If fewer items come than before, the writes shrink at once.

/// Fewer items than this are not worth waiting for.
const FEW: usize = 3;

/// The number of items in the last two writes.
#[derive(Debug, Default)]
pub(crate) struct GroupSizes {
    last: usize,
    before: usize,
}

impl GroupSizes {
    /// A write had so many items.
    pub(crate) fn written(&mut self, items: usize) {
        self.before = std::mem::replace(&mut self.last, items);
    }

    /// How many items the next write should wait for.
    pub(crate) fn wanted(&self) -> usize {
        match usize::midpoint(self.last, self.before) {
            ..FEW => 1,
            many => many,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(written: &[usize], expect: usize) {
        let mut sizes = GroupSizes::default();
        written.iter().for_each(|items| sizes.written(*items));
        assert_eq!(sizes.wanted(), expect);
    }

    #[test]
    fn a_write_waits_for_as_many_items_as_the_last_two_had() {
        check(&[], 1);
        check(&[9], 4);
        check(&[1, 8, 4], 6);
        check(&[8, 8, 1], 4);
        check(&[8, 1, 1], 1);
    }

    #[test]
    fn few_items_are_not_waited_for() {
        check(&[2, 2], 1);
        check(&[3, 2], 1);
        check(&[3, 3], 3);
    }
}
