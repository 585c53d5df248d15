//! The crate's tests from outside.

mod configurations;
mod json;
mod requests;
