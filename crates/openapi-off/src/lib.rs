//! Stands in for utoipa where the feature `openapi` is off: the attributes that describe the API for its reference are read
//! and dropped.
//!
//! utoipa is most of what the wire types compile, and only `cargo xtask openapi` and the tests need what it makes:
//! the server serves `docs/openapi.json`, which is checked in.

use proc_macro::TokenStream;

/// In the place of `utoipa::ToSchema`: makes nothing.
#[proc_macro_derive(ToSchema, attributes(schema))]
pub fn to_schema(_item: TokenStream) -> TokenStream {
    TokenStream::new()
}

/// In the place of `utoipa::path`: leaves the handler as it is.
#[proc_macro_attribute]
pub fn path(_description: TokenStream, handler: TokenStream) -> TokenStream {
    handler
}
