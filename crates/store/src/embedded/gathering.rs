//! Decides how many appends share a frame.
//!
//! A frame and its sync cost the processor about as much as several operations, however many appends are in it. On a
//! fast disk a sync takes less time than the shards need to react to its end. If the next frame were written as soon as
//! there is one append, two or three shards would share it, however many are busy. So a frame waits a moment until it
//! has as many appends as the last two had on average. A client that is alone never waits. If fewer appends come than
//! before, the frames shrink at once.

/// Fewer appends than this are not worth waiting for.
const FEW: usize = 3;

/// The number of appends in the last two frames.
#[derive(Debug, Default)]
pub(super) struct FrameSizes {
    last: usize,
    before: usize,
}

impl FrameSizes {
    /// A frame was written with so many appends.
    pub(super) fn written(&mut self, appends: usize) {
        self.before = std::mem::replace(&mut self.last, appends);
    }

    /// How many appends the next frame should wait for.
    pub(super) fn wanted(&self) -> usize {
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
        let mut sizes = FrameSizes::default();
        written.iter().for_each(|appends| sizes.written(*appends));
        assert_eq!(sizes.wanted(), expect);
    }

    #[test]
    fn a_frame_waits_for_as_many_appends_as_the_last_two_had() {
        check(&[], 1);
        check(&[9], 4);
        check(&[1, 8, 4], 6);
        check(&[8, 8, 1], 4);
        check(&[8, 1, 1], 1);
    }

    #[test]
    fn few_appends_are_not_waited_for() {
        check(&[2, 2], 1);
        check(&[3, 2], 1);
        check(&[3, 3], 3);
    }
}
