//! The simulator: engine, shard and store in one thread, driven by a seed through crashes and faults, and held
//! against an independent, naive model.
//!
//! Everything random comes from the seed, so a failing seed is replayed by one command. The model must stay naive: it
//! adds up the whole history for every answer, and shares nothing with the engine but the types of requests and
//! outcomes.

pub mod followers;
pub mod model;
pub mod ownership;
pub mod random;
pub mod workload;
pub mod world;
