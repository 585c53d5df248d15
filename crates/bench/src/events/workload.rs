//! The work of events: clients submit events to one stream that accepts each key once within a short time. Then the event
//! is published.

use crate::{
    Failed,
    load::{Pace, Work},
    measure::Measured,
};
use std::{
    future::Future,
    time::{Duration, Instant},
};

/// The name of the stream.
pub(crate) const STREAM: &str = "bench";
/// Keys that the stream remembers: the largest number that Limina allows.
pub(crate) const MAX_EVENTS: u32 = 1_000_000;
/// The interval between two key frames. In a run, followers receive only the key frame with which they begin.
pub(crate) const KEY_FRAME_EVERY: Duration = Duration::from_secs(3600);

/// One connection to a contender. The effect of each call is durable when the call returns.
pub(crate) trait Client: Send + 'static {
    /// Creates the stream, or changes its duration.
    fn put(&mut self, duration: Duration) -> impl Future<Output = Result<(), Failed>> + Send;

    /// Submits an event, and returns whether it was accepted. It is refused if its key is closed.
    fn submit(&mut self, event: &str) -> impl Future<Output = Result<bool, Failed>> + Send;
}

/// The keys of the events that a client submits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    /// Each event has its own key, which contains the name of this phase.
    Distinct(&'static str),
    /// All clients submit the same event.
    Hot,
}

/// The events of one client.
pub(crate) struct Submissions {
    keys: Keys,
    client: usize,
    made: u64,
    pace: Option<Pace>,
}

impl Submissions {
    /// Submits as fast as the answers arrive.
    pub(crate) fn new(keys: Keys, client: usize) -> Submissions {
        Submissions { keys, client, made: 0, pace: None }
    }

    /// Submits one event in each interval of this length.
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
        // The key of a hot event is closed most of the time, so its refusals are expected.
        let refused = !is_accepted && self.keys != Keys::Hot;
        measured.note(1, u64::from(refused), asked.elapsed());
        Ok(())
    }
}
