//! A follower's position in a stream, and what it needs next. No IO: the simulator runs this code too.

use super::{
    Message,
    ring::{Lookup, PAGE, Page, Ring},
};
use limina_engine::events::Changes;
use std::{cmp::Ordering, sync::Arc};

/// The most messages, and about the most bytes, that a follower takes at a time, so that a client that stops reading holds
/// little memory.
const MAX_MESSAGES: usize = 256;
const MAX_BYTES: usize = 64 << 10;

/// A follower's position in a stream.
#[derive(Debug)]
pub struct Cursor {
    stage: Stage,
    /// The number of the ring's periodic key frames that the follower has passed.
    key_frames: u64,
    /// The page that the follower reads while it is behind the ring.
    page: Option<Arc<Page>>,
}

#[derive(Debug)]
enum Stage {
    /// The follower needs a current key frame.
    NeedsKeyFrame,
    /// The follower wants the changes after this clock. It is not known yet whether the stream has reached the clock.
    Resuming(u64),
    /// The follower has a key frame, which was not sent yet.
    HasKeyFrame(Arc<Message>),
    /// The follower has everything up to this clock.
    UpTo(u64),
}

/// What a follower does next.
#[derive(Debug)]
pub enum Step {
    /// Send these messages.
    Send(Vec<Arc<Message>>),
    /// Wait until the ring changes.
    Wait,
    /// Ask the owner for the stream's clock, and then call [`Cursor::handle_clock`].
    AskClock,
    /// Ask the owner for changes, and then call [`Cursor::handle_page`].
    AskPage {
        /// The changes after this clock.
        after: u64,
        /// The most changes.
        limit: usize,
    },
    /// Ask the owner for a key frame, and then call [`Cursor::handle_key_frame`].
    AskKeyFrame,
}

impl Cursor {
    /// A follower that has everything up to the clock `resume_after`. None for a new follower.
    pub fn new(resume_after: Option<u64>) -> Cursor {
        let stage = resume_after.map_or(Stage::NeedsKeyFrame, Stage::Resuming);
        Cursor { stage, key_frames: 0, page: None }
    }

    /// The question that must be answered before the follower's position is known. None once it is known.
    pub fn poll_begin(&mut self, ring: &Ring) -> Option<Step> {
        match self.stage {
            Stage::NeedsKeyFrame => Some(Step::AskKeyFrame),
            // This node may be behind the stream. Only the owner knows whether the stream has reached the clock.
            Stage::Resuming(clock) if ring.last().is_none_or(|last| last < clock) => Some(Step::AskClock),
            Stage::Resuming(clock) => {
                self.continue_after(clock, ring);
                None
            }
            Stage::HasKeyFrame(_) | Stage::UpTo(_) => None,
        }
    }

    /// The next step.
    pub fn poll(&mut self, ring: &Ring) -> Step {
        if let Some(question) = self.poll_begin(ring) {
            return question;
        }
        match std::mem::replace(&mut self.stage, Stage::NeedsKeyFrame) {
            Stage::HasKeyFrame(frame) => {
                self.continue_after(frame.clock(), ring);
                Step::Send(vec![frame])
            }
            Stage::UpTo(clock) => self.next_messages(clock, ring),
            Stage::NeedsKeyFrame | Stage::Resuming(_) => unreachable!("poll_begin has returned None"),
        }
    }

    /// The owner's answer to [`Step::AskClock`]. If the stream has not reached the follower's clock, the follower needs a key
    /// frame.
    pub fn handle_clock(&mut self, clock: u64, ring: &Ring) {
        if let Stage::Resuming(after) = self.stage {
            match after <= clock {
                true => self.continue_after(after, ring),
                false => self.stage = Stage::NeedsKeyFrame,
            }
        }
    }

    /// What [`Step::AskPage`] asks for, as (after, limit). None if it is no longer needed, because another follower has read
    /// the page meanwhile.
    pub fn wanted_page(&self, ring: &Ring) -> Option<(u64, usize)> {
        let Stage::UpTo(clock) = self.stage else { return None };
        let is_needed = matches!(ring.after(clock), Lookup::Older)
            && ring.page_after(clock).is_none()
            && ring.is_kept_after(clock);
        is_needed.then(|| page_for(clock, ring))
    }

