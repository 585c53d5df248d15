//! The client against the real server, whose binary `LIMINA_BIN` names. Without it, these tests are skipped.

#![allow(clippy::too_many_lines, reason = "a test may be one long list of cases")]

mod calls;
mod client;
mod conformance;
mod examples;
mod https;
mod matching;
mod paths;
mod script;
mod servers;
mod tower_layer;
