//! What holds for every call: input that is refused and how, names, durations, pages, bodies, retries.

mod bad_input;
mod bodies;
mod idempotency;
mod names;
mod pages;
mod paths;
mod sizes;
