//! The simulator's tests. They are one program, because each further one would be compiled and linked with all dependencies.

mod decisions;
mod events;
mod harness;
mod limiter;
mod locks;
mod ownership;
mod seeds;
mod waiting;