    /// The owner's answer to [`Step::AskPage`].
    pub fn handle_page(&mut self, after: u64, changes: Changes, ring: &mut Ring) {
        ring.handle_page(after, changes);
        let Stage::UpTo(clock) = self.stage else { return };
        // The owner may have dropped the beginning of the aligned page, but not the part after the follower's clock.
        let may_ask_again = after < clock && !ring.is_kept_after(after);
        if !may_ask_again && ring.page_after(clock).is_none() {
            self.stage = Stage::NeedsKeyFrame;
        }
    }

    /// The owner's answer to [`Step::AskKeyFrame`]. The owner must have made it after the question.
    pub fn handle_key_frame(&mut self, frame: Arc<Message>) {
        if matches!(self.stage, Stage::NeedsKeyFrame) {
            self.stage = Stage::HasKeyFrame(frame);
        }
    }

    /// Whether the last change came from a page, not from the ring.
    pub fn is_behind(&self) -> bool {
        self.page.is_some()
    }

    fn continue_after(&mut self, clock: u64, ring: &Ring) {
        self.stage = Stage::UpTo(clock);
        self.key_frames = ring.key_frame().1;
    }

    fn next_messages(&mut self, mut clock: u64, ring: &Ring) -> Step {
        let mut messages = Vec::new();
        let mut bytes = 0;
        let mut is_older = false;
        while messages.len() < MAX_MESSAGES && bytes < MAX_BYTES {
            let message = match self.key_frame_at(clock, ring) {
                Some(frame) => frame,
                None => match ring.after(clock) {
                    Lookup::Found(change) => {
                        self.page = None;
                        change.clone()
                    }
                    Lookup::NotYet => break,
                    Lookup::Older => {
                        let Some(change) = self.change_in_page(clock, ring) else {
                            is_older = true;
                            break;
                        };
                        change
                    }
                },
            };
            clock = message.clock();
            bytes += message.approximate_bytes();
            messages.push(message);
        }
        self.stage = Stage::UpTo(clock);
        if !messages.is_empty() {
            return Step::Send(messages);
        }
        if !is_older {
            return Step::Wait;
        }
        if !ring.is_kept_after(clock) {
            (self.stage, self.page) = (Stage::NeedsKeyFrame, None);
            return Step::AskKeyFrame;
        }
        let (after, limit) = page_for(clock, ring);
        Step::AskPage { after, limit }
    }

    /// The periodic key frame, if its clock is the follower's. A follower that has passed it must not get it any more, because
    /// the key frame would undo later changes.
    fn key_frame_at(&mut self, clock: u64, ring: &Ring) -> Option<Arc<Message>> {
        let (frame, count) = ring.key_frame();
        let frame = frame.filter(|_| self.key_frames < count)?;
        match frame.clock().cmp(&clock) {
            Ordering::Greater => return None,
            Ordering::Less | Ordering::Equal => self.key_frames = count,
        }
        (frame.clock() == clock).then(|| frame.clone())
    }

    fn change_in_page(&mut self, clock: u64, ring: &Ring) -> Option<Arc<Message>> {
        let has_it = |page: &Arc<Page>| page.change_after(clock).is_some();
        if !self.page.as_ref().is_some_and(has_it) {
            self.page = ring.page_after(clock).cloned();
        }
        self.page.as_ref()?.change_after(clock).cloned()
    }
}

