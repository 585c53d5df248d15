//! Redis, which runs the Lua scripts of a family.

use crate::{
    Failed,
    load::Contender,
    process::{Process, eventually, free_address},
};
use rustix::process::Signal;
use std::{fs, io::Write, net::SocketAddr, path::Path, process::Command, sync::Arc};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// When Redis syncs its append-only file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sync {
    /// Before each answer.
    Always,
    /// Every second.
    EverySecond,
}

/// What a family needs of Redis.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) sync: Sync,
    /// Scripts, which clients run by their index.
    pub(crate) scripts: &'static [&'static str],
}

pub(crate) struct Redis {
    process: Process,
    address: SocketAddr,
    /// The digest of each script.
    scripts: Arc<[String]>,
}

impl Redis {
    pub(crate) async fn start(directory: &Path, setup: Setup) -> Result<Redis, Failed> {
        let address = free_address()?;
        let mut serve = Command::new("redis-server");
        serve.args(["--bind", "127.0.0.1", "--port", &address.port().to_string()]);
        let sync = match setup.sync {
            Sync::Always => "always",
            Sync::EverySecond => "everysec",
        };
        serve.args(["--appendonly", "yes", "--appendfsync", sync, "--save", ""]);
        serve.arg("--dir").arg(fs::canonicalize(directory)?);
        serve.stdout(fs::File::create(directory.join("redis.log"))?);
        let process = Process::start(&mut serve, Signal::TERM)
            .map_err(|error| format!("{error}; `cargo xtask rivals` installs it"))?;
        let mut client = eventually(async || Connection::open(address, Arc::default()).await).await?;
        let mut digests = Vec::new();
        for script in setup.scripts {
            digests.push(client.load(script).await?);
        }
        Ok(Redis { process, address, scripts: digests.into() })
    }
}

impl Contender for Redis {
    type Client = Connection;

    async fn connect(&self) -> Result<Connection, Failed> {
        Connection::open(self.address, self.scripts.clone()).await
    }

    fn process(&self) -> Option<u32> {
        Some(self.process.id())
    }

    async fn stop(self) -> Result<(), Failed> {
        self.process.stop()
    }
}

/// A connection that speaks the part of Redis's protocol that the benchmark needs.
pub(crate) struct Connection {
    stream: TcpStream,
    scripts: Arc<[String]>,
    requests: Vec<u8>,
    replies: Vec<u8>,
}

impl Connection {
    async fn open(address: SocketAddr, scripts: Arc<[String]>) -> Result<Connection, Failed> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, scripts, requests: Vec::new(), replies: Vec::new() })
    }

    /// Loads a script and returns its digest.
    async fn load(&mut self, script: &str) -> Result<String, Failed> {
        self.write(&["SCRIPT", "LOAD", script]);
        let failed = self.exchange(1).await?;
        let reply = String::from_utf8_lossy(&self.replies);
        match reply.lines().nth(1) {
            Some(digest) if failed == 0 => Ok(digest.to_owned()),
            _ => Err(format!("a script was not loaded: {reply}").into()),
        }
    }

    /// Adds a command to the requests that [`Connection::exchange`] sends.
    pub(crate) fn write(&mut self, words: &[&str]) {
        write!(self.requests, "*{}\r\n", words.len()).expect("memory takes it");
        for word in words {
            write!(self.requests, "${}\r\n{word}\r\n", word.len()).expect("memory takes it");
        }
    }

    /// Adds a run of the script with this index to the requests that [`Connection::exchange`] sends.
    pub(crate) fn write_script(&mut self, index: usize, keys: &[String], arguments: &[&str]) {
        let (digest, count) = (self.scripts[index].clone(), keys.len().to_string());
        let words = ["EVALSHA", &digest, &count].into_iter().chain(keys.iter().map(String::as_str));
        let words: Vec<&str> = words.chain(arguments.iter().copied()).collect();
        self.write(&words);
    }

    /// Sends the requests, waits for this many replies, and returns how many of them are errors.
    pub(crate) async fn exchange(&mut self, replies: usize) -> Result<u64, Failed> {
        self.stream.write_all(&self.requests).await?;
        self.requests.clear();
        self.replies.clear();
        let (mut at, mut seen, mut errors) = (0, 0, 0);
        while seen < replies {
            match reply_end(&self.replies, at)? {
                Some(end) => {
                    errors += u64::from(self.replies[at] == b'-');
                    (at, seen) = (end, seen + 1);
                }
                None => {
                    self.replies.reserve(16 << 10);
                    if self.stream.read_buf(&mut self.replies).await? == 0 {
                        return Err("Redis closed a connection".into());
                    }
                }
            }
        }
        Ok(errors)
    }

    /// Whether the first of the last replies is this line.
    pub(crate) fn replied(&self, line: &str) -> bool {
        self.replies.strip_prefix(line.as_bytes()).is_some_and(|rest| rest.starts_with(b"\r\n"))
    }

    /// Counts the lists among the last replies that begin with this number.
    pub(crate) fn replies_beginning_with(&self, number: i64) -> u64 {
        let head = format!("\n:{number}\r\n");
        let lists = memchr::memchr_iter(b'*', &self.replies);
        let is_such = |at: &usize| {
            let line = memchr::memchr(b'\n', &self.replies[*at..]).unwrap_or_default();
            self.replies[at + line..].starts_with(head.as_bytes())
        };
        lists.filter(is_such).count() as u64
    }
}

/// The end of the reply that begins at `at`; none if the reply is not complete yet.
fn reply_end(bytes: &[u8], at: usize) -> Result<Option<usize>, Failed> {
    let Some(line) = memchr::memchr(b'\n', &bytes[at.min(bytes.len())..]) else { return Ok(None) };
    let (head, next) = (&bytes[at..at + line], at + line + 1);
    let number = || -> Result<i64, Failed> { Ok(str::from_utf8(&head[1..])?.trim_end().parse()?) };
    match head[0] {
        b'+' | b'-' | b':' => Ok(Some(next)),
        b'$' => {
            let end = usize::try_from(number()?).map_or(next, |length| next + length + 2);
            Ok((end <= bytes.len()).then_some(end))
        }
        b'*' => {
            let mut end = next;
            for _ in 0..number()? {
                let Some(item) = reply_end(bytes, end)? else { return Ok(None) };
                end = item;
            }
            Ok(Some(end))
        }
        _ => Err("not a reply in Redis's protocol".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_replies_are_not_found() {
        #[track_caller]
        fn check(reply: &str) {
            for length in 0..reply.len() {
                assert_eq!(
                    reply_end(&reply.as_bytes()[..length], 0).unwrap(),
                    None,
                    "{length} bytes of {reply:?}"
                );
            }
            let followed = format!("{reply}:1\r\n");
            assert_eq!(reply_end(followed.as_bytes(), 0).unwrap(), Some(reply.len()), "{reply:?}");
        }
        check("+OK\r\n");
        check("-ERR no\r\n");
        check(":12\r\n");
        check("$5\r\nab\r\nc\r\n");
        check("$-1\r\n");
        check("*0\r\n");
        check("*3\r\n:1\r\n$2\r\nab\r\n*1\r\n:2\r\n");
        assert!(reply_end(b"HTTP/1.1 200 OK\r\n", 0).is_err());
    }
}
