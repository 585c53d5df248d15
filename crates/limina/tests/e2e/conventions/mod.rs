//! The rules for all requests: refused input, names, durations, pages, bodies, retries.

mod bad_input;
mod bodies;
mod idempotency;
mod names;
mod pages;
mod paths;
mod sizes;
