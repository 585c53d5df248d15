//! The command line: transcripts of every command against a real server, and programs that run under a lock.

mod holding;
mod lists;
mod transcripts;
