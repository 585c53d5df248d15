//! Locks as the contract tells them: who may have what and when, and what a crash, a stop or a client that is gone
//! changes about it.

mod calls;
mod crashes;
mod crowds;
mod errors;
mod hang_ups;
mod idempotency;
mod leases;
mod lists;
mod modes;
mod namespaces;
mod philosophers;
mod queries;
mod queues;
mod sets;
mod stops;
mod tokens;
mod waits;
