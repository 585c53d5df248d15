//! A client of server-sent events.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::harness::{DEADLINE, Server};
use crate::stomp::Push;

pub(crate) struct Sse {
    reader: BufReader<TcpStream>,
    text: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sent {
    pub(crate) id: Option<String>,
    pub(crate) data: String,
}

impl Sent {
    /// The message of the event. Its clock must be the event's id.
    #[track_caller]
    pub(crate) fn push(&self) -> Push {
        let push = Push::of(&self.data);
        assert_eq!(self.id.as_deref(), Some(push.clock().to_string().as_str()), "`id` = clock: {self:?}");
        push
    }
}

impl Sse {
    /// Opens a stream that exists. `last` is the header `Last-Event-ID`.
    #[track_caller]
    pub(crate) fn open(server: &Server, path: &str, last: Option<&str>) -> Sse {
        let (head, sse) = Sse::ask(server.address(), path, last).expect("an answer");
        assert!(head.starts_with("http/1.1 200"), "{head}");
        assert!(head.contains("content-type: text/event-stream"), "{head}");
        assert!(head.contains("transfer-encoding: chunked"), "the length cannot be known: {head}");
        sse
    }

    /// Sends the request. Returns the head of the answer in lower case, and the events after it.
    pub(crate) fn ask(address: SocketAddr, path: &str, last: Option<&str>) -> std::io::Result<(String, Sse)> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        let last = last.map(|last| format!("Last-Event-ID: {last}\r\n")).unwrap_or_default();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{last}\r\n");
        (&stream).write_all(request.as_bytes())?;
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        Ok((head.to_ascii_lowercase(), Sse { reader, text: Vec::new() }))
    }

    /// The next event. `None` after the end of the stream.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Option<Sent> {
        loop {
            if let Some(end) = self.text.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.text.drain(..end + 2).collect();
                let block = String::from_utf8(block).expect("UTF-8");
                match parse(&block) {
                    Some(sent) => return Some(sent),
                    None => continue,
                }
            }
            if !self.chunk() {
                return None;
            }
        }
    }

    #[track_caller]
    pub(crate) fn push(&mut self) -> Push {
        self.next().expect("the stream ended").push()
    }

    /// Reads the next chunk. Returns false at the end.
    #[track_caller]
    fn chunk(&mut self) -> bool {
        let mut size = String::new();
        match self.reader.read_line(&mut size) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::ConnectionReset => return false,
            Err(e) => panic!("nothing came: {e}"),
        }
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or_else(|_| panic!("a size? {size:?}"));
        let mut chunk = vec![0; size + 2];
        if self.reader.read_exact(&mut chunk).is_err() {
            return false;
        }
        self.text.extend(&chunk[..size]);
        size != 0
    }
}

/// Parses an event. `None` if the block contains only comments.
fn parse(block: &str) -> Option<Sent> {
    let field = |name: &str| {
        let mut values = block.lines().filter_map(|line| {
            let (found, value) = line.split_once(':')?;
            (found == name).then(|| value.strip_prefix(' ').unwrap_or(value))
        });
        let first = values.next()?;
        Some(values.fold(first.to_owned(), |all, next| all + "\n" + next))
    };
    Some(Sent { id: field("id"), data: field("data")? })
}
