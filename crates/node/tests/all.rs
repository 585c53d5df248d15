//! The node's tests over stores in memory. They are one program, because each further one would be compiled and linked with all dependencies.

mod followers;
mod joining;
mod published_metrics;
mod shards;
