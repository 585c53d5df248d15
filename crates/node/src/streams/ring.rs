//! The changes of a stream that this node has in memory, shared by all followers. No IO: the simulator runs this code too.

use super::{Message, StreamUpdate};
use crate::{
    Budget,
    memory::{Account, Kind},
};
use limina_engine::events::{Change, Changes, KeyFrame};
use std::{collections::VecDeque, sync::Arc};

/// The number of latest changes that stay in memory. Older ones are read from the shard, a page at a time.
pub const RECENT_CHANGES: usize = 1_024;
/// As [`RECENT_CHANGES`], while the memory budget is nearly used up.
const RECENT_CHANGES_IF_SHORT: usize = 64;
/// The number of changes in a page. Pages begin at multiples of it, so that followers at different clocks share them.
pub const PAGE: u64 = 256;
/// The number of pages that stay in memory, for followers with about the same clock.
const CACHED_PAGES: usize = 8;

/// The latest changes of a stream without a gap, the latest periodic key frame, and some pages of older changes.
#[derive(Debug)]
pub struct Ring {
    memory: Budget,
    /// The memory of changes and pages. Key frames have their own reservations.
    account: Account,
    bytes: usize,
    changes: VecDeque<Arc<Message>>,
    /// The clock of the latest change that this node knows of. None until the owner has sent a clock.
    last: Option<u64>,
    key_frame: Option<Arc<Message>>,
    /// The number of periodic key frames so far.
    key_frames: u64,
    /// The page that was loaded first comes first.
    pages: VecDeque<Arc<Page>>,
    /// The owner no longer keeps all changes after this clock, nor after any smaller one.
    not_kept_after: Option<u64>,
}

/// Consecutive changes that were read from the shard.
#[derive(Debug)]
pub struct Page {
    after: u64,
    changes: Vec<Arc<Message>>,
    bytes: usize,
}

/// The change after a clock, if the ring has it.
pub(super) enum Lookup<'a> {
    /// The ring has it.
    Found(&'a Arc<Message>),
    /// It has not happened, or this node has not received it yet.
    NotYet,
    /// It is older than the changes in the ring.
    Older,
}

impl Default for Ring {
    /// An empty ring whose memory has no limit.
    fn default() -> Ring {
        Ring::new(&Budget::unlimited())
    }
}

impl Ring {
    /// An empty ring. Its changes and key frames count against the budget.
    pub fn new(memory: &Budget) -> Ring {
        Ring {
            account: memory.account(Kind::Streams),
            memory: memory.clone(),
            bytes: 0,
            changes: VecDeque::new(),
            last: None,
            key_frame: None,
            key_frames: 0,
            pages: VecDeque::new(),
            not_kept_after: None,
        }
    }

    /// The clock of the latest change that this node knows of. None before the first clock.
    pub fn last(&self) -> Option<u64> {
        self.last
    }

    /// The owner sends the next change.
    pub fn push_change(&mut self, change: Change) {
        if !self.continue_after(change.clock - 1) {
            return;
        }
        self.last = Some(change.clock);
        let message = Message::new(StreamUpdate::Change(change));
        self.bytes += message.memory_bytes();
        self.changes.push_back(message);
        let recent = if self.memory.is_short() { RECENT_CHANGES_IF_SHORT } else { RECENT_CHANGES };
        while self.changes.len() > recent {
            self.bytes -= self.changes.pop_front().map_or(0, |oldest| oldest.memory_bytes());
        }
        self.account.set(self.bytes);
    }

    /// The owner sends a periodic key frame, at its position among the changes. If there is no memory for it, it is dropped:
    /// followers have all changes, and need no key frame.
    pub fn push_key_frame(&mut self, frame: KeyFrame) {
        if self.continue_after(frame.clock)
            && let Ok(frame) = Message::key_frame(frame, &self.memory)
        {
            self.key_frames += 1;
            self.key_frame = Some(frame);
        }
    }

    /// The owner sends the stream's clock. If it is later than the ring's, this node has missed changes, and followers read
    /// them from the shard.
    pub fn handle_clock(&mut self, clock: u64) {
        self.continue_after(clock);
    }

    /// The owner sends the stream's clock to a node that may already receive changes. If the ring has a clock, it stays: the
    /// changes in between are on their way.
    pub fn begin(&mut self, clock: u64) {
        self.last.get_or_insert(clock);
    }

    /// The owner sends the changes after a clock that the stream has reached.
    pub fn handle_page(&mut self, after: u64, changes: Changes) {
        let changes = match changes {
            Changes::Kept(changes) => changes,
            Changes::NotKept => Vec::new(),
        };
        let consecutive = (after + 1..).zip(changes).take_while(|(clock, change)| *clock == change.clock);
        let changes: Vec<_> =
            consecutive.map(|(_, change)| Message::new(StreamUpdate::Change(change))).collect();
        if changes.is_empty() {
            self.not_kept_after = self.not_kept_after.max(Some(after));
            return;
        }
        self.pages.retain(|page| page.after != after);
        if self.pages.len() == CACHED_PAGES {
            self.pages.pop_front();
        }
        let bytes = changes.iter().map(|change| change.memory_bytes()).sum();
        self.pages.push_back(Arc::new(Page { after, changes, bytes }));
        self.count();
    }

    /// Drops the pages: no follower reads them.
    pub fn drop_pages(&mut self) {
        self.pages.clear();
        self.count();
    }

    /// Counts the memory of changes and pages afresh.
    fn count(&mut self) {
        let changes: usize = self.changes.iter().map(|change| change.memory_bytes()).sum();
        let pages: usize = self.pages.iter().map(|page| page.bytes).sum();
        self.bytes = changes + pages;
        self.account.set(self.bytes);
    }

