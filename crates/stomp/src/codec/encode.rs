//! Encodes frames into bytes.

use super::CONTENT_LENGTH;
use super::escape::escape;
use super::frame::{Command, Frame, Version};
use bytes::{BufMut, Bytes, BytesMut};
use core::fmt::Write;

impl Frame {
    /// Encodes the frame for `version`, with `content-length` if the command may have a body.
    ///
    /// Characters that the version cannot express become a space: a NUL in a header, and an end of line that has no
    /// escape in that version.
    pub fn encode(&self, version: Version) -> Bytes {
        let mut out = BytesMut::new();
        write_frame(&mut out, version, self.command, self.headers.iter(), &self.body);
        out.freeze()
    }
}

pub(crate) fn write_frame<'a>(
    out: &mut BytesMut,
    version: Version,
    command: Command,
    headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    body: &[u8],
) {
    debug_assert!(body.is_empty() || command.has_body(), "{command:?} has no body");
    out.put_slice(command.as_str().as_bytes());
    out.put_u8(b'\n');
    for (name, value) in headers.into_iter().filter(|(name, _)| *name != CONTENT_LENGTH) {
        write_header(out, version, command, name, value);
    }
    if command.has_body() {
        write_content_length(out, body.len());
    }
    out.put_u8(b'\n');
    out.put_slice(body);
    out.put_u8(0);
}

pub(crate) fn write_header(out: &mut BytesMut, version: Version, command: Command, name: &str, value: &str) {
    let escapes = Some(version).filter(|_| command.is_escaped(version));
    escape(name, escapes, out);
    out.put_u8(b':');
    escape(value, escapes, out);
    out.put_u8(b'\n');
}

pub(super) fn write_content_length(out: &mut BytesMut, length: usize) {
    writeln!(out, "{CONTENT_LENGTH}:{length}").expect("a buffer that grows takes everything");
}
