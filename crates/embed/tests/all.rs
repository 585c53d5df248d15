//! The library's tests. They are one program, because each further one would be compiled and linked with all dependencies.

#[cfg(feature = "embedded")]
mod examples;
mod families;
#[cfg(feature = "embedded")]
mod instances;
#[cfg(feature = "postgres")]
mod postgres;
