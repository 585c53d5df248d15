//! HTTP servers in their own process, and a client for them.
//!
//! Client and server share the processors of one machine, so the client is written by hand to use little processor time.
//! It supports HTTP/1.1 with `Content-Length` only, and parses no more of an answer than it needs.

use crate::{Failed, load::Contender, process::Process};
use memchr::memmem;
use rustix::process::Signal;
use std::{
    ffi::OsStr,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// The program of the server: `limina` in the folder of this program, else this program.
pub(crate) fn server_program() -> Result<PathBuf, Failed> {
    let own = std::env::current_exe()?;
    let limina = own.with_file_name("limina");
    Ok(if limina.is_file() { limina } else { own })
}

/// Limina, or the echo server.
pub(crate) struct Http {
    process: Process,
    address: SocketAddr,
}

impl Http {
    /// Starts Limina with its data in this directory.
    pub(crate) fn limina(program: &Path, directory: &Path) -> Result<Http, Failed> {
        Http::serve(program, &[OsStr::new("--data"), directory.join("data").as_os_str()])
    }

    /// The same with this configuration of Envoy's limits.
    pub(crate) fn with_envoy_limits(program: &Path, directory: &Path, config: &Path) -> Result<Http, Failed> {
        let data = directory.join("data");
        let flags =
            [OsStr::new("--data"), data.as_os_str(), OsStr::new("--envoy-config"), config.as_os_str()];
        Http::serve(program, &flags)
    }

    /// Starts a node of a cluster that shares a database.
    pub(crate) fn node(program: &Path, store: &str, tenure: Duration) -> Result<Http, Failed> {
        let tenure = format!("{}ms", tenure.as_millis());
        let flags = ["--store", store, "--peer-listen", "127.0.0.1:0", "--tenure", &tenure];
        Http::serve(program, &flags.map(OsStr::new))
    }

    fn serve(program: &Path, flags: &[&OsStr]) -> Result<Http, Failed> {
        let mut command = Command::new(program);
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(flags);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("LIMINA_") {
                command.env_remove(name);
            }
        }
        let (process, address) = Process::serving(&mut command)?;
        Ok(Http { process, address })
    }

    /// The address on which the server listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends a signal to the server.
    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Starts the server that only parses and answers.
    pub(crate) fn echo() -> Result<Http, Failed> {
        let (process, address) = Process::serving(Command::new(std::env::current_exe()?).arg("echo"))?;
        Ok(Http { process, address })
    }
}

impl Contender for Http {
    type Client = Connection;

    async fn connect(&self) -> Result<Connection, Failed> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, root: "/v1".into(), json: String::new(), bytes: Vec::new() })
    }

    fn process(&self) -> Option<u32> {
        Some(self.process.id())
    }

    async fn stop(self) -> Result<(), Failed> {
        self.process.stop()
    }
}

/// A connection that is kept open between requests.
pub(crate) struct Connection {
    stream: TcpStream,
    /// The beginning of every path.
    root: String,
    /// The body of the next POST or PUT.
    pub(crate) json: String,
    bytes: Vec<u8>,
}

impl Connection {
    /// Sends all later requests to this namespace.
    pub(crate) fn enter(&mut self, namespace: &str) {
        self.root = format!("/v1/ns/{namespace}");
    }

    /// Sends `json` with POST, and returns status and body of the answer.
    pub(crate) async fn post(&mut self, path: &str) -> Result<(u16, &[u8]), Failed> {
        self.send("POST", path).await
    }

    /// Sends `json` with PUT, and returns status and body of the answer.
    pub(crate) async fn put(&mut self, path: &str) -> Result<(u16, &[u8]), Failed> {
        self.send("PUT", path).await
    }

    async fn send(&mut self, method: &str, path: &str) -> Result<(u16, &[u8]), Failed> {
        let request = request(method, &format!("{}{path}", self.root), &self.json);
        self.exchange(&request).await
    }

    /// Sends GET, and returns status and body of the answer.
    pub(crate) async fn get(&mut self, path: &str) -> Result<(u16, &[u8]), Failed> {
        self.send_empty("GET", path).await
    }

    /// Sends DELETE, and returns status and body of the answer.
    pub(crate) async fn delete(&mut self, path: &str) -> Result<(u16, &[u8]), Failed> {
        self.send_empty("DELETE", path).await
    }

