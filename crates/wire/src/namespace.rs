//! Namespaces, as they are listed.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A namespace: everything in it has one order, nothing in it is shared with another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Namespace {
    /// Its name.
    pub namespace: String,
    /// The position of its last change.
    pub position: u64,
}
