//! The error of everything here.

use std::error::Error;

/// An error that ends the program. It is printed; no code distinguishes its causes.
pub(crate) type Failed = Box<dyn Error + Send + Sync>;
