//! The report of several nodes.

use super::{Part, moves::Move};
use crate::{
    frame::{LATENCIES, Table, latencies, name_of, optional, write_table},
    load::Load,
    measure::Measured,
};
use std::{
    fmt::{self, Write},
    time::Duration,
};

/// The goal: Limina on PostgreSQL does this many times the work that SQL does on the same server.
const WANTED: f64 = 20.0;

/// Everything that was measured.
pub(super) struct Report {
    tenure: Duration,
    pub(super) rows: Vec<Row>,
    pub(super) latencies: Vec<Latency>,
    pub(super) moves: Vec<Move>,
}

/// Work that was done as fast as possible.
pub(super) struct Row {
    pub(super) part: Part,
    pub(super) load: Load,
    /// Its server time is that of all nodes.
    pub(super) measured: Measured,
    /// Processor time of PostgreSQL.
    pub(super) database: Duration,
}

/// A request to the owner or to another node.
pub(super) struct Latency {
    pub(super) request: &'static str,
    pub(super) sent_to: &'static str,
    pub(super) connections: usize,
    pub(super) measured: Measured,
}

impl Report {
    pub(super) fn new(tenure: Duration) -> Report {
        Report { tenure, rows: Vec::new(), latencies: Vec::new(), moves: Vec::new() }
    }

    /// Refused requests, of which there should be none.
    pub(super) fn refused(&self) -> u64 {
        let rows = self.rows.iter().map(|row| row.measured.refused);
        rows.chain(self.latencies.iter().map(|latency| latency.measured.refused)).sum()
    }

    fn rate(&self, part: Part) -> Option<f64> {
        self.rows.iter().find(|row| row.part == part).map(|row| row.measured.rate())
    }

    /// The rate as a multiple of the same work in SQL with one transaction each.
    fn of_sql(&self, part: Part) -> Option<f64> {
        let sql = match part {
            Part::Ledger | Part::LedgerBatch | Part::SqlLedger => Part::SqlLedger,
            Part::Checks | Part::Counters | Part::CountersBatch | Part::SqlCounters => Part::SqlCounters,
            Part::Locks | Part::Events | Part::Latency | Part::Moves => return None,
        };
        Some(self.rate(part)? / self.rate(sql)?)
    }
}

impl Report {
    pub(super) fn write(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        self.write_rows(&mut text)?;
        self.write_latencies(&mut text)?;
        self.write_moves(&mut text)?;
        for part in [Part::LedgerBatch, Part::CountersBatch] {
            if let Some(ratio) = self.of_sql(part) {
                let name = part.name();
                writeln!(
                    text,
                    "{name} does {ratio:.1} times the work of SQL with one transaction each; the goal is {WANTED}."
                )?;
            }
        }
        Ok(text)
    }

    fn write_rows(&self, text: &mut String) -> fmt::Result {
        let mut table = Table::new(&format!(
            "work | clients × ops a request | ops/s | ÷ SQL | {LATENCIES} | CPUs nodes | CPUs PostgreSQL | CPUs client"
        ));
        for Row { part, load, measured, database } in &self.rows {
            let (nodes, own) = measured.processors();
            let database = database.as_secs_f64() / measured.elapsed.as_secs_f64();
            let mut cells = vec![
                part.name(),
                format!("{} × {}", load.connections, load.batch),
                format!("{:.0}", measured.rate()),
                optional(self.of_sql(*part), 2),
            ];
            cells.extend(latencies(measured));
            cells.extend([optional(nodes, 2), format!("{database:.2}"), format!("{own:.2}")]);
            table.rows.push(cells);
        }
        write_table(text, &table)
    }

    fn write_latencies(&self, text: &mut String) -> fmt::Result {
        let mut table = Table::new(&format!("request | sent to | clients | a second | {LATENCIES}"));
        for Latency { request, sent_to, connections, measured } in &self.latencies {
            let mut cells = vec![
                (*request).to_owned(),
                (*sent_to).to_owned(),
                connections.to_string(),
                format!("{:.0}", measured.rate()),
            ];
            cells.extend(latencies(measured));
            table.rows.push(cells);
        }
        write_table(text, &table)
    }

    fn write_moves(&self, text: &mut String) -> fmt::Result {
        let mut table = Table::new(
            "shards move by | records a shard | shards | least ms | median ms | most ms | most less the tenure",
        );
        for Move { end, records, waits } in &self.moves {
            let millis = |wait: &Duration| format!("{:.0}", wait.as_secs_f64() * 1000.0);
            let (Some(least), Some(most)) = (waits.first(), waits.last()) else { continue };
            let after_tenure = (end.waits_for_tenure()).then(|| millis(&most.saturating_sub(self.tenure)));
            table.rows.push(vec![
                name_of(end),
                records.to_string(),
                waits.len().to_string(),
                millis(least),
                millis(&waits[waits.len() / 2]),
                millis(most),
                after_tenure.unwrap_or_else(|| "–".into()),
            ]);
        }
        write_table(text, &table)
    }
}
