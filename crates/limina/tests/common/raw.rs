//! HTTP/1.1 written by hand, for requests that no correct client would send.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::harness::DEADLINE;
use crate::reply::Reply;

pub(crate) struct Connection {
    reader: BufReader<TcpStream>,
}

/// Shuts the connection down instead of only closing the socket. A process that another test is starting has a copy of
/// the socket until it executes its own program, and the server sees no hang-up while a copy exists.
impl Drop for Connection {
    fn drop(&mut self) {
        let _already_closed = self.reader.get_ref().shutdown(Shutdown::Both);
    }
}

impl Connection {
    #[track_caller]
    pub(crate) fn open(address: SocketAddr) -> Connection {
        let stream = TcpStream::connect(address).expect("connect");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        stream.set_write_timeout(Some(DEADLINE)).expect("a timeout");
        Connection { reader: BufReader::new(stream) }
    }

    #[track_caller]
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.reader.get_mut().write_all(bytes.as_ref()).expect("send");
    }

    /// Sends from another thread, and ignores that the server may close the connection before it has read everything.
    pub(crate) fn send_aside(&self, bytes: Vec<u8>) -> std::thread::JoinHandle<()> {
        let mut stream = self.reader.get_ref().try_clone().expect("clone a socket");
        std::thread::spawn(move || {
            let _ = stream.write_all(&bytes);
        })
    }

    /// Reads one answer, which may be an interim one (1xx).
    #[track_caller]
    pub(crate) fn receive(&mut self) -> Reply {
        let line = self.line();
        let status = line.split(' ').nth(1).and_then(|word| word.parse().ok());
        let Some(status) = status else { panic!("not a status line: {line:?}") };
        let headers = self.headers();
        let length =
            headers.get("content-length").map(|value| value.to_str().unwrap().parse::<usize>().unwrap());
        let body = match length {
            _ if status < 200 || status == 204 || status == 304 => Vec::new(),
            Some(length) => self.bytes(length),
            None if headers.get("transfer-encoding").is_some() => self.chunks(),
            None => {
                let mut rest = Vec::new();
                self.reader.read_to_end(&mut rest).expect("the body");
                rest
            }
        };
        Reply::of(status, headers, String::from_utf8_lossy(&body).into_owned())
    }

    /// Requires that the server closes the connection without sending anything else.
    #[track_caller]
    pub(crate) fn expect_end(&mut self) {
        let mut rest = Vec::new();
        match self.reader.read_to_end(&mut rest) {
            Ok(_) => assert!(rest.is_empty(), "said more: {:?}", String::from_utf8_lossy(&rest)),
            Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset, "{e}"),
        }
    }

    #[track_caller]
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("a line");
        assert!(line.ends_with("\r\n"), "the connection ended: {line:?}");
        line.truncate(line.len() - 2);
        line
    }

    #[track_caller]
    fn headers(&mut self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        loop {
            let line = self.line();
            if line.is_empty() {
                return headers;
            }
            let (name, value) = line.split_once(':').expect("a header");
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a header's name");
            headers.append(name, HeaderValue::from_str(value.trim()).expect("a header's value"));
        }
    }

    #[track_caller]
    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body).expect("the body");
        body
    }

    #[track_caller]
    fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let line = self.line();
            let length =
                usize::from_str_radix(line.split(';').next().unwrap().trim(), 16).expect("a chunk's size");
            body.extend(self.bytes(length));
            self.line();
            if length == 0 {
                return body;
            }
        }
    }
}

/// A request with `Host` and `Content-Length`. `headers` are further headers, each of which ends in CR LF.
pub(crate) fn request(method: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n{headers}\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// Sends one request on its own connection.
#[track_caller]
pub(crate) fn ask(address: SocketAddr, bytes: Vec<u8>) -> Reply {
    let mut connection = Connection::open(address);
    let sender = connection.send_aside(bytes);
    let reply = connection.receive();
    // Ends a sender that is still sending, because nothing reads from its connection any more.
    let _ = connection.reader.get_ref().shutdown(std::net::Shutdown::Both);
    sender.join().expect("the sender");
    reply
}
