//! The changes of a stream that this node has in memory, shared by all of its followers. No IO.

use super::{Message, Told};
use limina_engine::events::{Change, Changes, KeyFrame};
use std::{collections::VecDeque, sync::Arc};

/// How many of the latest changes stay in memory. Older ones are read from the shard, a page at a time.
pub const RECENT_CHANGES: usize = 1_024;
/// How many changes a page has. Pages begin at multiples of this number, so that followers at different clocks share them.
pub const PAGE: u64 = 256;
/// How many pages stay in memory for followers that are at about the same place.
const CACHED_PAGES: usize = 8;

/// The latest changes of a stream without a gap, the latest periodic key frame, and some pages of older changes.
#[derive(Debug, Default)]
pub struct Ring {
    changes: VecDeque<Arc<Message>>,
    /// The clock of the latest change that this node knows of. `None` until the owner has said where the stream is.
    last: Option<u64>,
    key_frame: Option<Arc<Message>>,
    /// How many periodic key frames there were.
    key_frames: u64,
    /// Least recently loaded first.
    pages: VecDeque<Arc<Page>>,
    /// The owner no longer keeps all changes after this clock, nor after any smaller one.
    not_kept_after: Option<u64>,
}

/// Consecutive changes that were read from the shard.
#[derive(Debug)]
pub struct Page {
    after: u64,
    changes: Vec<Arc<Message>>,
}

/// Where the change after a clock is.
pub(super) enum Place<'a> {
    /// In the ring.
    Here(&'a Arc<Message>),
    /// It has not reached this node, or it has not happened.
    NotYet,
    /// It is older than the ring.
    Older,
}

impl Ring {
    /// The clock of the latest change that this node knows of.
    pub fn last(&self) -> Option<u64> {
        self.last
    }

    /// The owner tells the next change.
    pub fn push_change(&mut self, change: Change) {
        if !self.join(change.clock - 1) {
            return;
        }
        self.last = Some(change.clock);
        self.changes.push_back(Message::new(Told::Change(change)));
        if self.changes.len() > RECENT_CHANGES {
            self.changes.pop_front();
        }
    }

    /// The owner tells the periodic key frame, in its place among the changes.
    pub fn push_key_frame(&mut self, frame: KeyFrame) {
        if self.join(frame.clock) {
            self.key_frames += 1;
            self.key_frame = Some(Message::new(Told::KeyFrame(frame)));
        }
    }

    /// The owner says which clock the stream has. If that is later than what the ring has, this node has missed changes,
    /// and its followers read them from the shard.
    pub fn handle_clock(&mut self, clock: u64) {
        self.join(clock);
    }

    /// The same, for a node that may be behind only because changes are still on their way to it: they are waited for.
    pub fn begin(&mut self, clock: u64) {
        self.last.get_or_insert(clock);
    }

    /// The owner answers which changes come after a clock that it has reached.
    pub fn handle_page(&mut self, after: u64, changes: Changes) {
        let changes = match changes {
            Changes::Kept(changes) => changes,
            Changes::NotKept => Vec::new(),
        };
        let consecutive = (after + 1..).zip(changes).take_while(|(clock, change)| *clock == change.clock);
        let changes: Vec<_> = consecutive.map(|(_, change)| Message::new(Told::Change(change))).collect();
        if changes.is_empty() {
            self.not_kept_after = self.not_kept_after.max(Some(after));
            return;
        }
        self.pages.retain(|page| page.after != after);
        if self.pages.len() == CACHED_PAGES {
            self.pages.pop_front();
        }
        self.pages.push_back(Arc::new(Page { after, changes }));
    }

    /// No follower reads pages any more.
    pub fn drop_pages(&mut self) {
        self.pages.clear();
    }

    /// What comes next follows this clock. The ring begins anew there if this node has missed changes before it (their
    /// effects were lost with the shard's memory, or the shard was elsewhere). Returns false for what the ring already has.
    fn join(&mut self, clock: u64) -> bool {
        if self.last.is_some_and(|last| clock < last) {
            return false;
        }
        if self.last != Some(clock) {
            self.changes.clear();
            self.last = Some(clock);
        }
        true
    }

    pub(super) fn after(&self, clock: u64) -> Place<'_> {
        let Some(last) = self.last.filter(|last| clock < *last) else { return Place::NotYet };
        let before_first = last - self.changes.len() as u64;
        let number = clock.checked_sub(before_first).and_then(|number| usize::try_from(number).ok());
        match number.and_then(|number| self.changes.get(number)) {
            Some(change) => Place::Here(change),
            None => Place::Older,
        }
    }

    /// The latest periodic key frame, and how many there were.
    pub(super) fn key_frame(&self) -> (Option<&Arc<Message>>, u64) {
        (self.key_frame.as_ref(), self.key_frames)
    }

    /// The page that has the change after this clock, if it is in memory.
    pub(super) fn page_after(&self, clock: u64) -> Option<&Arc<Page>> {
        self.pages.iter().find(|page| page.change_after(clock).is_some())
    }

    pub(super) fn is_kept_after(&self, clock: u64) -> bool {
        self.not_kept_after.is_none_or(|not_kept| clock > not_kept)
    }
}

impl Page {
    pub(super) fn change_after(&self, clock: u64) -> Option<&Arc<Message>> {
        self.changes.get(usize::try_from(clock.checked_sub(self.after)?).ok()?)
    }
}
