//! The latest refusals of this node: what was refused, in which namespace, by which rule or limit.
//!
//! The ring is filled whether or not anyone listens, so that an operator who comes after the trouble has begun still sees it. A
//! refusal is recorded by the node that its client has asked, so that each is recorded once, whichever node owns the shard.
//! Everything here is best effort: the ring is not stored, and a listener that is slower than the refusals misses some.

mod listener;
mod recording;
#[cfg(test)]
mod tests;

pub use listener::{ListeningEnded, RefusalListener, RefusalNews};
pub(crate) use recording::RefusalSubject;

use limina_engine::{KeyValues, Name};
use serde::{Deserialize, Serialize};
use std::{
    borrow::Cow,
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::Notify;

/// The most refusals in the ring.
pub const RING_SIZE: usize = 1_000;
/// The most bytes in the ring. Key-values may be long, so the ring then has fewer refusals.
const RING_BYTES: usize = 4 << 20;
/// The most bytes of a page, unless its only refusal is larger.
const PAGE_BYTES: usize = 32 << 10;
/// What a refusal takes without its key-values.
const REFUSAL_BYTES: usize = size_of::<RefusedRequest>() + 64;

/// A request, or an item of a batch, that was refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RefusedRequest {
    /// The time, in milliseconds since the epoch.
    pub time: u64,
    /// The namespace of the request.
    pub namespace: Name,
    /// The family of the request: `limiter`, `locks`, `events` or `ledger`.
    pub family: Cow<'static, str>,
    /// The error code, as in problem documents.
    pub code: Cow<'static, str>,
    /// The first rule that refused the request.
    pub rule: Option<Name>,
    /// The first limit of the ledger that refused the request.
    pub limit_name: Option<Name>,
    /// The stream that refused the event.
    pub stream: Option<Name>,
    /// The group of the rule, or the lock.
    pub key_values: Option<KeyValues>,
    /// The operation of the ledger.
    pub operation_id: Option<Name>,
}

impl RefusedRequest {
    fn about(self, operation_id: &Name) -> RefusedRequest {
        RefusedRequest { operation_id: Some(operation_id.clone()), ..self }
    }

    fn bytes(&self) -> usize {
        REFUSAL_BYTES + self.key_values.as_ref().map_or(0, KeyValues::encoded_bytes)
    }
}

/// Which refusals another node wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusalsRequest {
    /// The `next` of the previous page, which is never 0. 0 asks for everything in the ring.
    pub after: u64,
    /// Only refusals in this namespace.
    pub namespace: Option<Name>,
}

/// A part of the ring, the oldest refusal first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RefusalsPage {
    /// The refusals.
    pub items: Vec<RefusedRequest>,
    /// The `after` of the next page.
    pub next: u64,
    /// How many refusals had left the ring before they could be read.
    pub missed: u64,
}

/// The ring of a node.
#[derive(Default)]
pub(crate) struct Refusals {
    ring: Mutex<Ring>,
    news: Notify,
    is_stopping: AtomicBool,
}

#[derive(Default)]
struct Ring {
    items: VecDeque<RefusedRequest>,
    /// How many refusals there were before the first one in the ring.
    dropped: u64,
    bytes: usize,
}

impl Refusals {
    fn push(&self, refused: RefusedRequest) {
        self.lock().push(refused);
    }

    /// The next refusals behind `after`, as many as fit into a page.
    pub(crate) fn page(&self, request: &RefusalsRequest) -> RefusalsPage {
        self.lock().page(request)
    }

    /// The listeners end.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.news.notify_waiters();
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    fn push(&mut self, refused: RefusedRequest) {
        self.bytes += refused.bytes();
        self.items.push_back(refused);
        while self.items.len() > RING_SIZE || (self.bytes > RING_BYTES && self.items.len() > 1) {
            if let Some(dropped) = self.items.pop_front() {
                self.bytes -= dropped.bytes();
                self.dropped += 1;
            }
        }
    }

    fn page(&self, request: &RefusalsRequest) -> RefusalsPage {
        let RefusalsRequest { after, namespace } = request;
        let end = self.dropped + self.items.len() as u64;
        // A listener that asks for the whole ring has missed nothing. A number beyond the end belongs to another ring: the node
        // has started again.
        let seen = after.checked_sub(1).filter(|seen| *seen <= end).unwrap_or(self.dropped);
        let missed = self.dropped.saturating_sub(seen);
        let skipped = usize::try_from(seen.saturating_sub(self.dropped)).unwrap_or(usize::MAX);
        let mut page = RefusalsPage { items: Vec::new(), next: end + 1, missed };
        let mut bytes = 0;
        for (index, refused) in self.items.iter().enumerate().skip(skipped) {
            if namespace.as_ref().is_some_and(|namespace| *namespace != refused.namespace) {
                continue;
            }
            bytes += refused.bytes();
            if bytes > PAGE_BYTES && !page.items.is_empty() {
                page.next = self.dropped + index as u64 + 1;
                return page;
            }
            page.items.push(refused.clone());
        }
        page
    }
}
