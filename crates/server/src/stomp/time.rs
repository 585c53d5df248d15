//! The server's time: a short series of messages on `/topic/time`, by which clients measure the offset of their clocks.

use bytes::Bytes;
use limina_stomp::Payload;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};
use tokio::sync::broadcast;

const MESSAGES: usize = 20;
const EVERY: Duration = Duration::from_millis(50);
/// The most series that run at once.
const MAX_SERIES: usize = 64;

/// Sends the time to all subscribers of `/topic/time`. Cheap to clone.
#[derive(Clone)]
pub(crate) struct TimeSync {
    sender: broadcast::Sender<Bytes>,
    series: Arc<AtomicUsize>,
}

/// The maximum number of series is running.
pub(crate) struct TooManySeries;

impl TimeSync {
    pub(crate) fn new() -> TimeSync {
        TimeSync { sender: broadcast::Sender::new(256), series: Arc::default() }
    }

    pub(super) fn listen(&self) -> broadcast::Receiver<Bytes> {
        self.sender.subscribe()
    }

    /// Starts a series. The first message comes after one interval.
    pub(crate) fn start(&self) -> Result<(), TooManySeries> {
        let begin = |running: usize| (running < MAX_SERIES).then_some(running + 1);
        self.series.fetch_update(Ordering::AcqRel, Ordering::Acquire, begin).map_err(|_| TooManySeries)?;
        let this = self.clone();
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + EVERY, EVERY);
            for _ in 0..MESSAGES {
                ticks.tick().await;
                let _no_subscriber = this.sender.send(payload());
            }
            this.series.fetch_sub(1, Ordering::AcqRel);
        });
        Ok(())
    }
}

fn payload() -> Bytes {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Payload::new("application/json", now.as_millis().to_string().as_bytes()).bytes().clone()
}
