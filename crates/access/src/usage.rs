//! How much a token uses at once, and how much it may use.

use limina_engine::Name;
use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// A resource of which a token may use only a limited amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// Open connections.
    Connections,
    /// Bytes of requests without an answer.
    InFlightBytes,
    /// Followed streams: of server-sent events, and subscriptions over STOMP.
    Streams,
    /// Requests that wait for something.
    Waits,
    /// Followed streams of refusals. Each of them is also one of [`Resource::Streams`].
    RefusalStreams,
}

const RESOURCES: usize = 5;

/// The most streams of refusals that a token follows at once, if its entry in the file does not say how many. Each reserves memory that
/// all followers share, and an operator needs only a few.
const DEFAULT_REFUSAL_STREAMS: u64 = 16;

/// The most that a token may use. `None` means no limit besides those of the server, except for streams of refusals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Maxima {
    /// The most connections that are open at once.
    pub connections: Option<u64>,
    /// The most bytes of requests and answers at once.
    pub in_flight_bytes: Option<u64>,
    /// The most streams that are followed at once.
    pub streams: Option<u64>,
    /// The most requests that wait at once.
    pub waits: Option<u64>,
    /// The most streams of refusals that are followed at once. `None` means 16.
    pub refusal_streams: Option<u64>,
    /// The most namespaces that exist in which the token may use something.
    pub namespaces: Option<u64>,
}

impl Maxima {
    fn of(&self, resource: Resource) -> u64 {
        let max = match resource {
            Resource::Connections => self.connections,
            Resource::InFlightBytes => self.in_flight_bytes,
            Resource::Streams => self.streams,
            Resource::Waits => self.waits,
            Resource::RefusalStreams => Some(self.refusal_streams.unwrap_or(DEFAULT_REFUSAL_STREAMS)),
        };
        max.unwrap_or(u64::MAX)
    }
}

/// The token uses as much as it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the token has its maximum of {limit}")]
pub struct Exceeded {
    /// The most that it may use.
    pub limit: u64,
}

/// The present usage of one token. It survives a change of the file.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    used: [AtomicU64; RESOURCES],
    /// Namespaces that the token may use, because they existed or there was room for them.
    namespaces: Mutex<HashSet<Name>>,
}

impl Usage {
    pub(crate) fn take(
        self: &Arc<Usage>,
        maxima: &Maxima,
        resource: Resource,
        amount: u64,
    ) -> Result<Permit, Exceeded> {
        let used = &self.used[resource as usize];
        let limit = maxima.of(resource);
        if used.fetch_add(amount, Ordering::Relaxed).saturating_add(amount) > limit {
            used.fetch_sub(amount, Ordering::Relaxed);
            return Err(Exceeded { limit });
        }
        Ok(Permit { usage: self.clone(), resource, amount, limit })
    }

    pub(crate) fn knows_namespace(&self, name: &Name) -> bool {
        self.namespaces().contains(name)
    }

    /// Remembers which namespaces exist, and admits one more if there is room.
    pub(crate) fn admit_namespace(
        &self,
        existing: HashSet<Name>,
        wanted: &Name,
        limit: u64,
    ) -> Result<(), Exceeded> {
        let mut namespaces = self.namespaces();
        *namespaces = existing;
        if !namespaces.contains(wanted) {
            if namespaces.len() as u64 >= limit {
                return Err(Exceeded { limit });
            }
            namespaces.insert(wanted.clone());
        }
        Ok(())
    }

    fn namespaces(&self) -> MutexGuard<'_, HashSet<Name>> {
        self.namespaces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Something that a token uses. Dropping it gives it back.
#[derive(Debug)]
pub struct Permit {
    usage: Arc<Usage>,
    resource: Resource,
    amount: u64,
    limit: u64,
}

impl Permit {
    /// Increases the amount to this total. Does nothing if the amount is as large already. If it fails, the amount
    /// stays.
    pub fn grow_to(&mut self, total: u64) -> Result<(), Exceeded> {
        let Some(more) = total.checked_sub(self.amount).filter(|more| *more > 0) else { return Ok(()) };
        let used = &self.usage.used[self.resource as usize];
        if used.fetch_add(more, Ordering::Relaxed).saturating_add(more) > self.limit {
            used.fetch_sub(more, Ordering::Relaxed);
            return Err(Exceeded { limit: self.limit });
        }
        self.amount = total;
        Ok(())
    }

    pub(crate) fn is_of(&self, usage: &Arc<Usage>) -> bool {
        Arc::ptr_eq(&self.usage, usage)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.usage.used[self.resource as usize].fetch_sub(self.amount, Ordering::Relaxed);
    }
}
