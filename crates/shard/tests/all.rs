//! The shard's tests. They are one program, because each further one would be compiled and linked with all dependencies.

mod batch_bytes;
mod due;
mod harness;
mod serving;
mod slices;
mod turns;
