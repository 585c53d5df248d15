//! HTTP/1.1 by hand, for what a well-behaved client would never send.

use crate::Failed;
use serde_json::Value;
use std::{net::SocketAddr, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

/// No answer takes this long. The deadline turns a hang into a failure.
const DEADLINE: Duration = Duration::from_secs(120);
/// The receive buffer of a client that does not read: the smallest that the system allows, so that the answer stays with the
/// server.
const STALLED_BUFFER: u32 = 4096;

/// The parts of an answer that scenarios look at.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<u64>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The beginning of the body, for messages.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).chars().take(300).collect()
    }

    pub(crate) fn json(&self) -> Result<Value, Failed> {
        Ok(serde_json::from_slice(&self.body)?)
    }

    /// The answer, unless its status is not the expected one.
    pub(crate) fn expect(self, status: u16) -> Result<Answer, Failed> {
        match self.status == status {
            true => Ok(self),
            false => Err(format!("expected {status}, got {}: {}", self.status, self.text()).into()),
        }
    }
}

/// The bytes of a request with a JSON body. `headers` each end with CR LF.
pub(crate) fn request(method: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = head(method, path, headers, body.len()).into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// The head of a request that announces a body of this length.
pub(crate) fn head(method: &str, path: &str, headers: &str, length: usize) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{headers}Content-Length: {length}\r\n\r\n"
    )
}

/// The head of an answer.
pub(crate) struct Head {
    pub(crate) status: u16,
    retry_after: Option<u64>,
    /// Length of the head itself, with the empty line.
    pub(crate) length: usize,
    body: Body,
}

enum Body {
    Length(usize),
    Chunks,
}

impl Head {
    /// Parses the head if all of it has arrived.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Head>, Failed> {
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
        let text = str::from_utf8(&bytes[..end])?;
        let mut lines = text.split("\r\n");
        let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.")?.get(2..5));
        let status: u16 = status.ok_or("not an answer in HTTP/1.1")?.parse()?;
        let mut head = Head { status, retry_after: None, length: end + 4, body: Body::Length(0) };
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                head.body = Body::Length(value.parse()?);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                head.body = Body::Chunks;
            } else if name.eq_ignore_ascii_case("retry-after") {
                head.retry_after = value.parse().ok();
            }
        }
        Ok(Some(head))
    }

    /// The whole answer and its length, if all of it has arrived.
    pub(crate) fn complete(&self, bytes: &[u8]) -> Option<(Answer, usize)> {
        let (body, end) = match self.body {
            Body::Length(length) => {
                let end = self.length + length;
                (bytes.get(self.length..end)?.to_vec(), end)
            }
            Body::Chunks => chunks(bytes, self.length)?,
        };
        Some((Answer { status: self.status, retry_after: self.retry_after, body }, end))
    }
}

/// The body in chunks that begins at `at`, and its end.
fn chunks(bytes: &[u8], mut at: usize) -> Option<(Vec<u8>, usize)> {
    let mut body = Vec::new();
    loop {
        let line = bytes[at..].windows(2).position(|window| window == b"\r\n")?;
        let size = str::from_utf8(&bytes[at..at + line]).ok()?.split(';').next()?;
        let size = usize::from_str_radix(size.trim(), 16).ok()?;
        let begin = at + line + 2;
        body.extend_from_slice(bytes.get(begin..begin + size)?);
        at = begin + size + 2;
        if size == 0 {
            return (bytes.len() >= at).then_some((body, at));
        }
    }
}

/// One connection.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    received: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Result<Connection, Failed> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, received: Vec::new() })
    }

    /// A connection of a client that does not intend to read.
    pub(crate) async fn open_stalled(address: SocketAddr) -> Result<Connection, Failed> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(STALLED_BUFFER)?;
        let stream = socket.connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, received: Vec::new() })
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Result<(), Failed> {
        Ok(self.stream.write_all(bytes).await?)
    }

    /// The next answer.
    pub(crate) async fn answer(&mut self) -> Result<Answer, Failed> {
        timeout(DEADLINE, self.read_answer()).await.map_err(|_| "no answer within two minutes")?
    }

    async fn read_answer(&mut self) -> Result<Answer, Failed> {
        let head = self.head().await?;
        loop {
            if let Some((answer, end)) = head.complete(&self.received) {
                self.received.drain(..end);
                return Ok(answer);
            }
            self.read().await?;
        }
    }

    /// The head of the next answer. It stays in front of what has been received.
    async fn head(&mut self) -> Result<Head, Failed> {
        loop {
            if let Some(head) = Head::parse(&self.received)? {
                return Ok(head);
            }
            self.read().await?;
        }
    }

    /// Reads the head of the next answer and leaves its body to the server.
    pub(crate) async fn read_head_only(&mut self) -> Result<u16, Failed> {
        let head = timeout(DEADLINE, self.head()).await.map_err(|_| "no answer within two minutes")??;
        Ok(head.status)
    }

    async fn read(&mut self) -> Result<(), Failed> {
        self.received.reserve(64 << 10);
        match self.stream.read_buf(&mut self.received).await? {
            0 => Err("the server closed the connection".into()),
            _ => Ok(()),
        }
    }

    pub(crate) async fn exchange(&mut self, request: &[u8]) -> Result<Answer, Failed> {
        self.send(request).await?;
        self.answer().await
    }

    /// Sends bytes that are not a whole request. Returns the answer if the server answers before it has received all of them.
    pub(crate) async fn send_unfinished(&mut self, bytes: &[u8]) -> Result<Option<Answer>, Failed> {
        let (mut reading, mut writing) = self.stream.split();
        let received = &mut self.received;
        let sent = tokio::select! {
            sent = writing.write_all(bytes) => sent.is_ok(),
            _answered = reading.read_buf(received) => false,
        };
        match sent {
            true => Ok(None),
            false => self.answer().await.map(Some),
        }
    }
}

/// One request on a connection of its own.
pub(crate) async fn ask(
    address: SocketAddr,
    method: &str,
    path: &str,
    body: &[u8],
) -> Result<Answer, Failed> {
    Connection::open(address).await?.exchange(&request(method, path, "", body)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_understood() {
        #[track_caller]
        fn check(bytes: &str, expect: Option<(u16, &str, usize)>) {
            let head = Head::parse(bytes.as_bytes()).unwrap();
            let answer = head.and_then(|head| head.complete(bytes.as_bytes()));
            let found = answer.map(|(answer, end)| (answer.status, answer.text(), end));
            assert_eq!(found, expect.map(|(status, body, end)| (status, body.to_owned(), end)));
        }
        check("HTTP/1.1 204 No Content\r\n\r\nmore", Some((204, "", 27)));
        check("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcd", Some((200, "abc", 41)));
        check("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", None);
        check(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
            Some((200, "abc", 65)),
        );
        check("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\n", None);
        check("HTTP/1.1 200", None);
    }
}
