//! Frames and bytes.

mod decode;
mod encode;
mod escape;
mod frame;

pub use decode::{Decoded, Decoder, FrameError, Limits};
pub use frame::{Command, Frame, Headers, Version};

/// Says how long the body is. It belongs to the framing: the decoder takes it out, the encoder puts it in.
const CONTENT_LENGTH: &str = "content-length";
