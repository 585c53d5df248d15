//! The tests of codec and session. They are one program, because each further one would be compiled and linked with all dependencies.

mod codec;
mod codec_properties;
mod heart_beats;
mod session;
mod session_properties;
