//! Many events fall due within the same second, while others are submitted.
//!
//! The events are submitted in slices. The duration of each slice is the time that is left until that second.

use super::{
    Options,
    workload::{Client, Keys, Submissions},
};
use crate::{
    Failed,
    frame::Start,
    http::Http,
    load::{Contender, Load, Until, Work, drive},
    measure::Measured,
};
use std::time::{Duration, Instant};

/// The events of one slice.
const SLICE: usize = 2000;
/// Connections that submit the events that fall due.
const CONNECTIONS: usize = 256;
/// The load of other submissions, which are measured.
const PROBES: Load = Load { connections: 16, batch: 1 };
const PROBES_A_SECOND: usize = 400;
/// The duration of events that do not fall due in a run.
const LATER: Duration = Duration::from_secs(24 * 3600);
/// The measurement begins this long before the first event is due, and ends this long after the last.
const AROUND: Duration = Duration::from_millis(500);

pub(crate) struct Figure {
    pub(crate) events: usize,
    /// Time between the first event that is due and the last.
    pub(crate) within: Duration,
    /// Submissions while no event was due.
    pub(crate) before: Measured,
    /// Submissions while the events fell due.
    pub(crate) meanwhile: Measured,
}

pub(crate) async fn measure(options: &Options, start: Start<'_>) -> Result<Figure, Failed> {
    let seconds = options.common.seconds;
    let server = Http::limina(start.program, start.directory)?;
    let mut client = server.connect().await?;
    // Measure how long one slice takes, to choose an instant by which all of them can be submitted.
    Client::put(&mut client, LATER).await?;
    let load = Load { connections: CONNECTIONS.min(options.due), batch: 1 };
    let slice = SLICE.min(options.due);
    let submit = async |from: usize, count: usize| {
        let events = |number| Slice { next: from + number, step: load.connections, end: from + count };
        drive(&server, load, Until::Finished((count + load.connections) as u64), events).await
    };
    let taken = submit(0, slice).await?.elapsed.max(Duration::from_millis(10));
    let slices = options.due.div_ceil(slice) as u32;
    let due = Instant::now() + taken * slices * 3 + seconds + Duration::from_secs(1);

    let mut slowest = Duration::ZERO;
    let mut submitted = slice;
    while submitted < options.due + slice {
        let left = due.saturating_duration_since(Instant::now());
        if left < seconds + AROUND {
            return Err("too slow: the first events fall due before the last are submitted".into());
        }
        Client::put(&mut client, left).await?;
        let count = slice.min(options.due + slice - submitted);
        slowest = slowest.max(submit(submitted, count).await?.elapsed);
        submitted += count;
    }
    Client::put(&mut client, LATER).await?;
    let every = Duration::from_secs_f64(PROBES.connections as f64 / PROBES_A_SECOND as f64);
    let probe = async |phase, time| {
        let events = |client| Submissions::paced(Keys::Distinct(phase), client, every);
        drive(&server, PROBES, Until::Time(time), events).await
    };
    let before = probe("before", seconds.min(due - AROUND - Instant::now())).await?;
    tokio::time::sleep_until((due - AROUND).into()).await;
    let meanwhile = probe("meanwhile", AROUND + slowest + AROUND).await?;
    server.stop().await?;
    Ok(Figure { events: options.due, within: slowest, before, meanwhile })
}

/// Submits every `step`-th event, up to `end`.
struct Slice {
    next: usize,
    step: usize,
    end: usize,
}

impl<C: Client> Work<C> for Slice {
    async fn step(&mut self, client: &mut C, _: u64, measured: &mut Measured) -> Result<(), Failed> {
        if self.next < self.end {
            let asked = Instant::now();
            let is_accepted = client.submit(&format!("due-{}", self.next)).await?;
            measured.note(1, u64::from(!is_accepted), asked.elapsed());
            self.next += self.step;
        }
        Ok(())
    }
}
