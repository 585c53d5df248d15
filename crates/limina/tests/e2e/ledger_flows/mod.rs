//! The ledger over HTTP, and what needs a real process. The semantics are tested by the scripts in
//! `crates/engine/tests/testdata/ledger`.

mod batches;
mod calls;
mod expiry;
mod liminator;
mod namespaces;
