//! Clients that ask again and again, each waiting for its answer, and how long that takes.

use crate::{Failed, machine, measure::Measured};
use std::{
    future::Future,
    time::{Duration, Instant},
};

/// How something is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// Clients at the same time, each waiting for its answer before it asks again.
    pub(crate) connections: usize,
    /// Operations in one request.
    pub(crate) batch: usize,
}

/// When it is enough.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Until {
    /// After this time.
    Time(Duration),
    /// When so many operations are finished.
    Finished(u64),
}

/// Somebody who can be asked to do the work.
pub(crate) trait Contender: Sync {
    type Client: Send + 'static;

    /// A new connection.
    fn connect(&self) -> impl Future<Output = Result<Self::Client, Failed>> + Send;

    /// Its process, unless it is part of this one.
    fn process(&self) -> Option<u32>;

    /// Processor time that it has taken so far, unless it is part of this process.
    fn cpu_time(&self) -> Option<Duration> {
        self.process().map(machine::family_cpu_time)
    }

    /// Ends it.
    fn stop(self) -> impl Future<Output = Result<(), Failed>> + Send;
}

/// What one client does, again and again.
pub(crate) trait Work<C>: Send + 'static {
    /// Does so many operations over this connection, and notes each request.
    fn step(
        &mut self,
        client: &mut C,
        count: u64,
        measured: &mut Measured,
    ) -> impl Future<Output = Result<(), Failed>> + Send;
}

/// Has the work done: `work` is that of a client, by its number.
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
    // Only now: a server may have a process per connection, whose time must still be there to be read.
    drop(clients);
    Ok(total)
}

/// One client's part.
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
    while left > 0 && !matches!(until, Until::Time(time) if begin.elapsed() >= time) {
        let count = left.min(load.batch as u64);
        left -= count;
        work.step(&mut client, count, &mut measured).await?;
    }
    Ok((measured, client))
}

/// A client's times at which it asks for something, whether others were answered by then or not.
pub(crate) struct Pace {
    every: Duration,
    due: Instant,
}

impl Pace {
    /// Once in this time, beginning at some moment within it, so that clients do not ask in step.
    pub(crate) fn new(every: Duration, client: usize) -> Pace {
        let share = Random::new(client).below(1000) as u32;
        Pace { every, due: Instant::now() + every * share / 1000 }
    }

    /// Waits until the next is due, and returns since when it is. An answer that came late has kept somebody waiting; a
    /// timer that goes off late has not.
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

/// Enough chance for choosing among things; the same in every run.
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
