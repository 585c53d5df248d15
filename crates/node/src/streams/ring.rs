//! The last changes of a stream, which all who follow it share.

use super::{Ended, Message, Told};
use limina_engine::events::{Change, KEPT_CHANGES, KeyFrame};
use std::{collections::VecDeque, sync::Arc};
use tokio::task::AbortHandle;

/// The last changes, without a gap, and the last key frame.
#[derive(Default)]
pub(super) struct Ring {
    pub(super) changes: VecDeque<Arc<Message>>,
    /// The clock of the last change that is known of; none until anything is told.
    pub(super) last: Option<u64>,
    pub(super) key_frame: Option<Arc<Message>>,
    /// How many key frames there were.
    pub(super) frames: u64,
    /// How many of them were for all. Others are only for those who begin, or have fallen behind.
    pub(super) for_all: u64,
    /// The next one is.
    pub(super) is_for_all: bool,
    /// Sees to it that the ring is fed, and that there is a key frame now and then.
    pub(super) feeder: Option<AbortHandle>,
    /// How often the stream's shard has left this node.
    pub(super) moves: u64,
    pub(super) ended: Option<Ended>,
}

impl Ring {
    pub(super) fn push_change(&mut self, change: Change) {
        if !self.join(change.clock - 1) {
            return;
        }
        self.last = Some(change.clock);
        self.changes.push_back(Message::new(Told::Change(change)));
        if self.changes.len() as u64 > KEPT_CHANGES {
            self.changes.pop_front();
        }
    }

    pub(super) fn push_key_frame(&mut self, frame: KeyFrame, is_for_all: bool) {
        if self.join(frame.clock) {
            self.frames += 1;
            self.for_all += u64::from(is_for_all);
            self.key_frame = Some(Message::new(Told::KeyFrame(frame)));
        }
    }

    /// What comes next follows this clock. If something between was never told (its outcome was not known at first, or
    /// the shard has moved), the ring begins anew. What is older than the ring was told before: says whether it is not.
    pub(super) fn join(&mut self, clock: u64) -> bool {
        if self.last.is_some_and(|last| clock < last) {
            return false;
        }
        if self.last != Some(clock) {
            self.changes.clear();
            self.last = Some(clock);
        }
        true
    }

    /// Nothing was told yet.
    pub(super) fn is_empty(&self) -> bool {
        self.last.is_none() && self.ended.is_none()
    }

    /// The clock before the first change in the ring.
    pub(super) fn before_first(&self) -> u64 {
        self.last.unwrap_or(0) - self.changes.len() as u64
    }

    /// The next message for somebody who has come so far.
    pub(super) fn next(&self, place: &mut Place) -> Option<Next> {
        let is_for_all = place.for_all < self.for_all;
        if self.is_behind(place) {
            let frame = self.usable_key_frame()?;
            *place = self.place_after(frame, place.is_feed);
            return Some(Next { message: frame.clone(), is_for_all });
        }
        if let Some(frame) = &self.key_frame
            && (is_for_all || (place.is_feed && place.frames < self.frames))
            && frame.clock() <= place.clock
        {
            let clock = place.clock;
            *place = Place { clock, ..self.place_after(frame, place.is_feed) };
            // One that comes too late would take back what was told since.
            if frame.clock() == clock {
                return Some(Next { message: frame.clone(), is_for_all });
            }
        }
        let number = place.clock - self.before_first();
        let change = self.changes.get(usize::try_from(number).ok()?)?;
        place.clock += 1;
        Some(Next { message: change.clone(), is_for_all: false })
    }

    /// Where somebody is who has just been told the last key frame.
    pub(super) fn place_after(&self, frame: &Message, is_feed: bool) -> Place {
        Place { clock: frame.clock(), frames: self.frames, for_all: self.for_all, is_feed }
    }

    /// Whether what comes next for somebody is not in the ring.
    pub(super) fn is_behind(&self, place: &Place) -> bool {
        self.last.is_none_or(|last| place.clock < self.before_first() || place.clock > last)
    }

    /// The last key frame, if everything since is in the ring.
    pub(super) fn usable_key_frame(&self) -> Option<&Arc<Message>> {
        self.key_frame.as_ref().filter(|frame| frame.clock() >= self.before_first())
    }
}

/// A message, and whether it is a key frame for all.
pub(super) struct Next {
    pub(super) message: Arc<Message>,
    pub(super) is_for_all: bool,
}

/// How far somebody has come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) clock: u64,
    /// How many of the key frames it has seen.
    pub(super) frames: u64,
    /// How many of those for all.
    pub(super) for_all: u64,
    /// It tells another node, and passes every key frame on.
    pub(super) is_feed: bool,
}

impl Drop for Ring {
    fn drop(&mut self) {
        if let Some(feeder) = &self.feeder {
            feeder.abort();
        }
    }
}
