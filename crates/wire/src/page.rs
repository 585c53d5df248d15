//! Lists come in pages.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A part of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    /// The items, in the list's order.
    pub items: Vec<T>,
    /// What to give as `after` for the next page; `null` if there is none.
    #[schema(required)]
    pub next: Option<String>,
}
