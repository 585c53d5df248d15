//! Load: clients that send one request after the other, and the time that each request takes.

use crate::{Failed, machine, measure::Measured};
use std::{
    future::Future,
    time::{Duration, Instant},
};

/// The size of the load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// Clients at the same time. Each waits for the answer before it sends its next request.
    pub(crate) connections: usize,
    /// Operations in one request.
    pub(crate) batch: usize,
}

/// When a run ends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Until {
    /// After this time.
    Time(Duration),
    /// When this many operations are finished.
    Finished(u64),
}

/// A running system that is measured.
pub(crate) trait Contender: Sync {
    type Client: Send + 'static;

    /// A new connection.
    fn connect(&self) -> impl Future<Output = Result<Self::Client, Failed>> + Send;

    /// The id of its process; none if it runs in this process.
    fn process(&self) -> Option<u32>;

    /// Processor time that it has taken so far; none if it runs in this process.
    fn cpu_time(&self) -> Option<Duration> {
        self.process().map(machine::family_cpu_time)
    }

    /// Resident memory of its process, which may be this one.
    fn resident_bytes(&self) -> Option<u64> {
        machine::resident_bytes(self.process().unwrap_or_else(std::process::id))
    }

    /// Waits until the background work that follows many writes has ended.
    fn settle(&self) -> impl Future<Output = ()> + Send {
        machine::settle(self.process().unwrap_or_else(std::process::id))
    }

    /// Stops it and waits until it has ended.
    fn stop(self) -> impl Future<Output = Result<(), Failed>> + Send;
}

/// The work of one client, which repeats one step.
pub(crate) trait Work<C>: Send + 'static {
    /// Does this many operations over the connection, and records each request.
    fn step(
        &mut self,
        client: &mut C,
        count: u64,
        measured: &mut Measured,
    ) -> impl Future<Output = Result<(), Failed>> + Send;
}

/// Runs the load. `work` makes the work of a client, by the client's number.
pub(crate) async fn drive<C: Contender, W: Work<C::Client>>(
    contender: &C,
    load: Load,
    until: Until,
    mut work: impl FnMut(usize) -> W,
) -> Result<Measured, Failed> {
    let mut clients = Vec::new();
    for _ in 0..load.connections {
        clients.push(contender.connect().await?);
    }
    let cpu = || (contender.cpu_time(), machine::cpu_time(std::process::id()));
    let (server_before, own_before) = cpu();
    let begin = Instant::now();
    let tasks: Vec<_> = (clients.into_iter().enumerate())
        .map(|(number, client)| tokio::spawn(repeat(client, work(number), load, begin, until)))
        .collect();
    let mut total = Measured::new();
    let mut clients = Vec::new();
    for task in tasks {
        let (measured, client) = task.await??;
        total.add(&measured);
        clients.push(client);
    }
    total.elapsed = begin.elapsed();
    let (server_after, own_after) = cpu();
    total.server_cpu = server_after.zip(server_before).map(|(after, before)| after.saturating_sub(before));
    total.own_cpu = own_after.saturating_sub(own_before);
    // The connections close only now. A server may have a process per connection, and the processor time of a process
    // can be read only while it exists.
    drop(clients);
    Ok(total)
}

/// Runs one client. It does at least one step, so that a stalled machine makes a measurement slow, and not empty.
async fn repeat<C, W: Work<C>>(
    mut client: C,
    mut work: W,
    load: Load,
    begin: Instant,
    until: Until,
) -> Result<(Measured, C), Failed> {
    let mut measured = Measured::new();
    let mut left = match until {
        Until::Finished(all) => all.div_ceil(load.connections as u64),
        Until::Time(_) => u64::MAX,
    };
    while left > 0 {
        let count = left.min(load.batch as u64);
        left -= count;
        work.step(&mut client, count, &mut measured).await?;
        if matches!(until, Until::Time(time) if begin.elapsed() >= time) {
            break;
        }
    }
    Ok((measured, client))
}

/// The fixed times at which a client sends its requests.
pub(crate) struct Pace {
    every: Duration,
    due: Instant,
}

impl Pace {
    /// One request in each interval of this length. Each client starts at a different moment within the interval, so that
    /// clients do not send at the same time.
    pub(crate) fn new(every: Duration, client: usize) -> Pace {
        let share = Random::new(client).below(1000) as u32;
        Pace { every, due: Instant::now() + every * share / 1000 }
    }

    /// Waits until the next request is due, and returns the instant from which its latency counts. If the answer before it
    /// came late, that is the time at which the request was due. A timer that fires late does not count.
    pub(crate) async fn next(&mut self) -> Instant {
        let (due, now) = (self.due, Instant::now());
        self.due += self.every;
        if due <= now {
            return due;
        }
        tokio::time::sleep_until(due.into()).await;
        Instant::now()
    }
}

/// A simple random number generator. It produces the same numbers in every run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: usize) -> Random {
        Random(0x9e37_79b9_7f4a_7c15 ^ (seed as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9))
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}
