//! The memory of one request, from its head until its client has taken the answer.
//!
//! Every request reserves [`REQUEST`] bytes once. This covers a small body, the command in its shard's queue or among the waiting
//! ones, and a small answer, so that most requests need no other reservation. Larger bodies and answers reserve more.

use super::{problem::Failure, status, streams::WaitsSince};
use axum::{
    body::{Body, Bytes, HttpBody},
    response::{IntoResponse, Response},
};
use hyper::body::{Frame, SizeHint};
use limina_access::{Exceeded, Permit, Resource, Token};
use limina_node::{
    Budget, Unavailable,
    memory::{Kind, MemoryFull, Priority, Reservation},
};
use pin_project_lite::pin_project;
use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

/// What every request reserves: its head, a small body, a small answer, and its part of queues.
pub(crate) const REQUEST: usize = 8 << 10;

/// What an open connection reserves: its buffers and its task.
pub(super) const CONNECTION: usize = 16 << 10;

/// The memory of a large body, with the command that is parsed from it, as a multiple of the body.
const PARSED: usize = 3;

/// The size of the pieces in which a body is handed to hyper on an HTTP/2 stream: one frame. hyper requests the next piece when
/// the client's window has room for it, so each request shows that the client reads.
const PIECE: usize = 16 << 10;

/// The answers of one HTTP/2 connection that its client has not taken. A small answer that hyper has taken over may wait for the
/// window of its stream for ever, without a task that could have a timeout.
#[derive(Default)]
pub(super) struct Untaken {
    answers: AtomicUsize,
    /// How many answers, or pieces of them, were taken.
    taken: AtomicU64,
}

impl Untaken {
    /// Whether answers, or pieces of them, were taken since the last call. `taken` is the state of the last call.
    pub(super) fn is_taken_since(&self, taken: &mut u64) -> bool {
        let before = std::mem::replace(taken, self.taken.load(Ordering::Relaxed));
        *taken != before
    }

    /// Whether there are answers, and none was taken since the last call. `taken` is the state of the last call.
    pub(super) fn is_stalled_since(&self, taken: &mut u64) -> bool {
        !self.is_taken_since(taken) && self.answers.load(Ordering::Relaxed) > 0
    }
}

/// The reservations of one request. A clone is the same request: one is in the request's context.
#[derive(Clone)]
pub(crate) struct RequestMemory(Arc<Mutex<Reservations>>);

struct Reservations {
    budget: Budget,
    /// None after the answer has taken it over.
    request: Option<Reservation>,
    body: Option<Reservation>,
    /// What the request takes of the bytes that its token may have in flight.
    of_token: Option<Permit>,
}

impl RequestMemory {
    pub(super) fn new(budget: &Budget) -> Result<RequestMemory, MemoryFull> {
        let request = budget.reserve(Kind::Requests, REQUEST, Priority::Request)?;
        Ok(RequestMemory::with(budget, request))
    }

    /// For a request that is answered whether or not there is memory.
    pub(super) fn new_anyway(budget: &Budget) -> RequestMemory {
        RequestMemory::with(budget, budget.reserve_anyway(Kind::Requests, REQUEST))
    }

    fn with(budget: &Budget, request: Reservation) -> RequestMemory {
        let reservations =
            Reservations { budget: budget.clone(), request: Some(request), body: None, of_token: None };
        RequestMemory(Arc::new(Mutex::new(reservations)))
    }

    /// Counts the request for its token, and also what it takes later. Fails if the token has its maximum in flight.
    pub(crate) fn count_for(&self, token: &Token) -> Result<(), Exceeded> {
        self.lock().of_token = Some(token.take(Resource::InFlightBytes, REQUEST as u64)?);
        Ok(())
    }

    /// Reserves the memory of a body that has, or needs, this many bytes so far.
    pub(super) fn reserve_body(&self, bytes: usize) -> Result<(), MemoryFull> {
        if bytes <= REQUEST {
            return Ok(());
        }
        let mut this = self.lock();
        if let Some(permit) = &mut this.of_token {
            permit.grow_to((REQUEST + bytes) as u64).map_err(|_| MemoryFull)?;
        }
        match &mut this.body {
            Some(body) => body.grow_to(bytes, Priority::Buffer),
            None => {
                this.body = Some(this.budget.reserve(Kind::Bodies, bytes, Priority::Buffer)?);
                Ok(())
            }
        }
    }

    /// Reserves the memory of a complete body and of what is parsed from it.
    pub(super) fn reserve_parsed(&self, body_bytes: usize) -> Result<(), MemoryFull> {
        match body_bytes <= REQUEST {
            true => Ok(()),
            false => self.reserve_body(body_bytes.saturating_mul(PARSED)),
        }
    }

    pub(super) fn is_short(&self) -> bool {
        self.lock().budget.is_short()
    }

