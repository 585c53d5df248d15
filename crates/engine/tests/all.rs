//! The engine's tests from outside. They are one program, because each further one would be compiled and linked with all dependencies.

mod answers;
mod bytes;
mod decisions;
mod limits;
mod scenarios;
mod time;
