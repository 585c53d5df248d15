//! What is printed of locks.

use super::{By, Kind, Task};
use crate::{
    load::Load,
    measure::{Measured, Rated, Rounds},
    report::{LATENCIES, Table, latencies, mib, optional, spread},
};
use std::{fmt, time::Duration};

/// All that was measured.
pub(super) struct Report {
    /// So many were held while heartbeats were sent.
    locks: usize,
    /// After so long on average those who cannot wait asked again.
    poll: Duration,
    rows: Vec<Rounds<Row>>,
}

/// One contender with one task.
pub(super) struct Row {
    pub(super) kind: Kind,
    pub(super) load: Load,
    pub(super) measured: Measured,
    pub(super) resident: Option<u64>,
}

impl Rated for Row {
    fn rate(&self) -> f64 {
        self.measured.rate()
    }
}

impl Report {
    pub(super) fn new(locks: usize, poll: Duration) -> Report {
        Report { locks, poll, rows: Vec::new() }
    }

    pub(super) fn add(&mut self, row: Row) {
        match self.rows.iter_mut().find(|rounds| rounds.median().kind == row.kind) {
            Some(rounds) => rounds.push(row),
            None => self.rows.push(Rounds::new(row)),
        }
    }

    /// Over all rows.
    pub(super) fn refused(&self) -> u64 {
        self.rows.iter().flat_map(Rounds::all).map(|row| row.measured.refused).sum()
    }

    fn rate(&self, kind: Kind) -> Option<f64> {
        self.rows.iter().map(Rounds::median).find(|row| row.kind == kind).map(Rated::rate)
    }

    /// The rate as a multiple of that of Limina over HTTP with the same task.
    fn ratio(&self, row: &Row) -> Option<f64> {
        let limina = match row.kind.task() {
            Task::Pairs => Kind::Http,
            Task::Contended => Kind::HttpContended,
            Task::Heartbeats => Kind::HttpHeartbeats,
            // It is asked for, not found.
            Task::Paced => return None,
        };
        Some(row.rate() / self.rate(limina)?)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(&format!(
            "contender | clients | a second | spread | ÷ Limina HTTP | {LATENCIES} | CPUs server | CPUs client | CPU µs each | MiB"
        ));
        for rounds in &self.rows {
            let row = rounds.median();
            let (server, own) = row.measured.processors();
            // Within one process the two cannot be told apart.
            let (server, own) = server.map_or((Some(own), None), |server| (Some(server), Some(own)));
            let mut cells = vec![
                row.kind.name(),
                row.load.connections.to_string(),
                format!("{:.0}", row.rate()),
                spread(rounds),
                optional(self.ratio(row), 2),
            ];
            cells.extend(latencies(&row.measured));
            cells.extend([optional(server, 2), optional(own, 2)]);
            cells.push(format!("{:.1}", row.measured.cpu_micros()));
            cells.push(mib(row.resident));
            table.rows.push(cells);
        }
        writeln!(f, "{table}")?;
        writeln!(
            f,
            "What is counted is pairs of holding and releasing, or heartbeats with {} locks held. A latency is that of a pair or a \
             heartbeat; with contention, from sending a release to the next holder's receipt of its grant.",
            self.locks
        )?;
        let medians = || self.rows.iter().map(Rounds::median);
        if medians().any(|row| row.kind == Kind::RedisContended) {
            let poll = self.poll.as_secs_f64() * 1000.0;
            writeln!(
                f,
                "Nobody can wait for a lock in Redis: who is refused asks again after {poll} ms on average."
            )?;
        }
        if let (Some(http), Some(echo)) = (self.rate(Kind::Http), self.rate(Kind::Echo)) {
            writeln!(
                f,
                "Limina over HTTP does {:.2} of the pairs that the bare echo server does.",
                http / echo
            )?;
        }
        for row in medians().filter(|row| row.kind.task() == Task::Paced && matches!(row.kind.by(), By::Http))
        {
            let (server, _) = row.measured.processors();
            let server = optional(server, 2);
            writeln!(f, "At {:.0} heartbeats a second the server takes {server} of a core.", row.rate())?;
        }
        Ok(())
    }
}
