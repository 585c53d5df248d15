//! The crate's tests from outside. They are one program, because each further one would be compiled and linked
//! separately.

mod configurations;
mod json;
mod requests;
