//! Heartbeats of locks and of leases.

use crate::Name;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `POST /locks/{lock_id}/heartbeat` and `POST /limiter/leases/{lease_id}/heartbeat`: hold the lock or the lease for its whole
/// ttl from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Heartbeat {
    /// The `session_id` that was granted together with the lock or the lease.
    pub session_id: Name,
}