/// The page with the change after this clock, as (after, limit). Pages are aligned, except if the owner no longer keeps the
/// beginning of the page.
fn page_for(clock: u64, ring: &Ring) -> (u64, usize) {
    let aligned = clock - clock % PAGE;
    let after = if ring.is_kept_after(aligned) { aligned } else { clock };
    (after, (aligned + PAGE - after) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::{RECENT_CHANGES, StreamUpdate};
    use limina_engine::{
        Time,
        events::{Change, ChangeKind, KeyFrame},
    };

    fn change(clock: u64) -> Change {
        Change { clock, kind: ChangeKind::Submitted, event: "e".into(), time: Time(1) }
    }

    fn frame(clock: u64) -> KeyFrame {
        KeyFrame { clock, events: Vec::new() }
    }

    /// A ring that has received the changes after `begin`, up to `end`.
    fn ring(begin: u64, end: u64) -> Ring {
        let mut ring = Ring::default();
        ring.begin(begin);
        (begin + 1..=end).for_each(|clock| ring.push_change(change(clock)));
        ring
    }

    /// A follower that has everything up to this clock.
    fn at(clock: u64, ring: &Ring) -> Cursor {
        let mut cursor = Cursor::new(Some(clock));
        assert!(cursor.poll_begin(ring).is_none(), "the ring has reached {clock}");
        cursor
    }

    /// Runs a follower until it must ask or wait. Returns the clocks of what it sent, with those of key frames as negative numbers.
    fn run(cursor: &mut Cursor, ring: &Ring) -> (Vec<i64>, Step) {
        let mut sent = Vec::new();
        loop {
            match cursor.poll(ring) {
                Step::Send(messages) => sent.extend(messages.iter().map(|message| match &message.update {
                    StreamUpdate::Change(change) => change.clock as i64,
                    StreamUpdate::KeyFrame(frame) => -(frame.clock as i64),
                })),
                step => return (sent, step),
            }
        }
    }

    #[track_caller]
    fn check(cursor: &mut Cursor, ring: &Ring, sent: &[i64], next: &str) {
        let (found, step) = run(cursor, ring);
        assert_eq!((&found[..], &*format!("{step:?}")), (sent, next));
    }

    fn clocks(clocks: std::ops::RangeInclusive<u64>) -> Vec<i64> {
        clocks.map(|clock| clock as i64).collect()
    }

    #[test]
    fn changes_and_key_frames_come_in_order() {
        let mut ring = ring(7, 10);
        let (mut quick, mut slow) = (at(7, &ring), at(7, &ring));
        check(&mut quick, &ring, &[8, 9, 10], "Wait");
        ring.push_key_frame(frame(10));
        ring.push_change(change(11));
        check(&mut quick, &ring, &[-10, 11], "Wait");
        check(&mut slow, &ring, &[8, 9, 10, -10, 11], "Wait");
    }

    #[test]
    fn a_key_frame_never_undoes_a_change_that_was_sent() {
        let mut ring = ring(7, 9);
        let mut cursor = at(7, &ring);
        check(&mut cursor, &ring, &[8, 9], "Wait");
        ring.push_key_frame(frame(8));
        check(&mut cursor, &ring, &[], "Wait");
    }

    #[test]
    fn a_new_follower_begins_with_a_current_key_frame() {
        let mut ring = ring(7, 9);
        ring.push_key_frame(frame(9));
        let mut cursor = Cursor::new(None);
        check(&mut cursor, &ring, &[], "AskKeyFrame");
        ring.push_change(change(10));
        cursor.handle_key_frame(Message::new(StreamUpdate::KeyFrame(frame(10))));
        ring.push_change(change(11));
        check(&mut cursor, &ring, &[-10, 11], "Wait");
    }

    #[test]
    fn the_owner_decides_whether_a_clock_ahead_of_this_node_is_reached() {
        let mut ring = ring(7, 9);
        let mut cursor = Cursor::new(Some(11));
        check(&mut cursor, &ring, &[], "AskClock");
        cursor.handle_clock(12, &ring);
        (10..=11).for_each(|clock| ring.push_change(change(clock)));
        check(&mut cursor, &ring, &[], "Wait");
        ring.push_change(change(12));
        check(&mut cursor, &ring, &[12], "Wait");

        let mut cursor = Cursor::new(Some(14));
        check(&mut cursor, &ring, &[], "AskClock");
        cursor.handle_clock(13, &ring);
        check(&mut cursor, &ring, &[], "AskKeyFrame");
    }

    #[test]
    fn changes_that_this_node_has_missed_are_read_from_the_shard() {
        let mut ring = ring(7, 8);
        let (mut cursor, mut other) = (at(7, &ring), at(8, &ring));
        // 9 and 10 became durable, but their effects were lost with the shard's memory.
        ring.handle_clock(10);
        check(&mut other, &ring, &[], "AskPage { after: 0, limit: 256 }");
        other.handle_page(0, Changes::NotKept, &mut ring);
        check(&mut other, &ring, &[], "AskPage { after: 8, limit: 248 }");
        other.handle_page(8, Changes::Kept(vec![change(9), change(10)]), &mut ring);
        check(&mut other, &ring, &[9, 10], "Wait");
        // Change 8 was in the ring, which started again after the gap. So it is read from the shard.
        check(&mut cursor, &ring, &[], "AskPage { after: 7, limit: 249 }");
        cursor.handle_page(7, Changes::Kept((8..=10).map(change).collect()), &mut ring);
        check(&mut cursor, &ring, &[8, 9, 10], "Wait");
        ring.push_change(change(11));
        check(&mut cursor, &ring, &[11], "Wait");
    }

    #[test]
    fn followers_behind_the_ring_share_pages() {
        let recent = RECENT_CHANGES as u64;
        let mut ring = ring(0, recent + 300);
        let (mut first, mut second) = (at(10, &ring), at(20, &ring));
        check(&mut first, &ring, &[], "AskPage { after: 0, limit: 256 }");
        assert_eq!(second.wanted_page(&ring), Some((0, 256)));
        first.handle_page(0, Changes::Kept((1..=256).map(change).collect()), &mut ring);
        assert_eq!(second.wanted_page(&ring), None);
        check(&mut first, &ring, &clocks(11..=256), "AskPage { after: 256, limit: 256 }");
        check(&mut second, &ring, &clocks(21..=256), "AskPage { after: 256, limit: 256 }");
        second.handle_page(256, Changes::Kept((257..=512).map(change).collect()), &mut ring);
        check(&mut second, &ring, &clocks(257..=recent + 300), "Wait");
        assert!(!second.is_behind());
        assert!(matches!(first.poll(&ring), Step::Send(messages) if messages[0].clock() == 257));
        assert!(!first.is_behind(), "the first batch ended in the ring");
    }

    #[test]
    fn only_a_follower_whose_changes_are_not_kept_gets_a_key_frame() {
        let recent = RECENT_CHANGES as u64;
        let mut ring = ring(0, recent + 300);
        let (mut lost, mut other) = (at(200, &ring), at(100, &ring));
        check(&mut lost, &ring, &[], "AskPage { after: 0, limit: 256 }");
        lost.handle_page(0, Changes::NotKept, &mut ring);
        check(&mut lost, &ring, &[], "AskPage { after: 200, limit: 56 }");
        lost.handle_page(200, Changes::NotKept, &mut ring);
        check(&mut lost, &ring, &[], "AskKeyFrame");
        check(&mut other, &ring, &[], "AskKeyFrame");
        let current = Message::new(StreamUpdate::KeyFrame(frame(recent + 300)));
        lost.handle_key_frame(current);
        check(&mut lost, &ring, &[-(recent as i64 + 300)], "Wait");
    }

    /// After an old backup was restored, for example, the shard lacks changes. The follower must not ask for them forever.
    #[test]
    fn a_page_without_the_wanted_change_is_not_asked_for_again() {
        for page in [vec![], vec![change(1)], vec![change(7)]] {
            let mut ring = ring(0, 5);
            let mut cursor = at(5, &ring);
            ring.handle_clock(9);
            check(&mut cursor, &ring, &[], "AskPage { after: 0, limit: 256 }");
            cursor.handle_page(0, Changes::Kept(page.clone()), &mut ring);
            if let Step::AskPage { after, .. } = run(&mut cursor, &ring).1 {
                assert_eq!(after, 5);
                cursor.handle_page(after, Changes::Kept(page), &mut ring);
            }
            check(&mut cursor, &ring, &[], "AskKeyFrame");
        }
    }

    #[test]
    fn a_follower_takes_little_at_a_time() {
        let mut ring = Ring::default();
        ring.begin(0);
        for clock in 1..=1_000 {
            let event = "e".repeat(1_024).into();
            ring.push_change(Change { event, ..change(clock) });
        }
        let Step::Send(messages) = at(0, &ring).poll(&ring) else { panic!("there is something to send") };
        assert!(messages.len() < 64, "{}", messages.len());
    }
}
