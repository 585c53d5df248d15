//! The tests of the front ends. They are one program, because each further one would be compiled and linked with all dependencies.

mod http;
mod openapi;
mod peers;
