//! The simulator: the real engine, shard and store in one thread, driven by a seed through crashes and faults, and
//! compared with an independent, naive model.
//!
//! Everything random comes from the seed, so one command replays a failing seed. The model must stay naive: it computes
//! every answer from the whole history, and must never share anything with the engine except the types of requests and
//! outcomes.

pub mod followers;
#[allow(clippy::too_many_lines, reason = "the model is naive: a command may be one long list of cases")]
pub mod model;
pub mod ownership;
pub mod parts;
pub mod random;
pub mod workload;
pub mod world;