    /// Prepares the ring for a change that follows this clock. If this node has missed changes before it, the ring starts
    /// again there: their effects were lost with the shard's memory, or the shard was in another node. Returns false if the
    /// ring has that change already.
    fn continue_after(&mut self, clock: u64) -> bool {
        if self.last.is_some_and(|last| clock < last) {
            return false;
        }
        if self.last != Some(clock) {
            self.changes.clear();
            self.last = Some(clock);
            self.count();
        }
        true
    }

    pub(super) fn after(&self, clock: u64) -> Lookup<'_> {
        let Some(last) = self.last.filter(|last| clock < *last) else { return Lookup::NotYet };
        let before_first = last - self.changes.len() as u64;
        let index = clock.checked_sub(before_first).and_then(|index| usize::try_from(index).ok());
        match index.and_then(|index| self.changes.get(index)) {
            Some(change) => Lookup::Found(change),
            None => Lookup::Older,
        }
    }

    /// The latest periodic key frame, and the number of them so far.
    pub(super) fn key_frame(&self) -> (Option<&Arc<Message>>, u64) {
        (self.key_frame.as_ref(), self.key_frames)
    }

    /// The page in memory that contains the change after this clock.
    pub(super) fn page_after(&self, clock: u64) -> Option<&Arc<Page>> {
        self.pages.iter().find(|page| page.change_after(clock).is_some())
    }

    /// Whether the owner may still keep all changes after this clock.
    pub(super) fn is_kept_after(&self, clock: u64) -> bool {
        self.not_kept_after.is_none_or(|not_kept| clock > not_kept)
    }
}

impl Page {
    pub(super) fn change_after(&self, clock: u64) -> Option<&Arc<Message>> {
        self.changes.get(usize::try_from(clock.checked_sub(self.after)?).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use limina_engine::{Time, events::ChangeKind};

    fn change(clock: u64) -> Change {
        Change { clock, kind: ChangeKind::Submitted, event: "e".into(), time: Time(1) }
    }

    fn frame(clock: u64) -> KeyFrame {
        KeyFrame { clock, events: Vec::new() }
    }

    /// What the owner sends.
    enum Input {
        Change(u64),
        KeyFrame(u64),
        Clock(u64),
        Begin(u64),
    }
    use Input::{Begin, Clock};

    /// The clocks of the changes in the ring, the ring's clock, and the number of periodic key frames.
    #[track_caller]
    fn check(inputs: &[Input], changes: &[u64], last: Option<u64>, key_frames: u64) {
        let mut ring = Ring::default();
        for input in inputs {
            match *input {
                Input::Change(clock) => ring.push_change(change(clock)),
                Input::KeyFrame(clock) => ring.push_key_frame(frame(clock)),
                Clock(clock) => ring.handle_clock(clock),
                Begin(clock) => ring.begin(clock),
            }
        }
        let held: Vec<u64> = ring.changes.iter().map(|message| message.clock()).collect();
        assert_eq!((&held[..], ring.last(), ring.key_frame().1), (changes, last, key_frames));
    }

    #[test]
    fn the_ring_has_the_latest_changes_without_a_gap() {
        use Input::{Change, KeyFrame};
        check(&[], &[], None, 0);
        check(&[Begin(7)], &[], Some(7), 0);
        check(&[Begin(7), Begin(9)], &[], Some(7), 0);
        check(&[Begin(7), Change(8), Change(9)], &[8, 9], Some(9), 0);
        // Changes that were sent before are ignored.
        check(&[Begin(7), Change(8), Change(9), Change(8)], &[8, 9], Some(9), 0);
        check(&[Begin(7), Change(7)], &[], Some(7), 0);
        // After a gap the ring starts again.
        check(&[Begin(7), Change(8), Change(10)], &[10], Some(10), 0);
        check(&[Begin(7), Change(8), Clock(9)], &[], Some(9), 0);
        check(&[Begin(7), Change(8), Clock(8)], &[8], Some(8), 0);
        check(&[Begin(7), Change(8), Clock(3)], &[8], Some(8), 0);
        // A key frame of an older clock would undo changes.
        check(&[Begin(7), Change(8), KeyFrame(8)], &[8], Some(8), 1);
        check(&[Begin(7), Change(8), KeyFrame(7)], &[8], Some(8), 0);
        check(&[Begin(7), Change(8), KeyFrame(9)], &[], Some(9), 1);
    }

    #[test]
    fn the_ring_is_bounded() {
        let mut ring = Ring::default();
        ring.begin(0);
        let end = RECENT_CHANGES as u64 + 5;
        (1..=end).for_each(|clock| ring.push_change(change(clock)));
        assert_eq!(ring.changes.len(), RECENT_CHANGES);
        assert!(matches!(ring.after(4), Lookup::Older));
        assert!(matches!(ring.after(5), Lookup::Found(message) if message.clock() == 6));
        assert!(matches!(ring.after(end), Lookup::NotYet));
    }

    #[test]
    fn pages_are_bounded_and_have_no_gap() {
        let mut ring = Ring::default();
        ring.begin(10_000);
        ring.handle_page(0, Changes::Kept(vec![change(1), change(2), change(4)]));
        assert!(ring.page_after(1).is_some());
        assert!(ring.page_after(2).is_none(), "3 is missing");
        for page in 1..=CACHED_PAGES as u64 {
            ring.handle_page(page * PAGE, Changes::Kept(vec![change(page * PAGE + 1)]));
        }
        assert!(ring.page_after(0).is_none(), "the oldest page was dropped");
        assert!(ring.page_after(CACHED_PAGES as u64 * PAGE).is_some());
        ring.handle_page(100, Changes::NotKept);
        assert!(!ring.is_kept_after(100) && !ring.is_kept_after(99) && ring.is_kept_after(101));
    }
}
