//! Limina over HTTP on the loopback interface, as a server in a process of its own.
//!
//! The client is written by hand, so that it takes as little as possible of the processors that it shares with the
//! server: it knows HTTP/1.1 with `Content-Length`, and looks at no more of an answer than it needs.

use super::workload::{CEILING, Client, Contender, Operation, limit_name};
use crate::{Failed, process::Process};
use memchr::memmem;
use std::{
    fmt::Write,
    net::SocketAddr,
    ops::Range,
    path::{Path, PathBuf},
    process::Command,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Which program is the server: `limina` beside this one, else this one.
pub(crate) fn server_program() -> Result<PathBuf, Failed> {
    let own = std::env::current_exe()?;
    let limina = own.with_file_name("limina");
    Ok(if limina.is_file() { limina } else { own })
}

/// A server that speaks the ledger's HTTP interface.
pub(crate) struct Http {
    process: Process,
    address: SocketAddr,
}

impl Http {
    /// Limina.
    pub(crate) fn limina(program: &Path, directory: &Path) -> Result<Http, Failed> {
        let mut command = Command::new(program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(directory.join("data"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("LIMINA_") {
                command.env_remove(name);
            }
        }
        let (process, address) = Process::serving(&mut command)?;
        Ok(Http { process, address })
    }

    /// A server that only parses and answers.
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
        Ok(Connection { stream, json: String::new(), bytes: Vec::new() })
    }

    fn process(&self) -> Option<u32> {
        Some(self.process.id())
    }

    async fn stop(self) -> Result<(), Failed> {
        self.process.stop()
    }
}

/// A connection that is kept.
pub(crate) struct Connection {
    stream: TcpStream,
    json: String,
    bytes: Vec<u8>,
}

impl Connection {
    /// Posts `json` to the path below `/v1/ledger`, and returns status and body.
    async fn post(&mut self, path: &str) -> Result<(u16, &[u8]), Failed> {
        let mut head = format!(
            "POST /v1/ledger{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.json.len()
        );
        head.push_str(&self.json);
        self.stream.write_all(head.as_bytes()).await?;

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

    async fn read(&mut self) -> Result<(), Failed> {
        self.bytes.reserve(16 << 10);
        match self.stream.read_buf(&mut self.bytes).await? {
            0 => Err("the server closed a connection".into()),
            _ => Ok(()),
        }
    }

    /// Posts what was written for so many operations, and returns how many were refused.
    async fn transfer(&mut self, call: &str, count: usize) -> Result<u64, Failed> {
        if count == 1 {
            let (status, _) = self.post(call).await?;
            return Ok(u64::from(status != 200));
        }
        match self.post(&format!("{call}/batch")).await? {
            (200, body) => {
                let done = memmem::find_iter(body, br#""status":200"#).count();
                Ok((count - done.min(count)) as u64)
            }
            (status, body) => Err(format!("{status}: {}", String::from_utf8_lossy(body)).into()),
        }
    }

    /// Writes one as itself, several as a batch.
    fn write(&mut self, operations: &[Operation], mut write: impl FnMut(&mut String, &Operation)) {
        self.json.clear();
        if let [operation] = operations {
            return write(&mut self.json, operation);
        }
        self.json.push_str(r#"{"operations":["#);
        for (index, operation) in operations.iter().enumerate() {
            self.json.push_str(if index > 0 { "," } else { "" });
            write(&mut self.json, operation);
        }
        self.json.push_str("]}");
    }

    /// Reads the values of a limit, now or as of an operation.
    pub(crate) async fn values(&mut self, limit: usize, as_of: Option<&str>) -> Result<(), Failed> {
        self.json = format!(r#"{{"limit_names":["{}"]"#, limit_name(limit));
        if let Some(operation) = as_of {
            self.json.push_str(&format!(r#","operation_id":"{operation}""#));
        }
        self.json.push('}');
        match self.post("/values").await? {
            (200, _) => Ok(()),
            (status, body) => Err(format!("{status}: {}", String::from_utf8_lossy(body)).into()),
        }
    }
}

impl Client for Connection {
    async fn create(&mut self, limits: Range<usize>) -> Result<(), Failed> {
        for number in limits {
            self.json = format!(r#"{{"name":"{}","ceiling":{CEILING}}}"#, limit_name(number));
            match self.post("/limits").await? {
                (201, _) => {}
                (status, body) => return Err(format!("{status}: {}", String::from_utf8_lossy(body)).into()),
            }
        }
        Ok(())
    }

    async fn hold(&mut self, operations: &[Operation]) -> Result<u64, Failed> {
        self.write(operations, |json, operation| {
            json.push_str(r#"{"operation_id":""#);
            json.push_str(&operation.id);
            json.push_str(r#"","changes":["#);
            for (index, limit) in operation.limits.iter().enumerate() {
                json.push_str(if index > 0 { "," } else { "" });
                write!(json, r#"{{"limit_name":"limit-{limit}","value":1}}"#).expect("memory takes it");
            }
            json.push_str("]}");
        });
        self.transfer("/hold", operations.len()).await
    }

    async fn commit(&mut self, operations: &[Operation]) -> Result<u64, Failed> {
        self.write(operations, |json, operation| {
            json.push_str(r#"{"operation_id":""#);
            json.push_str(&operation.id);
            json.push_str(r#""}"#);
        });
        self.transfer("/commit", operations.len()).await
    }
}

/// What is needed of an answer's head.
struct Head {
    status: u16,
    /// Of the head, with the empty line.
    length: usize,
    /// Of the body.
    body: usize,
}

impl Head {
    fn parse(head: &[u8]) -> Result<Head, Failed> {
        let text = str::from_utf8(head)?;
        let mut lines = text.split("\r\n");
        let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 "));
        let status = status.and_then(|rest| rest.get(..3)).ok_or("not an answer in HTTP/1.1")?.parse()?;
        let body = lines.filter_map(|line| line.split_once(':'));
        let mut body = body.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        let body = body.next().ok_or("an answer without Content-Length")?.1.trim().parse()?;
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
        assert!(Head::parse(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked").is_err());
        assert!(Head::parse(b"SSH-2.0").is_err());
    }
}
