//! What is printed of events.

use super::{By, Kind, Task, due, fan_out::Step, workload::Keys};
use crate::{
    load::Load,
    measure::{Measured, Rated, Rounds},
    report::{LATENCIES, Table, latencies, mib, optional, spread},
};
use std::fmt;

/// All that was measured.
pub(super) struct Report {
    subscribers: usize,
    rows: Vec<Rounds<Row>>,
    pub(super) fan_out: Vec<Step>,
    pub(super) due: Option<due::Figure>,
}

/// One contender to which events were submitted.
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
    pub(super) fn new(subscribers: usize) -> Report {
        Report { subscribers, rows: Vec::new(), fan_out: Vec::new(), due: None }
    }

    pub(super) fn add(&mut self, row: Row) {
        match self.rows.iter_mut().find(|rounds| rounds.median().kind == row.kind) {
            Some(rounds) => rounds.push(row),
            None => self.rows.push(Rounds::new(row)),
        }
    }

    /// Over all that was measured.
    pub(super) fn refused(&self) -> u64 {
        let rows = self.rows.iter().flat_map(Rounds::all).map(|row| &row.measured);
        let steps = self.fan_out.iter().map(|step| &step.submissions);
        let due = self.due.iter().flat_map(|figure| [&figure.before, &figure.meanwhile]);
        rows.chain(steps).chain(due).map(|measured| measured.refused).sum()
    }

    /// The rate as a multiple of that of Limina over HTTP with the same keys.
    fn ratio(&self, row: &Row) -> Option<f64> {
        let limina = match row.kind.task() {
            Task::Submissions(_, Keys::Hot) => Kind::HttpHot,
            _ => Kind::Http,
        };
        let limina = self.rows.iter().map(Rounds::median).find(|other| other.kind == limina)?;
        Some(row.rate() / limina.rate())
    }

    fn write_rows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(&format!(
            "contender | clients | submissions/s | spread | ÷ Limina HTTP | {LATENCIES} | CPUs server | CPUs client | CPU µs each | MiB"
        ));
        for rounds in &self.rows {
            let row = rounds.median();
            let mut cells = vec![
                row.kind.name(),
                row.load.connections.to_string(),
                format!("{:.0}", row.rate()),
                spread(rounds),
                optional(self.ratio(row), 2),
            ];
            cells.extend(latencies(&row.measured));
            cells.extend(processors(row));
            cells.push(format!("{:.1}", row.measured.cpu_micros()));
            cells.push(mib(row.resident));
            table.rows.push(cells);
        }
        match table.rows.is_empty() {
            true => Ok(()),
            false => writeln!(f, "{table}"),
        }
    }

    fn write_fan_out(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.fan_out.is_empty() {
            return Ok(());
        }
        let mut table = Table::new(&format!(
            "changes/s asked for | changes/s | submission p99 ms | deliveries/s | missing | {LATENCIES} | since answer p50 ms | p99 ms | CPUs server | CPUs client"
        ));
        for Step { asked, submissions, deliveries, since_answer, missing } in &self.fan_out {
            let (server, own) = deliveries.processors();
            let mut cells = vec![
                asked.to_string(),
                format!("{:.0}", submissions.rate()),
                format!("{:.2}", submissions.quantile_ms(0.99)),
                format!("{:.0}", deliveries.rate()),
                missing.to_string(),
            ];
            cells.extend(latencies(deliveries));
            cells.extend([0.5, 0.99].map(|quantile| format!("{:.2}", since_answer.quantile_ms(quantile))));
            cells.extend([optional(server, 2), format!("{own:.2}")]);
            table.rows.push(cells);
        }
        writeln!(f, "{table}")?;
        writeln!(
            f,
            "{} follow the stream. Latencies of deliveries count from when the event was to be submitted; those since its answer \
             are 0 for whoever heard of it first.\n",
            self.subscribers
        )
    }

    fn write_due(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(due::Figure { events, within, before, meanwhile }) = &self.due else { return Ok(()) };
        let mut table = Table::new(&format!("submissions | count | {LATENCIES}"));
        for (name, measured) in [("before", before), ("while they fall due", meanwhile)] {
            let mut cells = vec![name.to_owned(), measured.operations.to_string()];
            cells.extend(latencies(measured));
            table.rows.push(cells);
        }
        writeln!(f, "{table}")?;
        writeln!(f, "{events} events fell due within {:.0} ms.", within.as_secs_f64() * 1000.0)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_rows(f)?;
        self.write_fan_out(f)?;
        self.write_due(f)
    }
}

/// Of the server, and of this process. Within one process the two cannot be told apart.
fn processors(row: &Row) -> [String; 2] {
    let (server, own) = row.measured.processors();
    match row.kind.task() {
        Task::Submissions(By::InProcess, _) => [optional(Some(own), 2), optional(None, 2)],
        _ => [optional(server, 2), optional(Some(own), 2)],
    }
}
