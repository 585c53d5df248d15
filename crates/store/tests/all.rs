//! The stores' tests. They are one program, because each further one would be compiled and linked with all dependencies.

mod conformance;
mod damage;
mod database;
mod embedded;
mod faults;
mod parts;
mod postgres;
mod segmented;
mod shard_store;
mod table_faults;
