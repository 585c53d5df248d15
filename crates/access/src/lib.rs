//! Access control: tokens, the rights that a token has, and the file from which tokens come.
//!
//! Every front end asks this crate: which token does the client present ([`Access::find`]), and does the token have the right
//! that the request needs ([`Token::allows`]). The crate knows no protocol and reads no file: a front end passes the bytes that
//! a client sent, and the binary passes the text of the file. It holds SHA-256 hashes of tokens, and never a token.

mod access;
mod file;
mod pattern;
mod right;
mod secret;
mod time;
mod token;
mod usage;

pub use access::Access;
pub use file::{Problem, parse};
pub use right::{Family, InvalidRight, Level, Need, Right};
pub use secret::{Hash, NoRandomNumbers, Secret};
pub use token::{Token, Tokens};
pub use usage::{Exceeded, Maxima, Permit, Resource};
