//! Decodes bytes into frames incrementally.

use super::CONTENT_LENGTH;
use super::escape::unescape;
use super::frame::{Command, Frame, Headers, Version};
use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

/// The maximum size of a frame. A larger one is rejected at its first excess byte.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a body.
    pub body: usize,
    /// Header lines, including repeated headers.
    pub headers: usize,
    /// Bytes of a header line as sent, without the LF that ends it.
    pub header_line: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { body: 64 * 1024, headers: 32, header_line: 2 * 1024 }
    }
}

/// What the decoder found in the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// A complete frame.
    Frame(Frame),
    /// One or more ends of line between frames; they show that the peer is alive. Ends of line that follow a frame look
    /// the same and mean the same. All that arrive in one piece count as one heart-beat, so that a megabyte of them is
    /// one step of work.
    HeartBeat,
}

/// Why the bytes are not a valid frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the text of each says it")]
pub enum FrameError {
    #[error("the frame does not begin with a command of STOMP")]
    UnknownCommand,
    #[error("the headers are not UTF-8")]
    HeaderNotUtf8,
    #[error("a line of the headers has no colon, or no name before it")]
    HeaderWithoutName,
    #[error("there is a carriage return in the middle of a line")]
    CarriageReturn,
    #[error("the frame ends before an empty line has ended its headers")]
    HeadersNotEnded,
    #[error("a header has an escape that STOMP {0} does not define")]
    UndefinedEscape(Version),
    #[error("content-length is not a number")]
    ContentLengthNotANumber,
    #[error("no NUL stands where content-length says that the body ends")]
    ContentLengthWrong,
    #[error("{} frames have no body", .0.as_str())]
    BodyNotAllowed(Command),
    #[error("a line of the headers is longer than {0} bytes")]
    HeaderLineTooLong(usize),
    #[error("there are more than {0} headers")]
    TooManyHeaders(usize),
    #[error("the body is longer than {0} bytes")]
    BodyTooLong(usize),
}

/// Decodes frames from bytes that arrive in pieces of any size.
///
/// It buffers the incomplete frame, and never more of it than the [`Limits`] allow. The sizes of the pieces do not change
/// the frames that come out, only the number of heart-beats between two of them.
///
/// ```
/// use limina_stomp::{Command, Decoder, Decoded, Limits};
///
/// let mut decoder = Decoder::new(Limits::default());
/// let mut input: &[u8] = b"\nRECEIPT\nreceipt-id:7\n\n\0RECE";
/// assert_eq!(decoder.decode(&mut input), Ok(Some(Decoded::HeartBeat)));
/// let Ok(Some(Decoded::Frame(frame))) = decoder.decode(&mut input) else { panic!("a frame is there") };
/// assert_eq!((frame.command, frame.headers.get("receipt-id")), (Command::Receipt, Some("7")));
/// assert_eq!(decoder.decode(&mut input), Ok(None), "the rest is not a frame yet");
/// assert!(input.is_empty(), "but the decoder has it");
/// ```
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    version: Version,
    state: State,
    /// The line that is being read, as far as it has arrived.
    line: Vec<u8>,
    headers: Headers,
    /// Header lines so far. More than there are headers if some are repeated.
    header_lines: usize,
    content_length: Option<usize>,
    body: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Between frames, or in the first line of one.
    Command,
    Headers(Command),
    Body(Command),
    Failed(FrameError),
}

/// The longest command, and a CR.
const COMMAND_LINE: usize = "UNSUBSCRIBE\r".len();

impl Decoder {
    /// A decoder for the first bytes of a connection. Until [`Decoder::set_version`] is called it decodes 1.0, because
    /// in every version a session is opened in that form.
    pub fn new(limits: Limits) -> Decoder {
        Decoder {
            limits,
            version: Version::V1_0,
            state: State::Command,
            line: Vec::new(),
            headers: Headers::default(),
            header_lines: 0,
            content_length: None,
            body: Vec::new(),
        }
    }

    /// Sets the version of the frames that follow.
    pub fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// Consumes `input` up to the end of one frame or heart-beat, and returns that. `None` means that all input was
    /// consumed, and more is needed.
    ///
    /// An error is final: the beginning of the next frame cannot be known, so every later call returns the same error.
    pub fn decode(&mut self, input: &mut &[u8]) -> Result<Option<Decoded>, FrameError> {
        let result = self.step(input);
        if let Err(error) = &result {
            self.state = State::Failed(*error);
            (self.line, self.body) = Default::default();
        }
        result
    }

