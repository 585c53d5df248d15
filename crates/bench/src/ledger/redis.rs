//! Redis doing the same in Lua, with its file of commands synced before it answers.

use super::workload::{CEILING, Client, Contender, Operation};
use crate::{
    Failed,
    process::{Process, eventually, free_address},
};
use rustix::process::Signal;
use std::{fs, io::Write, net::SocketAddr, ops::Range, path::Path, process::Command};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// The operation, then its limits.
const HOLD: &str = r"
if redis.call('EXISTS', KEYS[1]) == 1 then return redis.error_reply('DuplicateOperation') end
local amount = tonumber(ARGV[1])
for i = 2, #KEYS do
  local limit = redis.call('HMGET', KEYS[i], 'ceiling', 'committed', 'held')
  if not limit[1] then return redis.error_reply('LimitNotFound') end
  if limit[2] + limit[3] + amount > tonumber(limit[1]) then return redis.error_reply('LimitExceeded') end
end
local values = {}
for i = 2, #KEYS do
  redis.call('HSET', KEYS[1], KEYS[i], amount)
  values[#values + 1] = redis.call('HGET', KEYS[i], 'committed')
  values[#values + 1] = redis.call('HINCRBY', KEYS[i], 'held', amount)
end
redis.call('HSET', KEYS[1], 'state', 'held')
return values";

const COMMIT: &str = r"
if redis.call('HGET', KEYS[1], 'state') ~= 'held' then return redis.error_reply('OperationNotFound') end
local values = {}
for i = 2, #KEYS do
  local amount = tonumber(redis.call('HGET', KEYS[1], KEYS[i]))
  values[#values + 1] = redis.call('HINCRBY', KEYS[i], 'committed', amount)
  values[#values + 1] = redis.call('HINCRBY', KEYS[i], 'held', -amount)
end
redis.call('HSET', KEYS[1], 'state', 'committed')
return values";

pub(crate) struct Redis {
    process: Process,
    address: SocketAddr,
    hold: String,
    commit: String,
}

impl Redis {
    pub(crate) async fn start(directory: &Path) -> Result<Redis, Failed> {
        let address = free_address()?;
        let mut serve = Command::new("redis-server");
        serve.args(["--bind", "127.0.0.1", "--port", &address.port().to_string()]);
        serve.args(["--appendonly", "yes", "--appendfsync", "always", "--save", ""]);
        serve.arg("--dir").arg(fs::canonicalize(directory)?);
        serve.stdout(fs::File::create(directory.join("redis.log"))?);
        let process = Process::start(&mut serve, Signal::TERM)
            .map_err(|error| format!("{error}; `cargo xtask rivals` installs it"))?;
        let mut client = eventually(async || Connection::open(address).await).await?;
        let hold = client.load(HOLD).await?;
        let commit = client.load(COMMIT).await?;
        Ok(Redis { process, address, hold, commit })
    }
}

impl Contender for Redis {
    type Client = Caller;

    async fn connect(&self) -> Result<Caller, Failed> {
        let connection = Connection::open(self.address).await?;
        Ok(Caller { connection, hold: self.hold.clone(), commit: self.commit.clone() })
    }

    fn process(&self) -> Option<u32> {
        Some(self.process.id())
    }

    async fn stop(self) -> Result<(), Failed> {
        self.process.stop()
    }
}

pub(crate) struct Caller {
    connection: Connection,
    /// The scripts, by their digests.
    hold: String,
    commit: String,
}

impl Client for Caller {
    async fn create(&mut self, limits: Range<usize>) -> Result<(), Failed> {
        let count = limits.len();
        for number in limits {
            let (key, ceiling) = (limit_key(number), CEILING.to_string());
            self.connection.write(&["HSET", &key, "ceiling", &ceiling, "committed", "0", "held", "0"]);
        }
        match self.connection.exchange(count).await? {
            0 => Ok(()),
            failed => Err(format!("{failed} limits were not made").into()),
        }
    }

    async fn hold(&mut self, operations: &[Operation]) -> Result<u64, Failed> {
        operations.iter().for_each(|operation| self.connection.script(&self.hold, operation, Some("1")));
        self.connection.exchange(operations.len()).await
    }

    async fn commit(&mut self, operations: &[Operation]) -> Result<u64, Failed> {
        operations.iter().for_each(|operation| self.connection.script(&self.commit, operation, None));
        self.connection.exchange(operations.len()).await
    }
}

fn limit_key(number: usize) -> String {
    format!("limit:{number}")
}

/// A connection that speaks Redis's protocol, as far as needed.
struct Connection {
    stream: TcpStream,
    requests: Vec<u8>,
    replies: Vec<u8>,
}

impl Connection {
    async fn open(address: SocketAddr) -> Result<Connection, Failed> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, requests: Vec::new(), replies: Vec::new() })
    }

    /// Makes a script known, and returns its digest.
    async fn load(&mut self, script: &str) -> Result<String, Failed> {
        self.write(&["SCRIPT", "LOAD", script]);
        let failed = self.exchange(1).await?;
        let reply = String::from_utf8_lossy(&self.replies);
        match reply.lines().nth(1) {
            Some(digest) if failed == 0 => Ok(digest.to_owned()),
            _ => Err(format!("a script was not loaded: {reply}").into()),
        }
    }

    /// Adds a command to what is sent next.
    fn write(&mut self, words: &[&str]) {
        write!(self.requests, "*{}\r\n", words.len()).expect("memory takes it");
        for word in words {
            write!(self.requests, "${}\r\n{word}\r\n", word.len()).expect("memory takes it");
        }
    }

    fn script(&mut self, digest: &str, operation: &Operation, argument: Option<&str>) {
        let keys = operation.limits.iter().copied().map(limit_key);
        let keys: Vec<String> = std::iter::once(format!("operation:{}", operation.id)).chain(keys).collect();
        let count = keys.len().to_string();
        let words = ["EVALSHA", digest, &count].into_iter();
        let words: Vec<&str> = words.chain(keys.iter().map(String::as_str)).chain(argument).collect();
        self.write(&words);
    }

    /// Sends what was written, waits for so many replies, and returns how many are errors.
    async fn exchange(&mut self, replies: usize) -> Result<u64, Failed> {
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
}

/// Where the reply that begins at `at` ends; none if it is not all there yet.
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
    fn replies_are_found_whole_or_not_at_all() {
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
