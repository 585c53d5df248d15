//! Frames, and their encoding as bytes.

mod decode;
mod encode;
mod escape;
mod frame;
mod payload;

pub use decode::{Decoded, Decoder, FrameError, Limits};
pub use frame::{Command, Frame, Headers, Version};
pub use payload::Payload;

pub(crate) use encode::{write_frame, write_header};

/// The length of the body. It belongs to the framing: the decoder removes this header, and the encoder adds it.
const CONTENT_LENGTH: &str = "content-length";
