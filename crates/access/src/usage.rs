//! How much a token uses at once, and how much it may use.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// What a token may use only so much of.
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
}

const RESOURCES: usize = 4;

/// The most that a token may use. `None` means no limit besides those of the server.
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

/// What one token uses now. It outlives a change of the file.
#[derive(Debug, Default)]
pub(crate) struct Usage([AtomicU64; RESOURCES]);

impl Usage {
    pub(crate) fn take(
        self: &Arc<Usage>,
        maxima: &Maxima,
        resource: Resource,
        amount: u64,
    ) -> Result<Permit, Exceeded> {
        let used = &self.0[resource as usize];
        let limit = maxima.of(resource);
        if used.fetch_add(amount, Ordering::Relaxed).saturating_add(amount) > limit {
            used.fetch_sub(amount, Ordering::Relaxed);
            return Err(Exceeded { limit });
        }
        Ok(Permit { usage: self.clone(), resource, amount, limit })
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
    /// Takes more, up to this total. Does nothing if it has as much already. Keeps what it has if it fails.
    pub fn grow_to(&mut self, total: u64) -> Result<(), Exceeded> {
        let Some(more) = total.checked_sub(self.amount).filter(|more| *more > 0) else { return Ok(()) };
        let used = &self.usage.0[self.resource as usize];
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
        self.usage.0[self.resource as usize].fetch_sub(self.amount, Ordering::Relaxed);
    }
}
