//! What waits to be sent on a connection.
//!
//! Any task adds messages, and the connection's task takes all of them for one write. Short messages are stored as frames, one
//! after the other. A long message waits beside them, and gives one frame to each write, in turn with the other long ones.

use super::frames::{HEAD, Kind, MAX_BODY, put_frame};
use bytes::{Buf, Bytes, BytesMut};
use futures_util::task::AtomicWaker;
use limina_node::memory::Reservation;
use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    task::Waker,
};

/// The longest message that is short, so that a write of short messages is never delayed by copying a long one.
const SHORT: usize = 8 << 10;
/// No frame of a long message is added to a write that has this many bytes.
const WRITE: usize = 64 << 10;
/// A buffer that has grown beyond this is not used again.
const MAX_KEPT_BUFFER: usize = 1 << 20;

#[derive(Default)]
pub(super) struct Outbox {
    state: Mutex<State>,
    waker: AtomicWaker,
}

#[derive(Default)]
struct State {
    /// The frames of short messages.
    frames: BytesMut,
    /// The memory of the messages in `frames`.
    held: Vec<Reservation>,
    /// By call: the messages of a call keep their order.
    long: VecDeque<LongMessages>,
    long_bytes: usize,
    /// The highest number of a call in `frames`, and in what was taken of it.
    highest: u64,
    highest_taken: u64,
    is_closed: bool,
}

struct LongMessages {
    call: u64,
    messages: VecDeque<LongMessage>,
}

struct LongMessage {
    kind: Kind,
    /// What is not taken yet.
    rest: Bytes,
    has_begun: bool,
}

/// What one write sends.
#[derive(Default)]
pub(super) struct Write {
    pub(super) bytes: BytesMut,
    /// The memory of the messages in `bytes`.
    held: Vec<Reservation>,
}

impl Write {
    /// Everything is written.
    pub(super) fn finish(&mut self) {
        self.held.clear();
        if self.bytes.capacity() > MAX_KEPT_BUFFER {
            self.bytes = BytesMut::new();
        }
    }
}

impl Outbox {
    /// Adds a message. `held` is returned to the budget when the message is written. After [`Outbox::close`] this does nothing.
    pub(super) fn push(&self, kind: Kind, call: u64, body: Bytes, held: Option<Reservation>) {
        let mut state = self.lock();
        if state.is_closed {
            return;
        }
        let waits_behind = state.long.iter().position(|long| long.call == call);
        match waits_behind {
            None if body.len() <= SHORT => {
                put_frame(&mut state.frames, kind, call, &body, false);
                state.held.extend(held);
                state.highest = state.highest.max(call);
            }
            waits_behind => {
                state.long_bytes += body.len();
                let rest = match held {
                    Some(held) => held.attach_to(body),
                    None => body,
                };
                let message = LongMessage { kind, rest, has_begun: false };
                match waits_behind {
                    Some(place) => state.long[place].messages.push_back(message),
                    None => state.long.push_back(LongMessages { call, messages: [message].into() }),
                }
            }
        }
        drop(state);
        self.waker.wake();
    }

    /// Removes what is left of the long messages of a call. Returns whether anything of the call was taken, or will be.
    pub(super) fn withdraw(&self, call: u64) -> bool {
        let mut state = self.lock();
        let Some(place) = state.long.iter().position(|long| long.call == call) else { return true };
        let Some(long) = state.long.remove(place) else { return true };
        state.long_bytes -= long.messages.iter().map(|message| message.rest.len()).sum::<usize>();
        long.messages.front().is_some_and(|message| message.has_begun)
    }

    /// Takes what waits, as far as it fits into one write. Returns whether there is anything to write.
    pub(super) fn take(&self, write: &mut Write) -> bool {
        let mut state = self.lock();
        let state = &mut *state;
        std::mem::swap(&mut write.bytes, &mut state.frames);
        std::mem::swap(&mut write.held, &mut state.held);
        state.highest_taken = state.highest;
        for _ in 0..state.long.len() {
            if write.bytes.len() >= WRITE {
                break;
            }
            let Some(mut long) = state.long.pop_front() else { break };
            if let Some(message) = long.messages.front_mut() {
                let body = message.rest.split_to(message.rest.len().min(MAX_BODY));
                state.long_bytes -= body.len();
                let kind = if message.has_begun { Kind::Continued } else { message.kind };
                message.has_begun = true;
                put_frame(&mut write.bytes, kind, long.call, &body, message.rest.has_remaining());
                if !message.rest.has_remaining() {
                    long.messages.pop_front();
                }
            }
            if !long.messages.is_empty() {
                state.long.push_back(long);
            } else {
                state.highest_taken = state.highest_taken.max(long.call);
                state.highest = state.highest_taken;
            }
        }
        !write.bytes.is_empty()
    }

