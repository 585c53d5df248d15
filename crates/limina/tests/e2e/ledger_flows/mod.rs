//! The ledger as its document tells it: limits are made, operations hold, and are committed or rolled back.

mod batches;
mod ceilings;
mod expiry;
mod finalization;
mod holds;
mod limits;
mod lists;
mod namespaces;
mod values;
