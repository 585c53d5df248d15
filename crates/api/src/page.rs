//! Pages of lists.

use alloc::{
    string::{String, ToString},
    vec::Vec,
};
use core::fmt;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    /// The items, in the list's order.
    pub items: Vec<T>,
    /// The `after` of the next page; `null` if this is the last page.
    #[schema(required)]
    pub next: Option<String>,
}

/// A page that was found. It may be short, or even empty, although there are more items.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Listed<T, C> {
    /// The items that were found.
    pub items: Vec<T>,
    /// The cursor behind which the next page begins. None means that there are no more items.
    pub next: Option<C>,
}

impl<T, C: fmt::Display> From<Listed<T, C>> for Page<T> {
    fn from(listed: Listed<T, C>) -> Page<T> {
        Page { items: listed.items, next: listed.next.map(|next| next.to_string()) }
    }
}