    /// The value of a header of the frame that is incomplete or failed, so that an ERROR can name the frame's receipt.
    pub fn partial_header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)
    }

    /// Memory used for lines and body of the incomplete frame, in bytes.
    pub fn buffered(&self) -> usize {
        let headers = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        self.line.capacity() + headers + self.body.capacity()
    }

    fn step(&mut self, input: &mut &[u8]) -> Result<Option<Decoded>, FrameError> {
        loop {
            match self.state {
                State::Failed(error) => return Err(error),
                State::Command => {
                    if self.line.is_empty() && skip_ends_of_line(input) {
                        return Ok(Some(Decoded::HeartBeat));
                    }
                    let Some(line) = self.take_line(input, COMMAND_LINE, FrameError::UnknownCommand)? else {
                        return Ok(None);
                    };
                    if line.is_empty() {
                        return Ok(Some(Decoded::HeartBeat));
                    }
                    let command = Command::from_bytes(&line).ok_or(FrameError::UnknownCommand)?;
                    self.headers = Headers::default();
                    self.header_lines = 0;
                    self.content_length = None;
                    self.state = State::Headers(command);
                }
                State::Headers(command) => {
                    let limit = self.limits.header_line;
                    let Some(line) = self.take_line(input, limit, FrameError::HeaderLineTooLong(limit))?
                    else {
                        return Ok(None);
                    };
                    if !line.is_empty() {
                        self.take_header(command, &line)?;
                    } else if self.content_length.is_some_and(|length| length > self.limits.body) {
                        return Err(FrameError::BodyTooLong(self.limits.body));
                    } else {
                        self.state = State::Body(command);
                    }
                }
                State::Body(command) => {
                    if !self.take_body(input, command)? {
                        return Ok(None);
                    }
                    self.state = State::Command;
                    let (headers, body) = (mem::take(&mut self.headers), mem::take(&mut self.body));
                    return Ok(Some(Decoded::Frame(Frame { command, headers, body: body.into() })));
                }
            }
        }
    }

    /// Consumes one line, and returns it without its end. `None` if its end has not arrived yet.
    fn take_line<'a>(
        &mut self,
        input: &mut &'a [u8],
        limit: usize,
        too_long: FrameError,
    ) -> Result<Option<Cow<'a, [u8]>>, FrameError> {
        let end = input.iter().position(|byte| matches!(byte, b'\n' | 0));
        let (piece, rest) = input.split_at(end.unwrap_or(input.len()));
        if self.line.len() + piece.len() > limit {
            return Err(too_long);
        }
        let Some((end, rest)) = rest.split_first() else {
            self.line.extend_from_slice(piece);
            *input = rest;
            return Ok(None);
        };
        *input = rest;
        if *end == 0 {
            return Err(match self.state {
                State::Headers(_) => FrameError::HeadersNotEnded,
                _ => FrameError::UnknownCommand,
            });
        }
        // Only 1.2 ends lines with CR LF, but in no version does a CR before LF mean anything else.
        let line = match mem::take(&mut self.line) {
            begun if begun.is_empty() => Cow::Borrowed(piece.strip_suffix(b"\r").unwrap_or(piece)),
            mut begun => {
                begun.extend_from_slice(piece);
                begun.pop_if(|last| *last == b'\r');
                Cow::Owned(begun)
            }
        };
        if line.contains(&b'\r') { Err(FrameError::CarriageReturn) } else { Ok(Some(line)) }
    }

    fn take_header(&mut self, command: Command, line: &[u8]) -> Result<(), FrameError> {
        self.header_lines += 1;
        if self.header_lines > self.limits.headers {
            return Err(FrameError::TooManyHeaders(self.limits.headers));
        }
        let line = str::from_utf8(line).map_err(|_| FrameError::HeaderNotUtf8)?;
        // After 1.0 a value should not contain a colon without an escape, but clients send it, and its meaning is
        // clear.
        let (name, value) = line.split_once(':').ok_or(FrameError::HeaderWithoutName)?;
        let plain = |text: &str| -> Result<String, FrameError> {
            if command.is_escaped(self.version) {
                unescape(text, self.version).ok_or(FrameError::UndefinedEscape(self.version))
            } else if self.version == Version::V1_0 {
                Ok(text.trim_matches(' ').into()) // The examples of 1.0 have a space after the colon.
            } else {
                Ok(text.into())
            }
        };
        let (name, value) = (plain(name)?, plain(value)?);
        if name.is_empty() {
            return Err(FrameError::HeaderWithoutName);
        }
        if name != CONTENT_LENGTH {
            self.headers.add(name, value);
        } else if self.content_length.is_none() {
            let digits = value.bytes().all(|byte| byte.is_ascii_digit());
            let length = value.parse().ok().filter(|_| digits);
            self.content_length = Some(length.ok_or(FrameError::ContentLengthNotANumber)?);
        }
        Ok(())
    }

    /// Consumes the available part of the body. Returns whether the body and the NUL after it are complete.
    fn take_body(&mut self, input: &mut &[u8], command: Command) -> Result<bool, FrameError> {
        let length = match self.content_length {
            Some(length) => input.len().min(length - self.body.len()),
            None => input.iter().position(|byte| *byte == 0).unwrap_or(input.len()),
        };
        let (piece, rest) = input.split_at(length);
        if !piece.is_empty() && !command.has_body() {
            return Err(FrameError::BodyNotAllowed(command));
        }
        if self.body.len() + piece.len() > self.limits.body {
            return Err(FrameError::BodyTooLong(self.limits.body));
        }
        self.body.extend_from_slice(piece);
        *input = rest;
        let Some((end, rest)) = rest.split_first() else { return Ok(false) };
        *input = rest;
        if *end == 0 { Ok(true) } else { Err(FrameError::ContentLengthWrong) }
    }
}

/// Consumes all ends of line (LF or CR LF) at the beginning of `input`. Returns whether there were any.
fn skip_ends_of_line(input: &mut &[u8]) -> bool {
    let before = input.len();
    while let [b'\n', rest @ ..] | [b'\r', b'\n', rest @ ..] = *input {
        *input = rest;
    }
    input.len() < before
}