    /// The answer with its memory: the reservation lasts until the client has taken the answer, wherever hyper keeps it.
    ///
    /// If there is no room for a large answer to a read, the client gets 503 instead: nothing was done. The answer to a write is
    /// returned in any case, because the write was done.
    pub(super) fn hold(
        self,
        response: Response,
        is_read: bool,
        untaken: &Arc<Untaken>,
    ) -> hyper::Response<AnswerBody> {
        let stream = WaitsSince::current().map(|waits| (waits, untaken.clone()));
        let (budget, request, mut of_token) = {
            let mut this = self.lock();
            this.body = None;
            (this.budget.clone(), this.request.take(), this.of_token.take())
        };
        let bytes = response.body().size_hint().exact().map(|bytes| bytes as usize);
        let (response, answer) = match bytes {
            Some(bytes) if bytes > REQUEST => match reserve_answer(&budget, of_token.as_mut(), bytes) {
                Ok(answer) => (response, Some(answer)),
                Err(MemoryFull) if is_read => (overloaded(), None),
                Err(MemoryFull) => (response, Some(budget.reserve_anyway(Kind::Answers, bytes))),
            },
            Some(0) => return response.map(AnswerBody::unheld),
            // A stream of updates, which have reservations of their own.
            Some(_) | None => (response, None),
        };
        response.map(|body| {
            let is_one_piece = body.size_hint().upper().is_some_and(|bytes| bytes <= PIECE as u64);
            if let Some((waits, _)) = &stream {
                waits.begin();
            }
            let untaken = stream.as_ref().map(|(_, untaken)| untaken.clone()).filter(|_| bytes.is_some());
            let held = Held::new(request, answer, of_token, untaken);
            AnswerBody { body, held: Some(held), rest: Bytes::new(), stream, is_one_piece }
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Reservations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reserves the memory of a large answer, also of the bytes that the token may have in flight.
fn reserve_answer(
    budget: &Budget,
    of_token: Option<&mut Permit>,
    bytes: usize,
) -> Result<Reservation, MemoryFull> {
    if let Some(permit) = of_token {
        permit.grow_to((REQUEST + bytes) as u64).map_err(|_| MemoryFull)?;
    }
    budget.reserve(Kind::Answers, bytes, Priority::Buffer)
}

/// The answer to a request for which there is no memory.
pub(super) fn overloaded() -> Response {
    no_memory().into_response()
}

/// The refusal of a request for which there is no memory.
pub(super) fn no_memory() -> Failure {
    status::unavailable(Unavailable::MemoryFull)
}

pin_project! {
    /// The body of an answer, with the memory that it takes. On an HTTP/2 stream it is handed over in pieces.
    pub(super) struct AnswerBody {
        #[pin]
        body: Body,
        // Given to the bytes of a body of known length; held by this body otherwise.
        held: Option<Held>,
        rest: Bytes,
        stream: Option<(WaitsSince, Arc<Untaken>)>,
        is_one_piece: bool,
    }
}

impl AnswerBody {
    /// A body that takes next to no memory.
    pub(super) fn unheld(body: Body) -> AnswerBody {
        AnswerBody { body, held: None, rest: Bytes::new(), stream: None, is_one_piece: true }
    }
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.project();
        if let Some((waits, untaken)) = this.stream {
            waits.end();
            untaken.taken.fetch_add(1, Ordering::Relaxed);
        }
        if this.rest.is_empty() {
            let has_known_length = this.body.size_hint().exact().is_some();
            match ready!(this.body.poll_frame(context)) {
                Some(Ok(frame)) => match (frame.into_data(), this.held.take_if(|_| has_known_length)) {
                    (Ok(data), Some(held)) => *this.rest = held.attach_to(data),
                    (Ok(data), None) => *this.rest = data,
                    (Err(frame), _) => return Poll::Ready(Some(Ok(frame))),
                },
                other => return Poll::Ready(other),
            }
        }
        let piece = match this.stream {
            Some((waits, _)) if !*this.is_one_piece => {
                waits.begin();
                this.rest.split_to(PIECE.min(this.rest.len()))
            }
            _ => std::mem::take(this.rest),
        };
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    /// On an HTTP/2 stream, a body of several pieces never says that it has ended, so that hyper asks for the end: that shows
    /// that the client has taken the last piece.
    fn is_end_stream(&self) -> bool {
        (self.stream.is_none() || self.is_one_piece) && self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (mut hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

/// What is returned when the client has taken an answer.
struct Held {
    _request: Option<Reservation>,
    _answer: Option<Reservation>,
    _of_token: Option<Permit>,
    untaken: Option<Arc<Untaken>>,
}

impl Held {
    fn new(
        request: Option<Reservation>,
        answer: Option<Reservation>,
        of_token: Option<Permit>,
        untaken: Option<Arc<Untaken>>,
    ) -> Held {
        if let Some(untaken) = &untaken {
            untaken.answers.fetch_add(1, Ordering::Relaxed);
        }
        Held { _request: request, _answer: answer, _of_token: of_token, untaken }
    }

    /// Bytes that hold this until their last slice is dropped, wherever hyper keeps them.
    fn attach_to(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(HeldBytes { bytes, _held: self })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(untaken) = &self.untaken {
            untaken.answers.fetch_sub(1, Ordering::Relaxed);
            untaken.taken.fetch_add(1, Ordering::Relaxed);
        }
    }
}

struct HeldBytes {
    bytes: Bytes,
    _held: Held,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
