//! The engine's tests from outside. They are one program, because each further one would be compiled and linked with all dependencies.

#![allow(clippy::too_many_lines, reason = "a test may be one long list of cases")]

mod answers;
mod bytes;
mod decisions;
mod limits;
mod refusals;
mod scenarios;
mod time;
