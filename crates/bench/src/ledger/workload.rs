//! The work, which is the same for every contender: operations that each hold 1 in some limits, and are then
//! committed.

use crate::{Failed, machine, measure::Measured};
use std::{
    future::Future,
    ops::Range,
    time::{Duration, Instant},
};

/// Every limit has this ceiling: it is checked, and never reached.
pub(crate) const CEILING: i64 = 1_000_000_000_000_000;

/// What is held where.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    /// Limits to choose from, at random.
    pub(crate) limits: usize,
    /// Limits that one operation touches.
    pub(crate) changes: usize,
}

/// How it is asked for.
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

/// An operation that holds 1 in each of these limits.
pub(crate) struct Operation {
    pub(crate) id: String,
    pub(crate) limits: Vec<usize>,
}

/// Somebody who can be asked to do the work.
pub(crate) trait Contender: Sync {
    type Client: Client;

    /// A new connection.
    fn connect(&self) -> impl Future<Output = Result<Self::Client, Failed>> + Send;

    /// Its process, unless it is part of this one.
    fn process(&self) -> Option<u32>;

    /// Ends it.
    fn stop(self) -> impl Future<Output = Result<(), Failed>> + Send;
}

/// One connection to a contender. What it is asked for is durable when it returns.
pub(crate) trait Client: Send + 'static {
    /// Makes limits with [`CEILING`].
    fn create(&mut self, limits: Range<usize>) -> impl Future<Output = Result<(), Failed>> + Send;

    /// Holds 1 in each limit of each operation, and returns how many operations were refused.
    fn hold(&mut self, operations: &[Operation]) -> impl Future<Output = Result<u64, Failed>> + Send;

    /// Commits all that the operations hold, and returns how many were refused.
    fn commit(&mut self, operations: &[Operation]) -> impl Future<Output = Result<u64, Failed>> + Send;
}

pub(crate) fn limit_name(number: usize) -> String {
    format!("limit-{number}")
}

pub(crate) fn operation_id(phase: &str, client: usize, number: u64) -> String {
    format!("payment-{phase}-{client}-{number}")
}

/// Makes all limits, with several connections, since some contenders take one at a time.
pub(crate) async fn create<C: Contender>(contender: &C, work: Work) -> Result<(), Failed> {
    const CONNECTIONS: usize = 64;
    let share = work.limits.div_ceil(CONNECTIONS).max(1);
    let mut tasks = Vec::new();
    for from in (0..work.limits).step_by(share) {
        let mut client = contender.connect().await?;
        let limits = from..(from + share).min(work.limits);
        tasks.push(tokio::spawn(async move { client.create(limits).await }));
    }
    for task in tasks {
        task.await??;
    }
    Ok(())
}

/// Has the work done. `phase` is part of the operations' ids, so it must be another one each time.
pub(crate) async fn drive<C: Contender>(
    contender: &C,
    work: Work,
    load: Load,
    phase: &'static str,
    until: Until,
) -> Result<Measured, Failed> {
    let mut clients = Vec::new();
    for _ in 0..load.connections {
        clients.push(contender.connect().await?);
    }
    let cpu = || (contender.process().map(machine::family_cpu_time), machine::cpu_time(std::process::id()));
    let (server_before, own_before) = cpu();
    let begin = Instant::now();
    let tasks: Vec<_> = (clients.into_iter().enumerate())
        .map(|(number, client)| {
            let operations = Operations::new(work, phase, number);
            tokio::spawn(repeat(client, operations, load, begin, until))
        })
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

/// One client's part: holds, then commits the same, and so on.
async fn repeat<C: Client>(
    mut client: C,
    mut operations: Operations,
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
        let operations = operations.next(count);
        let asked = Instant::now();
        let refused = client.hold(&operations).await?;
        measured.note(count, refused, asked.elapsed());
        let asked = Instant::now();
        let refused = client.commit(&operations).await?;
        measured.note(count, refused, asked.elapsed());
    }
    Ok((measured, client))
}

/// One client's operations, one after the other.
struct Operations {
    work: Work,
    phase: &'static str,
    client: usize,
    made: u64,
    random: Random,
}

impl Operations {
    fn new(work: Work, phase: &'static str, client: usize) -> Operations {
        Operations { work, phase, client, made: 0, random: Random::new(client) }
    }

    fn next(&mut self, count: u64) -> Vec<Operation> {
        let Work { limits, changes } = self.work;
        let from = self.made;
        self.made += count;
        (from..self.made)
            .map(|number| {
                let first = self.random.below(limits);
                Operation {
                    id: operation_id(self.phase, self.client, number),
                    limits: (0..changes).map(|i| (first + i) % limits).collect(),
                }
            })
            .collect()
    }
}

/// Enough chance for choosing limits; the same in every run.
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
