//! Clients that send the same bytes again and again, so that they take little of the processors.

use crate::{
    Failed,
    http::{self, Connection, Http},
    limiter::workload::client_name,
    load::{Contender, Pace},
    measure::Measured,
};
use std::{
    fmt::Write,
    sync::Arc,
    time::{Duration, Instant},
};

/// Answers, by what they were.
pub(super) struct Tally {
    pub(super) accepted: Measured,
    pub(super) refused: Measured,
    /// All answers.
    pub(super) answers: Vec<Answer>,
}

#[derive(Clone, Copy)]
pub(super) struct Answer {
    pub(super) at: Instant,
    pub(super) took: Duration,
    pub(super) is_accepted: bool,
}

impl Tally {
    fn new() -> Tally {
        Tally { accepted: Measured::new(), refused: Measured::new(), answers: Vec::new() }
    }

    fn note(&mut self, answer: Answer) {
        self.answers.push(answer);
    }

    fn add(&mut self, other: Tally) {
        for answer in &other.answers {
            let measured = if answer.is_accepted { &mut self.accepted } else { &mut self.refused };
            measured.note(1, 0, answer.took);
        }
        self.answers.extend(other.answers);
    }

    fn set_elapsed(&mut self, elapsed: Duration) {
        (self.accepted.elapsed, self.refused.elapsed) = (elapsed, elapsed);
    }
}

/// A request with so many checks.
pub(super) fn request(batch: usize) -> Arc<str> {
    let mut body = r#"{"checks":["#.to_owned();
    for number in 0..batch {
        let comma = if number > 0 { "," } else { "" };
        let client = client_name(number);
        write!(body, r#"{comma}{{"key_values":{{"client":"{client}"}}}}"#).expect("a string takes any text");
    }
    body.push_str("]}");
    http::request("POST", "/v1/limiter/check/batch", &body).into()
}

/// Clients that send the same request over their own connections.
pub(super) struct Clients {
    request: Arc<str>,
    connections: Vec<Connection>,
}

impl Clients {
    pub(super) async fn connect(server: &Http, request: &Arc<str>, number: usize) -> Result<Clients, Failed> {
        let mut connections = Vec::new();
        for _ in 0..number {
            connections.push(server.connect().await?);
        }
        Ok(Clients { request: request.clone(), connections })
    }

    /// Each client sends its next request when the last one is answered.
    pub(super) async fn as_fast_as_answered(&mut self, time: Duration) -> Result<Tally, Failed> {
        let begin = Instant::now();
        let (_, tally) = self.run(None, begin, begin + time).await?;
        Ok(tally)
    }

    /// Together the clients send so many requests a second, however fast they are answered. The latency of a request counts
    /// from when it was due. The second result is for the requests from `split` on.
    pub(super) async fn at_rate(
        &mut self,
        a_second: f64,
        split: Instant,
        until: Instant,
    ) -> Result<(Tally, Tally), Failed> {
        let every = Duration::from_secs_f64(self.connections.len() as f64 / a_second);
        self.run(Some(every), split, until).await
    }

    async fn run(
        &mut self,
        every: Option<Duration>,
        split: Instant,
        until: Instant,
    ) -> Result<(Tally, Tally), Failed> {
        let begin = Instant::now();
        let mut tasks = Vec::new();
        for (number, connection) in self.connections.drain(..).enumerate() {
            let pace = every.map(|every| Pace::new(every, number));
            tasks.push(tokio::spawn(client(connection, self.request.clone(), pace, split, until)));
        }
        let (mut before, mut after) = (Tally::new(), Tally::new());
        for task in tasks {
            let (connection, [first, second]) = task.await??;
            before.add(first);
            after.add(second);
            self.connections.push(connection);
        }
        before.set_elapsed(split.saturating_duration_since(begin));
        after.set_elapsed(split.max(begin).elapsed());
        Ok((before, after))
    }
}

async fn client(
    mut connection: Connection,
    request: Arc<str>,
    mut pace: Option<Pace>,
    split: Instant,
    until: Instant,
) -> Result<(Connection, [Tally; 2]), Failed> {
    let mut tallies = [Tally::new(), Tally::new()];
    loop {
        let from = match &mut pace {
            Some(pace) => pace.next().await,
            None => Instant::now(),
        };
        if from >= until {
            return Ok((connection, tallies));
        }
        let is_accepted = match connection.exchange(&request).await? {
            (200, _) => true,
            (503, _) => false,
            (status, body) => return Err(http::unexpected(status, body)),
        };
        let answer = Answer { at: Instant::now(), took: from.elapsed(), is_accepted };
        tallies[usize::from(from >= split)].note(answer);
    }
}
