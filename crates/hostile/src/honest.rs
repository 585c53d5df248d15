//! The honest client: a neighbour of the hostile ones, whose requests must be served whatever they do.
//!
//! It runs in a thread of its own with blocking sockets, so that it does not wait for the tasks of hostile clients.

use crate::{
    Failed,
    http::{Answer, Head, request},
};
use serde_json::{Value, json};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

const NAMESPACE: &str = "/v1/ns/honest";
/// The time between the beginnings of two requests.
const PACE: Duration = Duration::from_millis(5);
/// A request that takes longer counts as failed.
const DEADLINE: Duration = Duration::from_secs(60);

/// What the client has measured since the samples were taken the last time.
#[derive(Default)]
pub(crate) struct Samples {
    /// The latency of each request, refused ones included, and of each that should have been sent while it waited: that one
    /// would have been answered at the same time. So a pause of the server counts for its whole length.
    pub(crate) latencies: Vec<Duration>,
    /// When the last of these requests was sent.
    last_sent: Option<Instant>,
    /// Checks that were refused with 503 or 507.
    pub(crate) refused: u64,
    /// Heartbeats that were refused. They keep or free something, so a server without memory must still accept them.
    pub(crate) refused_heartbeats: u64,
    /// Requests that got no answer, or one that never may be.
    pub(crate) failures: Vec<String>,
}

impl Samples {
    /// This quantile of the latencies.
    pub(crate) fn quantile(&self, quantile: f64) -> Duration {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        let index = (sorted.len() as f64 * quantile) as usize;
        sorted.get(index.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
    }
}

/// A running client.
pub(crate) struct Honest {
    samples: Arc<Mutex<Samples>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Honest {
    /// Prepares the client's namespace and starts the client.
    pub(crate) fn start(address: SocketAddr) -> Result<Honest, Failed> {
        let mut client = Client { address, stream: connect(address)?, requests: Vec::new() };
        let rule = json!({"name": "honest", "group_by": ["client"], "limit": 1_000_000_000,
            "window": {"type": "fixed", "per": "1h"}, "durability": "durable"});
        client.prepare("POST", "/limiter/rules", &rule, 201)?;
        let lock = json!({"key_values": {"resource": "honest"}, "ttl": "1h"});
        let lock = client.prepare("POST", "/locks", &lock, 200)?;
        let id = lock["lock_id"].as_str().ok_or("no lock_id")?;
        let check = json!({"key_values": {"client": "honest"}});
        let heartbeat = json!({"session_id": lock["session_id"]});
        client.requests = vec![
            bytes("POST", "/limiter/check", &check),
            bytes("POST", &format!("/locks/{id}/heartbeat"), &heartbeat),
        ];
        let (samples, is_over) = (Arc::default(), Arc::default());
        let shared = (Arc::clone(&samples), Arc::clone(&is_over));
        let thread = Some(thread::spawn(move || client.run(&shared.0, &shared.1)));
        Ok(Honest { samples, is_over, thread })
    }

    /// Takes the samples, and begins anew.
    pub(crate) fn take(&self) -> Samples {
        std::mem::take(&mut lock(&self.samples))
    }

    /// Waits until a request that was sent after this call has been answered, and takes the samples.
    pub(crate) fn take_until_now(&self) -> Samples {
        let now = Instant::now();
        while lock(&self.samples).last_sent.is_none_or(|sent| sent < now) && now.elapsed() < 2 * DEADLINE {
            thread::sleep(PACE);
        }
        self.take()
    }
}

impl Drop for Honest {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _panicked = self.thread.take().map(JoinHandle::join);
    }
}

struct Client {
    address: SocketAddr,
    stream: TcpStream,
    /// A check and a heartbeat.
    requests: Vec<Vec<u8>>,
}

impl Client {
    fn prepare(&mut self, method: &str, path: &str, body: &Value, expected: u16) -> Result<Value, Failed> {
        self.exchange(&bytes(method, path, body))?.expect(expected)?.json()
    }

    fn run(mut self, samples: &Mutex<Samples>, is_over: &AtomicBool) {
        let (mut due, mut number) = (Instant::now(), 0);
        while !is_over.load(Ordering::Relaxed) {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let is_heartbeat = number % 2 == 1;
            let sent = Instant::now();
            let answer = self.exchange(&self.requests[number % 2].clone());
            let took = sent.elapsed();
            let mut samples = lock(samples);
            let missed = (0..).map(|missed| took.checked_sub(PACE * missed));
            samples.latencies.extend(missed.map_while(|latency| latency));
            samples.last_sent = Some(sent);
            match answer {
                Ok(answer) if answer.status == 200 => {}
                Ok(answer) if matches!(answer.status, 503 | 507) => match is_heartbeat {
                    true => samples.refused_heartbeats += 1,
                    false => samples.refused += 1,
                },
                Ok(answer) => samples.failures.push(format!("{}: {}", answer.status, answer.text())),
                Err(error) => samples.failures.push(error.to_string()),
            }
            if let Some(stream) = (!samples.failures.is_empty()).then(|| connect(self.address).ok()).flatten()
            {
                self.stream = stream;
            }
            due = (due + PACE).max(Instant::now());
            number += 1;
        }
    }

    fn exchange(&mut self, request: &[u8]) -> Result<Answer, Failed> {
        self.stream.write_all(request)?;
        let mut received = Vec::new();
        let mut piece = [0; 4096];
        loop {
            match self.stream.read(&mut piece)? {
                0 => return Err("the server closed the honest client's connection".into()),
                length => received.extend_from_slice(&piece[..length]),
            }
            if let Some(head) = Head::parse(&received)?
                && let Some((answer, _)) = head.complete(&received)
            {
                return Ok(answer);
            }
        }
    }
}

fn connect(address: SocketAddr) -> Result<TcpStream, Failed> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    stream.set_write_timeout(Some(DEADLINE))?;
    Ok(stream)
}

fn bytes(method: &str, path: &str, body: &Value) -> Vec<u8> {
    request(method, &format!("{NAMESPACE}{path}"), "", body.to_string().as_bytes())
}

fn lock(samples: &Mutex<Samples>) -> MutexGuard<'_, Samples> {
    samples.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
