//! A follower's place in a stream, and what it needs next. No IO: the simulator runs this code too.

use super::{
    Message,
    ring::{PAGE, Page, Place, Ring},
};
use limina_engine::events::Changes;
use std::{cmp::Ordering, sync::Arc};

/// How many messages a follower takes at a time, and how many bytes of them, so that a client that stops reading holds
/// little memory.
const MAX_MESSAGES: usize = 256;
const MAX_BYTES: usize = 64 << 10;

/// A follower's place in a stream.
#[derive(Debug)]
pub struct Cursor {
    stage: Stage,
    /// How many of the ring's periodic key frames it has passed.
    key_frames: u64,
    /// The page that it reads, while it is behind the ring.
    page: Option<Arc<Page>>,
}

#[derive(Debug)]
enum Stage {
    /// It needs a current key frame.
    Outside,
    /// It asks for the changes after a clock that this node has not reached.
    Resuming(u64),
    /// It has a key frame that was not sent yet.
    Beginning(Arc<Message>),
    /// It has everything up to this clock.
    At(u64),
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
        /// After which clock.
        after: u64,
        /// How many.
        limit: usize,
    },
    /// Ask the owner for a key frame, and then call [`Cursor::handle_key_frame`].
    AskKeyFrame,
}

impl Cursor {
    /// A new follower, or one that has everything up to a clock.
    pub fn new(resume_after: Option<u64>) -> Cursor {
        let stage = resume_after.map_or(Stage::Outside, Stage::Resuming);
        Cursor { stage, key_frames: 0, page: None }
    }

    /// The question that must be answered before it is known where the follower begins.
    pub fn poll_begin(&mut self, ring: &Ring) -> Option<Step> {
        match self.stage {
            Stage::Outside => Some(Step::AskKeyFrame),
            // Where this node is behind, the clock may be reached all the same: only the owner knows.
            Stage::Resuming(clock) if ring.last().is_none_or(|last| last < clock) => Some(Step::AskClock),
            Stage::Resuming(clock) => {
                self.stand_at(clock, ring);
                None
            }
            Stage::Beginning(_) | Stage::At(_) => None,
        }
    }

    /// What comes next.
    pub fn poll(&mut self, ring: &Ring) -> Step {
        if let Some(question) = self.poll_begin(ring) {
            return question;
        }
        match std::mem::replace(&mut self.stage, Stage::Outside) {
            Stage::Beginning(frame) => {
                self.stand_at(frame.clock(), ring);
                Step::Send(vec![frame])
            }
            Stage::At(clock) => self.go_on(clock, ring),
            Stage::Outside | Stage::Resuming(_) => unreachable!("it has begun"),
        }
    }

    /// The stream's clock, as the owner told it. A clock that the stream has not reached is no place in it.
    pub fn handle_clock(&mut self, clock: u64, ring: &Ring) {
        if let Stage::Resuming(after) = self.stage {
            match after <= clock {
                true => self.stand_at(after, ring),
                false => self.stage = Stage::Outside,
            }
        }
    }

    /// What [`Step::AskPage`] asks for, if it is still needed: another follower may have read the page meanwhile.
    pub fn wanted_page(&self, ring: &Ring) -> Option<(u64, usize)> {
        let Stage::At(clock) = self.stage else { return None };
        let is_needed = matches!(ring.after(clock), Place::Older)
            && ring.page_after(clock).is_none()
            && ring.is_kept_after(clock);
        is_needed.then(|| page_for(clock, ring))
    }

    /// The owner's answer to [`Step::AskPage`].
    pub fn handle_page(&mut self, after: u64, changes: Changes, ring: &mut Ring) {
        ring.handle_page(after, changes);
        let Stage::At(clock) = self.stage else { return };
        // If the aligned page is not whole any more, the part after the follower's clock may be.
        let may_ask_again = after < clock && !ring.is_kept_after(after);
        if !may_ask_again && ring.page_after(clock).is_none() {
            self.stage = Stage::Outside;
        }
    }

    /// A key frame that the owner made after it was asked for.
    pub fn handle_key_frame(&mut self, frame: Arc<Message>) {
        if matches!(self.stage, Stage::Outside) {
            self.stage = Stage::Beginning(frame);
        }
    }

    /// Whether it is behind the ring, and reads pages.
    pub fn is_behind(&self) -> bool {
        self.page.is_some()
    }

    fn stand_at(&mut self, clock: u64, ring: &Ring) {
        self.stage = Stage::At(clock);
        self.key_frames = ring.key_frame().1;
    }

    fn go_on(&mut self, mut clock: u64, ring: &Ring) -> Step {
        let mut messages = Vec::new();
        let mut bytes = 0;
        let mut is_older = false;
        while messages.len() < MAX_MESSAGES && bytes < MAX_BYTES {
            let message = match self.key_frame_at(clock, ring) {
                Some(frame) => frame,
                None => match ring.after(clock) {
                    Place::Here(change) => {
                        self.page = None;
                        change.clone()
                    }
                    Place::NotYet => break,
                    Place::Older => {
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
        self.stage = Stage::At(clock);
        if !messages.is_empty() {
            return Step::Send(messages);
        }
        if !is_older {
            return Step::Wait;
        }
        if !ring.is_kept_after(clock) {
            (self.stage, self.page) = (Stage::Outside, None);
            return Step::AskKeyFrame;
        }
        let (after, limit) = page_for(clock, ring);
        Step::AskPage { after, limit }
    }

    /// The periodic key frame, if this is its place. Once it is passed it would take back what was sent since.
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
        let is_here = |page: &Arc<Page>| page.change_after(clock).is_some();
        if !self.page.as_ref().is_some_and(is_here) {
            self.page = ring.page_after(clock).cloned();
        }
        self.page.as_ref()?.change_after(clock).cloned()
    }
}

/// Which page has the change after this clock. Pages are aligned, unless the beginning of one is not kept any more.
fn page_for(clock: u64, ring: &Ring) -> (u64, usize) {
    let aligned = clock - clock % PAGE;
    let after = if ring.is_kept_after(aligned) { aligned } else { clock };
    (after, (aligned + PAGE - after) as usize)
}
