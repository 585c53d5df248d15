//! Liminator's Thrift interface: its clients change an address, and speak with the ledger.
//!
//! `binary` reads and writes Thrift's binary protocol, `messages` knows Liminator's functions. Both work on bytes in memory
//! and know neither HTTP nor the engine. The HTTP call is in `http/liminator.rs`.
//!
//! The protocol is written here and not taken from the crate `thrift`: that one trusts the lengths that it reads, and what
//! Liminator needs of it is small.

pub(crate) mod binary;
pub(crate) mod messages;

#[cfg(test)]
mod tests;
