//! The one error type of this crate.

use std::error::Error;

/// An error that ends the program. It is printed; no code distinguishes its causes.
pub(crate) type Failed = Box<dyn Error + Send + Sync>;
