//! The report of several nodes: rates beside plain SQL, latencies of forwarded requests, and moves of shards.

use super::{Part, Section, moves::Move};
use crate::{
    frame::{LATENCIES, Table, latencies, name_of, optional, write_table},
    load::Load,
    measure::Measured,
    summary::{Bar, Comparison, Role},
};
use std::{
    fmt::{self, Write},
    time::Duration,
};

/// The goal: Limina on PostgreSQL does this many times the work that SQL does on the same server.
const WANTED: f64 = 20.0;

/// Everything that was measured.
#[derive(Default)]
pub(super) struct Report {
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
        Some(self.rate(part)? / self.rate(part.in_sql()?)?)
    }
}

impl Part {
    /// The same work in SQL.
    fn in_sql(self) -> Option<Part> {
        match self {
            Part::Ledger | Part::LedgerBatch | Part::SqlLedger => Some(Part::SqlLedger),
            Part::Checks | Part::Counters | Part::CountersBatch | Part::SqlCounters => {
                Some(Part::SqlCounters)
            }
            Part::Locks | Part::Events | Part::Latency | Part::Moves => None,
        }
    }

    /// The words of the summary for the work.
    fn work(self) -> &'static str {
        match self {
            Part::Ledger | Part::SqlLedger => "hold or commit",
            Part::LedgerBatch => "holds and commits in batches",
            Part::Checks => "check, relaxed",
            Part::Counters | Part::SqlCounters => "check, durable",
            Part::CountersBatch => "durable checks in batches",
            Part::Locks => "acquire and release a lock",
            Part::Events => "event with its own key",
            Part::Latency | Part::Moves => "",
        }
    }
}

impl Report {
    pub(super) fn write(&self, section: Section) -> Result<String, fmt::Error> {
        let mut text = String::new();
        match section {
            Section::Work => self.write_work(&mut text)?,
            Section::Latency => self.write_latencies(&mut text)?,
            Section::Moves => self.write_moves(&mut text)?,
        }
        Ok(text)
    }

    /// What the summary shows: the nodes beside SQL, and another node beside the owner.
    pub(super) fn comparisons(&self) -> Vec<Comparison> {
        let is_sql = |row: &Row| matches!(row.part, Part::SqlLedger | Part::SqlCounters);
        let work = self.rows.iter().filter(|row| !is_sql(row)).map(|row| {
            let is_beside = |sql: &&Row| Some(sql.part) == row.part.in_sql();
            let beside = self.rows.iter().filter(is_beside);
            Comparison {
                work: row.part.work().into(),
                load: format!("{} × {}", row.load.connections, row.load.batch),
                limina: Bar::new("Limina", Role::Limina, &row.measured),
                beside: beside.map(|sql| Bar::new("SQL, one by one", Role::Rival, &sql.measured)).collect(),
            }
        });
        // The owner is measured first, and then another node, with one client and with many.
        let pairs = self.latencies.chunks_exact(2).filter(|pair| pair[0].connections > 1);
        let forwarded = pairs.map(|pair| Comparison {
            work: format!("{}, sent to {}", pair[1].request, pair[1].sent_to),
            load: format!("{} × 1", pair[1].connections),
            limina: Bar::new("Limina", Role::Limina, &pair[1].measured),
            beside: vec![Bar::new("sent to the owner", Role::Rival, &pair[0].measured)],
        });
        work.chain(forwarded).collect()
    }

    fn write_work(&self, text: &mut String) -> fmt::Result {
        self.write_rows(text)?;
        for part in [Part::LedgerBatch, Part::CountersBatch] {
            if let Some(ratio) = self.of_sql(part) {
                let name = part.name();
                writeln!(
                    text,
                    "{name} does {ratio:.1} times the work of SQL with one transaction each; the goal is {WANTED}."
                )?;
            }
        }
        Ok(())
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
        let mut table =
            Table::new("shards move by | records a shard | shards | least ms | median ms | most ms");
        for Move { end, records, waits } in &self.moves {
            let millis = |wait: &Duration| format!("{:.0}", wait.as_secs_f64() * 1000.0);
            let (Some(least), Some(most)) = (waits.first(), waits.last()) else { continue };
            table.rows.push(vec![
                name_of(end),
                records.to_string(),
                waits.len().to_string(),
                millis(least),
                millis(&waits[waits.len() / 2]),
                millis(most),
            ]);
        }
        write_table(text, &table)
    }
}