    /// Whether a whole message of this call may have been taken. If not, the other side cannot know the call.
    pub(super) fn may_be_sent(&self, call: u64) -> bool {
        let state = self.lock();
        call <= state.highest_taken && !state.long.iter().any(|long| long.call == call)
    }

    /// The bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        let state = self.lock();
        state.frames.len() + state.long_bytes + state.long.len() * HEAD
    }

    /// Drops all later messages. Those that wait stay, for [`Outbox::may_be_sent`].
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
    }

    /// Wakes this task when there is something to take.
    pub(super) fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::frames::*, *};

    /// Takes everything, write by write, and returns the whole messages.
    fn messages(outbox: &Outbox) -> Vec<(Kind, u64, usize)> {
        let mut decoder = Decoder::default();
        let mut write = Write::default();
        let mut found = Vec::new();
        while outbox.take(&mut write) {
            assert!(write.bytes.len() <= WRITE + MAX_BODY + HEAD);
            decoder.input.extend_from_slice(&write.bytes);
            write.bytes.clear();
            write.finish();
            while let Some(incoming) = decoder.next().unwrap() {
                if let Incoming::Message(Message { kind, call, body }) = incoming {
                    found.push((kind, call, body.len()));
                }
            }
        }
        assert_eq!(outbox.bytes(), 0);
        found
    }

    fn push(outbox: &Outbox, kind: Kind, call: u64, length: usize) {
        outbox.push(kind, call, vec![7; length].into(), None);
    }

    #[test]
    fn short_messages_pass_long_ones_and_a_call_keeps_its_order() {
        let outbox = Outbox::default();
        push(&outbox, Kind::Part, 1, 300 << 10);
        push(&outbox, Kind::Part, 2, 100 << 10);
        push(&outbox, Kind::Part, 1, 5);
        push(&outbox, Kind::Answer, 3, 4);
        assert_eq!(outbox.bytes(), (400 << 10) + 5 + HEAD + 4 + 2 * HEAD);
        let expect = [
            (Kind::Answer, 3, 4),
            (Kind::Part, 2, 100 << 10),
            (Kind::Part, 1, 300 << 10),
            (Kind::Part, 1, 5),
        ];
        assert_eq!(messages(&outbox), expect);
        push(&outbox, Kind::Answer, 4, 0);
        assert_eq!(messages(&outbox), [(Kind::Answer, 4, 0)]);
    }

    #[test]
    fn a_call_may_be_sent_only_if_all_of_it_was_taken() {
        let outbox = Outbox::default();
        let mut write = Write::default();
        push(&outbox, Kind::Ask, 1, 10);
        assert!(!outbox.may_be_sent(1));
        push(&outbox, Kind::Ask, 2, 100 << 10);
        push(&outbox, Kind::Ask, 3, 10);
        assert!(outbox.take(&mut write));
        assert!(outbox.may_be_sent(1) && !outbox.may_be_sent(2) && outbox.may_be_sent(3));
        push(&outbox, Kind::Ask, 4, 10);
        outbox.close();
        push(&outbox, Kind::Ask, 5, 10);
        assert!(!outbox.may_be_sent(4) && !outbox.may_be_sent(5));
    }

    #[test]
    fn a_long_message_that_was_never_begun_leaves_no_trace() {
        let outbox = Outbox::default();
        push(&outbox, Kind::Ask, 1, 100 << 10);
        assert!(!outbox.withdraw(1));
        assert!(outbox.withdraw(2), "it was short, or is taken already");
        push(&outbox, Kind::Ask, 3, 100 << 10);
        let mut write = Write::default();
        assert!(outbox.take(&mut write));
        assert!(outbox.withdraw(3));
        assert_eq!(outbox.bytes(), 0);
    }

    #[test]
    fn memory_is_held_until_the_message_is_written() {
        let memory = limina_node::Budget::unlimited();
        let reserve = || Some(memory.reserve_anyway(limina_node::memory::Kind::Answers, 100));
        let outbox = Outbox::default();
        outbox.push(Kind::Answer, 1, Bytes::from_static(b"short"), reserve());
        outbox.push(Kind::Answer, 2, vec![0; 40 << 10].into(), reserve());
        let mut write = Write::default();
        assert!(outbox.take(&mut write));
        assert_eq!(memory.used(), 200);
        write.bytes.clear();
        write.finish();
        assert_eq!(memory.used(), 100, "the long one is not written yet");
        assert!(outbox.take(&mut write));
        assert_eq!(memory.used(), 0, "its last frame is a copy");
    }
}