    async fn send_empty(&mut self, method: &str, path: &str) -> Result<(u16, &[u8]), Failed> {
        self.exchange(&format!("{method} {}{path} HTTP/1.1\r\nHost: localhost\r\n\r\n", self.root)).await
    }

    /// Sends a whole request, and returns status and body of the answer.
    pub(crate) async fn exchange(&mut self, request: &str) -> Result<(u16, &[u8]), Failed> {
        self.stream.write_all(request.as_bytes()).await?;
        self.bytes.clear();
        let head = loop {
            self.read().await?;
            if let Some(end) = memmem::find(&self.bytes, b"\r\n\r\n") {
                break Head::parse(&self.bytes[..end])?;
            }
        };
        while self.bytes.len() < head.length + head.body {
            self.read().await?;
        }
        Ok((head.status, &self.bytes[head.length..]))
    }

    /// Sends `json` with POST. Any status other than `expected` is a failure.
    pub(crate) async fn post_expecting(&mut self, path: &str, expected: u16) -> Result<&[u8], Failed> {
        match self.post(path).await? {
            (status, body) if status == expected => Ok(body),
            (status, body) => Err(unexpected(status, body)),
        }
    }

    /// Sends the operations that [`Connection::write_operations`] wrote, and returns how many of them were refused.
    pub(crate) async fn post_operations(&mut self, path: &str, count: usize) -> Result<u64, Failed> {
        if count == 1 {
            let (status, _) = self.post(path).await?;
            return Ok(u64::from(status != 200));
        }
        let body = self.post_expecting(&format!("{path}/batch"), 200).await?;
        let done = memmem::find_iter(body, br#""status":200"#).count();
        Ok((count - done.min(count)) as u64)
    }

    /// Writes a single operation as it is, and several as a batch in this field.
    pub(crate) fn write_operations<T>(
        &mut self,
        field: &str,
        operations: &[T],
        mut write: impl FnMut(&mut String, &T),
    ) {
        self.json.clear();
        if let [operation] = operations {
            return write(&mut self.json, operation);
        }
        self.json.push_str("{\"");
        self.json.push_str(field);
        self.json.push_str("\":[");
        for (index, operation) in operations.iter().enumerate() {
            self.json.push_str(if index > 0 { "," } else { "" });
            write(&mut self.json, operation);
        }
        self.json.push_str("]}");
    }

    async fn read(&mut self) -> Result<(), Failed> {
        self.bytes.reserve(16 << 10);
        match self.stream.read_buf(&mut self.bytes).await? {
            0 => Err("the server closed a connection".into()),
            _ => Ok(()),
        }
    }
}

/// A request with a body, as it is sent.
pub(crate) fn request(method: &str, path: &str, json: &str) -> String {
    let length = json.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{json}"
    )
}

/// The failure of a request that got an answer that it never should.
pub(crate) fn unexpected(status: u16, body: &[u8]) -> Failed {
    format!("{status}: {}", String::from_utf8_lossy(body)).into()
}

/// The status of an answer that has neither a body nor a `Content-Length`.
const NO_CONTENT: u16 = 204;

/// The part of an answer's head that the client needs.
struct Head {
    status: u16,
    /// Length of the head, with the empty line.
    length: usize,
    /// Length of the body.
    body: usize,
}

impl Head {
    fn parse(head: &[u8]) -> Result<Head, Failed> {
        let text = str::from_utf8(head)?;
        let mut lines = text.split("\r\n");
        let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 "));
        let status: u16 =
            status.and_then(|rest| rest.get(..3)).ok_or("not an answer in HTTP/1.1")?.parse()?;
        let body = lines.filter_map(|line| line.split_once(':'));
        let mut body = body.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        let body = match body.next() {
            Some((_, length)) => length.trim().parse()?,
            None if status == NO_CONTENT => 0,
            None => return Err("an answer without Content-Length".into()),
        };
        Ok(Head { status, length: head.len() + 4, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_understood() {
        let head = Head::parse(b"HTTP/1.1 409 Conflict\r\ncontent-type: x\r\nContent-length: 17").unwrap();
        assert_eq!((head.status, head.body), (409, 17));
        let head = Head::parse(b"HTTP/1.1 204 No Content\r\ndate: today").unwrap();
        assert_eq!((head.status, head.body), (204, 0));
        assert!(Head::parse(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked").is_err());
        assert!(Head::parse(b"SSH-2.0").is_err());
    }
}
