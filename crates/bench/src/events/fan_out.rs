//! Many followers of one stream, over STOMP in WebSockets, while events are submitted at fixed times.
//!
//! The followers share the processors with the server, so they do as little as possible: they search for events in the
//! bytes that arrive, and do not parse frames. An event is a number, by which the times of its submission and its answer
//! are looked up.

use super::{
    Options,
    workload::{Client, STREAM},
};
use crate::{
    Failed,
    frame::Start,
    http::Http,
    load::{Contender, Pace},
    machine,
    measure::Measured,
};
use memchr::memmem::{self, Finder};
use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

/// Connections that submit.
const SUBMITTERS: usize = 64;
/// An event that is not delivered within this time is missing.
const PATIENCE: Duration = Duration::from_secs(10);
/// The duration of events, so that none is published in a run.
const DURATION: Duration = Duration::from_secs(24 * 3600);
/// The bytes before an event in a message.
const BEFORE: &[u8] = br#""event":""#;
/// Digits of an event.
const DIGITS: usize = 8;

/// The result of one rate.
pub(crate) struct Step {
    /// Submissions a second that were requested.
    pub(crate) asked: usize,
    /// Submissions, with the latencies of their answers.
    pub(crate) submissions: Measured,
    /// Deliveries, with latencies from the time at which the event was due to be submitted.
    pub(crate) deliveries: Measured,
    /// The same from the answer to the submission. A delivery before the answer counts as 0.
    pub(crate) since_answer: Measured,
    /// Deliveries that never arrived.
    pub(crate) missing: u64,
}

/// What submitters and followers share.
struct Board {
    begin: Instant,
    /// When each event was due to be submitted and when its submission was answered, in nanoseconds from the beginning; 0
    /// before that.
    asked: Vec<AtomicU64>,
    answered: Vec<AtomicU64>,
    /// Latencies from the due time, and from the answer.
    deliveries: Mutex<[Measured; 2]>,
    delivered: AtomicU64,
}

impl Board {
    fn new(events: usize) -> Board {
        let instants = || (0..=events).map(|_| AtomicU64::new(0)).collect();
        Board {
            begin: Instant::now(),
            asked: instants(),
            answered: instants(),
            deliveries: Mutex::new([Measured::new(), Measured::new()]),
            delivered: AtomicU64::new(0),
        }
    }

    fn nanos(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.begin).as_nanos() as u64
    }

    /// Records events that a follower received.
    fn note(&self, events: &[usize]) -> Result<(), Failed> {
        let now = self.nanos(Instant::now());
        let mut deliveries = self.deliveries.lock().unwrap_or_else(PoisonError::into_inner);
        for &event in events {
            for (measured, instants) in deliveries.iter_mut().zip([&self.asked, &self.answered]) {
                let instant = instants.get(event).ok_or("an event that nobody submitted")?;
                // A delivery before the answer has no latency.
                let took = match instant.load(Ordering::Acquire) {
                    0 => 0,
                    before => now.saturating_sub(before),
                };
                measured.note(1, 0, Duration::from_nanos(took));
            }
        }
        self.delivered.fetch_add(events.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn take(&self) -> [Measured; 2] {
        let mut deliveries = self.deliveries.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *deliveries, [Measured::new(), Measured::new()])
    }
}

