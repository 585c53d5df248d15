//! The work, which is the same for every contender: events are submitted to one stream that allows each once within a
//! short while, and are published after it.

use crate::{
    Failed,
    load::{Pace, Work},
    measure::Measured,
};
use std::{
    future::Future,
    time::{Duration, Instant},
};

/// The stream.
pub(crate) const STREAM: &str = "bench";
/// How many keys it remembers: the most that there may be.
pub(crate) const MAX_EVENTS: u32 = 1_000_000;
/// Between two key frames: none comes in a run, but the one with which each follower begins.
pub(crate) const KEY_FRAME_EVERY: Duration = Duration::from_secs(3600);

/// One connection to a contender. What it is asked for is durable when it returns.
pub(crate) trait Client: Send + 'static {
    /// Makes the stream, or gives it another duration.
    fn put(&mut self, duration: Duration) -> impl Future<Output = Result<(), Failed>> + Send;

    /// Submits an event; whether it was accepted. It is not where its key is closed.
    fn submit(&mut self, event: &str) -> impl Future<Output = Result<bool, Failed>> + Send;
}

/// Which events a client submits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    /// Each is another one, in this phase.
    Distinct(&'static str),
    /// All clients submit the same.
    Hot,
}

/// One client's events, one after the other.
pub(crate) struct Submissions {
    keys: Keys,
    client: usize,
    made: u64,
    pace: Option<Pace>,
}

impl Submissions {
    /// As fast as they are answered.
    pub(crate) fn new(keys: Keys, client: usize) -> Submissions {
        Submissions { keys, client, made: 0, pace: None }
    }

    /// One in this time.
    pub(crate) fn paced(keys: Keys, client: usize, every: Duration) -> Submissions {
        Submissions { pace: Some(Pace::new(every, client)), ..Submissions::new(keys, client) }
    }

    fn next(&mut self) -> String {
        self.made += 1;
        match self.keys {
            Keys::Distinct(phase) => format!("{phase}-{}-{}", self.client, self.made),
            Keys::Hot => "hot".into(),
        }
    }
}

impl<C: Client> Work<C> for Submissions {
    async fn step(&mut self, client: &mut C, _: u64, measured: &mut Measured) -> Result<(), Failed> {
        let event = self.next();
        let asked = match &mut self.pace {
            Some(pace) => pace.next().await,
            None => Instant::now(),
        };
        let is_accepted = client.submit(&event).await?;
        // That a hot key is closed is what is to be found out.
        let refused = !is_accepted && self.keys != Keys::Hot;
        measured.note(1, u64::from(refused), asked.elapsed());
        Ok(())
    }
}
