//! The simulator's tests. They are one program, because each further one would be compiled and linked with all dependencies.

#![allow(clippy::too_many_lines, reason = "a test may be one long list of cases")]

mod decisions;
mod events;
mod harness;
mod limiter;
mod locks;
mod ownership;
mod seeds;
mod waiting;