pub(crate) async fn measure(options: &Options, start: Start<'_>) -> Result<Vec<Step>, Failed> {
    let server = Http::limina(start.program, start.directory)?;
    Client::put(&mut server.connect().await?, DURATION).await?;
    let events = |rate: usize| (rate as f64 * options.common.seconds.as_secs_f64()).ceil() as usize;
    let all: usize = options.rates.iter().copied().map(events).sum();
    let board = Arc::new(Board::new(all));
    let mut followers = JoinSet::new();
    for _ in 0..options.subscribers {
        let mut follower = Follower::connect(server.address()).await?;
        let board = board.clone();
        followers.spawn(async move { follower.follow(&board).await });
    }
    let (mut steps, mut next) = (Vec::new(), 1);
    for &rate in &options.rates {
        let numbers = next..next + events(rate);
        next = numbers.end;
        let process = server.process().ok_or("a server is a process")?;
        let cpu = || (machine::cpu_time(process), machine::cpu_time(std::process::id()));
        let (before, begin) = (cpu(), Instant::now());
        let expected = board.delivered.load(Ordering::Relaxed) + (numbers.len() * options.subscribers) as u64;
        let submissions = submit(&server, &board, numbers, rate).await?;
        let submitted = Instant::now();
        while board.delivered.load(Ordering::Relaxed) < expected && submitted.elapsed() < PATIENCE {
            if let Some(ended) = followers.try_join_next() {
                return Err(format!("a follower ended: {:?}", ended?.err()).into());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let [mut deliveries, since_answer] = board.take();
        deliveries.elapsed = begin.elapsed();
        let after = cpu();
        deliveries.server_cpu = Some(after.0.saturating_sub(before.0));
        deliveries.own_cpu = after.1.saturating_sub(before.1);
        let missing = expected.saturating_sub(board.delivered.load(Ordering::Relaxed));
        board.delivered.store(expected, Ordering::Relaxed);
        steps.push(Step { asked: rate, submissions, deliveries, since_answer, missing });
    }
    followers.abort_all();
    server.stop().await?;
    Ok(steps)
}

/// Submits these events, at fixed times.
async fn submit(
    server: &Http,
    board: &Arc<Board>,
    numbers: std::ops::Range<usize>,
    rate: usize,
) -> Result<Measured, Failed> {
    let every = Duration::from_secs_f64(SUBMITTERS as f64 / rate as f64);
    let begin = Instant::now();
    let mut tasks = JoinSet::new();
    for number in 0..SUBMITTERS {
        let (mut client, board) = (server.connect().await?, board.clone());
        let numbers = numbers.clone().skip(number).step_by(SUBMITTERS);
        tasks.spawn(async move {
            let (mut measured, mut pace) = (Measured::new(), Pace::new(every, number));
            for event in numbers {
                let asked = pace.next().await;
                board.asked[event].store(board.nanos(asked), Ordering::Release);
                let is_accepted = client.submit(&format!("{event:0DIGITS$}")).await?;
                board.answered[event].store(board.nanos(Instant::now()), Ordering::Release);
                measured.note(1, u64::from(!is_accepted), asked.elapsed());
            }
            Ok::<_, Failed>(measured)
        });
    }
    let mut total = Measured::new();
    while let Some(task) = tasks.join_next().await {
        total.add(&task??);
    }
    total.elapsed = begin.elapsed();
    Ok(total)
}

/// A follower of the stream.
struct Follower {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Follower {
    async fn connect(address: SocketAddr) -> Result<Follower, Failed> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let mut follower = Follower { stream, bytes: Vec::new() };
        let upgrade = "GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Protocol: v12.stomp\r\n\r\n";
        follower.stream.write_all(upgrade.as_bytes()).await?;
        follower.expect(b"\r\n\r\n").await?;
        follower.send("CONNECT\naccept-version:1.2\nhost:localhost\n\n\0").await?;
        follower.expect(b"CONNECTED").await?;
        follower.send(&format!("SUBSCRIBE\nid:0\ndestination:/topic/{STREAM}\n\n\0")).await?;
        follower.expect(b"KEY_FRAME").await?;
        Ok(follower)
    }

    /// Sends a short text frame. Its mask is zero, which leaves the text unchanged.
    async fn send(&mut self, text: &str) -> Result<(), Failed> {
        let length = u8::try_from(text.len()).ok().filter(|length| *length < 126).ok_or("a long frame")?;
        let mut frame = vec![0x81, 0x80 | length, 0, 0, 0, 0];
        frame.extend_from_slice(text.as_bytes());
        Ok(self.stream.write_all(&frame).await?)
    }

    /// Reads until this text arrives, and discards everything up to it.
    async fn expect(&mut self, text: &[u8]) -> Result<(), Failed> {
        loop {
            if let Some(at) = memmem::find(&self.bytes, text) {
                self.bytes.drain(..at + text.len());
                return Ok(());
            }
            self.read().await?;
        }
    }

    async fn read(&mut self) -> Result<(), Failed> {
        self.bytes.reserve(16 << 10);
        match self.stream.read_buf(&mut self.bytes).await? {
            0 => Err("the server closed the connection of a follower".into()),
            _ => Ok(()),
        }
    }

    /// Records every event that arrives, until the connection ends.
    async fn follow(&mut self, board: &Board) -> Result<(), Failed> {
        let finder = Finder::new(BEFORE);
        let mut events = Vec::new();
        loop {
            self.read().await?;
            let rest = take_events(&finder, &self.bytes, &mut events)?;
            self.bytes.drain(..rest);
            board.note(&events)?;
            events.clear();
        }
    }
}

/// Finds the events in these bytes, and returns the position from which on another event may begin.
fn take_events(finder: &Finder<'_>, bytes: &[u8], events: &mut Vec<usize>) -> Result<usize, Failed> {
    let mut at = 0;
    while let Some(found) = finder.find(&bytes[at..]) {
        let begin = at + found + BEFORE.len();
        let Some(digits) = bytes.get(begin..begin + DIGITS) else { return Ok(at + found) };
        events.push(str::from_utf8(digits)?.parse()?);
        at = begin + DIGITS;
    }
    Ok(at.max(bytes.len().saturating_sub(BEFORE.len() - 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_in_split_input() {
        let text = br#"{"eventTime":{"event":"00000001","time":17}}..{"event":"00000023"}"event":""#;
        for cut in 0..text.len() {
            let (finder, mut events) = (Finder::new(BEFORE), Vec::new());
            let rest = take_events(&finder, &text[..cut], &mut events).unwrap();
            assert!(rest <= cut);
            take_events(&finder, &text[rest..], &mut events).unwrap();
            assert_eq!(events, [1, 23], "cut at {cut}");
        }
    }
}
