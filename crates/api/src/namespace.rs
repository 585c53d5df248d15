//! The list of namespaces.

use alloc::string::String;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A namespace: everything in it has one order, and nothing is shared with another namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Namespace {
    /// The name of the namespace.
    pub namespace: String,
    /// The position of the last change. Positions grow with every change of the namespace.
    pub position: u64,
}
