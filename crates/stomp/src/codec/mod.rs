//! Frames and bytes.

mod decode;
mod encode;
mod escape;
mod frame;
mod payload;

pub use decode::{Decoded, Decoder, FrameError, Limits};
pub use frame::{Command, Frame, Headers, Version};
pub use payload::Payload;

pub(crate) use encode::{write_frame, write_header};

/// Says how long the body is. It belongs to the framing: the decoder takes it out, the encoder puts it in.
const CONTENT_LENGTH: &str = "content-length";
