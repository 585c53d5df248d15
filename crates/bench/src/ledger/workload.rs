//! The work, which is the same for every contender: operations that each hold 1 in some limits, and are then
//! committed.

use crate::{
    Failed,
    load::{self, Contender, Random},
    measure::Measured,
};
use std::{future::Future, ops::Range, time::Instant};

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

/// An operation that holds 1 in each of these limits.
pub(crate) struct Operation {
    pub(crate) id: String,
    pub(crate) limits: Vec<usize>,
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
pub(crate) async fn create<C: Contender<Client: Client>>(contender: &C, work: Work) -> Result<(), Failed> {
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

/// One client's operations, one after the other.
pub(crate) struct Operations {
    work: Work,
    phase: &'static str,
    client: usize,
    made: u64,
    random: Random,
}

impl Operations {
    /// `phase` is part of the operations' ids, so it must be another one each time.
    pub(crate) fn new(work: Work, phase: &'static str, client: usize) -> Operations {
        Operations { work, phase, client, made: 0, random: Random::new(client) }
    }

    /// The first limit of each of the next operations.
    pub(crate) fn first_limits(&mut self, count: usize) -> Vec<u32> {
        (0..count).map(|_| self.random.below(self.work.limits) as u32).collect()
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

/// Holds, then commits the same, and so on.
impl<C: Client> load::Work<C> for Operations {
    async fn step(&mut self, client: &mut C, count: u64, measured: &mut Measured) -> Result<(), Failed> {
        let operations = self.next(count);
        let asked = Instant::now();
        let refused = client.hold(&operations).await?;
        measured.note(count, refused, asked.elapsed());
        let asked = Instant::now();
        let refused = client.commit(&operations).await?;
        measured.note(count, refused, asked.elapsed());
        Ok(())
    }
}
