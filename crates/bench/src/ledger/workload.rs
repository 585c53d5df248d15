//! The work of the ledger: operations that each hold 1 in some limits, and are then committed.

use crate::{
    Failed,
    in_process::name,
    load::{self, Contender, Random},
    measure::Measured,
};
use limina_engine::Name;
use std::{future::Future, sync::Arc, time::Instant};

/// The ceiling of every limit. It is checked and never reached.
pub(crate) const CEILING: i64 = 1_000_000_000_000_000;

/// What operations hold.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    /// The limits from which operations choose at random.
    pub(crate) limits: Arc<[Name]>,
    /// Limits that one operation touches.
    changes: usize,
}

impl Work {
    pub(crate) fn new(limits: usize, changes: usize) -> Work {
        Work { limits: (0..limits).map(|number| name(&format!("limit-{number}"))).collect(), changes }
    }
}

/// An operation that holds 1 in each of these limits.
pub(crate) struct Operation {
    pub(crate) id: String,
    pub(crate) limits: Vec<Name>,
}

/// One connection to a contender. The effect of each call is durable when the call returns.
pub(crate) trait Client: Send + 'static {
    /// Creates limits with [`CEILING`].
    fn create(&mut self, limits: &[Name]) -> impl Future<Output = Result<(), Failed>> + Send;

    /// Holds 1 in each limit of each operation, and returns how many operations were refused.
    fn hold(&mut self, operations: &[Operation]) -> impl Future<Output = Result<u64, Failed>> + Send;

    /// Commits everything that the operations hold, and returns how many operations were refused.
    fn commit(&mut self, operations: &[Operation]) -> impl Future<Output = Result<u64, Failed>> + Send;

    /// Reads the values of a limit, the latest or as of an operation. Only Limina over HTTP implements this.
    fn values(&mut self, _: &Name, _: Option<&str>) -> impl Future<Output = Result<(), Failed>> + Send {
        async { Err("reading values is not implemented for this contender".into()) }
    }
}

pub(crate) fn operation_id(phase: &str, client: usize, number: u64) -> String {
    format!("payment-{phase}-{client}-{number}")
}

/// Creates all limits. It uses several connections because some contenders take one limit at a time.
pub(crate) async fn create<C: Contender<Client: Client>>(contender: &C, work: &Work) -> Result<(), Failed> {
    const CONNECTIONS: usize = 64;
    let share = work.limits.len().div_ceil(CONNECTIONS).max(1);
    let mut tasks = Vec::new();
    for limits in work.limits.chunks(share) {
        let (mut client, limits) = (contender.connect().await?, limits.to_vec());
        tasks.push(tokio::spawn(async move { client.create(&limits).await }));
    }
    for task in tasks {
        task.await??;
    }
    Ok(())
}

/// The operations of one client.
pub(crate) struct Operations {
    work: Work,
    phase: &'static str,
    client: usize,
    made: u64,
    random: Random,
}

impl Operations {
    /// The name of the phase is part of the operations' ids, so each phase needs another name.
    pub(crate) fn new(work: Work, phase: &'static str, client: usize) -> Operations {
        Operations { work, phase, client, made: 0, random: Random::new(client) }
    }

    /// The number of the first limit of each of the next operations.
    pub(crate) fn first_limits(&mut self, count: usize) -> Vec<u32> {
        (0..count).map(|_| self.random.below(self.work.limits.len()) as u32).collect()
    }

    fn next(&mut self, count: u64) -> Vec<Operation> {
        let Work { limits, changes } = &self.work;
        let from = self.made;
        self.made += count;
        (from..self.made)
            .map(|number| {
                let first = self.random.below(limits.len());
                Operation {
                    id: operation_id(self.phase, self.client, number),
                    limits: (0..*changes).map(|i| limits[(first + i) % limits.len()].clone()).collect(),
                }
            })
            .collect()
    }
}

/// Holds, then commits the same operations.
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
