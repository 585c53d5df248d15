//! What only a store over PostgreSQL can show: its schema, what it waits for, and how its connections are lost.

#[path = "../database/mod.rs"]
mod database;
mod encryption;
mod losses;
mod opening;
mod records;
mod refusals;
mod waits;
