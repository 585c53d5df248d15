//! How long clients wait for shards whose node is stopped or killed, if they send their requests to another node.

use super::nodes::Nodes;
use crate::{
    Failed,
    http::{Connection, unexpected},
    limiter::{
        http::create_counters,
        workload::{Case, Client},
    },
    load::Contender,
};
use clap::ValueEnum;
use rustix::process::Signal;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

/// Records that one request creates.
const BATCH: usize = 1000;
/// Pause of a client between two requests, so that the clients need little processor time.
const PAUSE: Duration = Duration::from_millis(5);

/// How a node ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum End {
    /// It is stopped and hands its shards over
    HandOver,
    /// It is killed, and its shards are taken over
    TakeOver,
}

impl End {
    fn signal(self) -> Signal {
        match self {
            End::HandOver => Signal::TERM,
            End::TakeOver => Signal::KILL,
        }
    }
}

/// The waits for the shards of one node.
pub(super) struct Move {
    pub(super) end: End,
    /// Records in memory, in each shard.
    pub(super) records: usize,
    /// The longest wait of a client, for each shard, in ascending order.
    pub(super) waits: Vec<Duration>,
}

/// Measures both ends for each number of records.
pub(super) async fn measure(nodes: &mut Nodes, records: &[usize]) -> Result<Vec<Move>, Failed> {
    let mut residents = Residents::make(nodes).await?;
    let mut moves = Vec::new();
    for &records in records {
        for end in [End::HandOver, End::TakeOver] {
            moves.push(measure_end(nodes, &mut residents, records, end).await?);
            nodes.add()?;
        }
    }
    Ok(moves)
}

/// Ends the last node while clients send requests to the first one.
async fn measure_end(
    nodes: &mut Nodes,
    residents: &mut Residents,
    records: usize,
    end: End,
) -> Result<Move, Failed> {
    let owners = nodes.owners().await?;
    let ending = nodes.remove_last();
    let number = nodes.count();
    let shards: Vec<usize> = (0..owners.len()).filter(|shard| owners[*shard] == number).collect();
    residents.fill(nodes, &shards, records).await?;

    let is_over = Arc::new(AtomicBool::new(false));
    let mut asking = JoinSet::new();
    for &shard in &shards {
        let connection = residents.connect(nodes, shard).await?;
        asking.spawn(ask(connection, is_over.clone()));
    }
    let begin = Instant::now();
    ending.signal(end.signal());
    nodes.until_served().await?;
    is_over.store(true, Ordering::Relaxed);
    let mut waits = Vec::new();
    while let Some(answers) = asking.join_next().await {
        waits.extend(longest_after(begin, &answers??));
    }
    waits.sort();
    ending.stop().await?;
    Ok(Move { end, records, waits })
}

/// When an answer arrived, and how long the client had waited for it.
type Answer = (Instant, Duration);

/// Sends requests until `is_over`, and one more.
async fn ask(mut connection: Connection, is_over: Arc<AtomicBool>) -> Result<Vec<Answer>, Failed> {
    let mut answers = Vec::new();
    loop {
        let is_last = is_over.load(Ordering::Relaxed);
        let asked = Instant::now();
        while !take_one(&mut connection).await? {
            tokio::time::sleep(PAUSE).await;
        }
        answers.push((Instant::now(), asked.elapsed()));
        if is_last {
            return Ok(answers);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Adds 1 to a counter. Returns false if the shard is not served, or its node died with the request.
async fn take_one(connection: &mut Connection) -> Result<bool, Failed> {
    connection.json = r#"{"key_values":{"client":"client-0"}}"#.into();
    match connection.post("/limiter/check").await? {
        (200, _) => Ok(true),
        (503, _) => Ok(false),
        (status, body) => Err(unexpected(status, body)),
    }
}

/// The longest wait that ended after this instant.
fn longest_after(begin: Instant, answers: &[Answer]) -> Option<Duration> {
    answers.iter().filter(|(at, _)| *at > begin).map(|(_, wait)| *wait).max()
}

/// Counters that fill the memory of shards.
struct Residents {
    namespaces: Vec<String>,
    /// The number of counters in each shard.
    filled: Vec<usize>,
}

impl Residents {
    async fn make(nodes: &Nodes) -> Result<Residents, Failed> {
        let shards = nodes.owners().await?.len();
        let namespaces = nodes.namespaces("residents", shards).await?;
        let residents = Residents { namespaces, filled: vec![0; shards] };
        for shard in 0..shards {
            create_counters(&mut residents.connect(nodes, shard).await?).await?;
        }
        Ok(residents)
    }

    /// Connects to the node that is never removed.
    async fn connect(&self, nodes: &Nodes, shard: usize) -> Result<Connection, Failed> {
        let mut connection = nodes.first().connect().await?;
        connection.enter(&self.namespaces[shard]);
        Ok(connection)
    }

    /// Creates counters until each of these shards has this many.
    async fn fill(&mut self, nodes: &Nodes, shards: &[usize], records: usize) -> Result<(), Failed> {
        let mut tasks = JoinSet::new();
        for &shard in shards {
            let missing = self.filled[shard]..records;
            self.filled[shard] = records;
            let mut connection = self.connect(nodes, shard).await?;
            tasks.spawn(async move {
                let subjects: Vec<usize> = missing.collect();
                for some in subjects.chunks(BATCH) {
                    if connection.check(Case::simple(records), some).await? > 0 {
                        return Err(Failed::from("a counter was refused"));
                    }
                }
                Ok(())
            });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_waits_that_end_later_count() {
        let begin = Instant::now();
        let at = |millis| begin + Duration::from_millis(millis);
        let answer = |millis, wait| (at(millis), Duration::from_millis(wait));
        assert_eq!(
            longest_after(at(5), &[answer(5, 9), answer(6, 2), answer(7, 1)]),
            Some(Duration::from_millis(2))
        );
        assert_eq!(longest_after(at(5), &[answer(5, 9)]), None);
    }
}
