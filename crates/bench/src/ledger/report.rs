//! What is printed of the ledger.

use super::Kind;
use crate::{
    load::Load,
    measure::Measured,
    report::{Table, latencies, mib, optional},
};
use std::fmt;

/// All that was measured.
#[derive(Default)]
pub(super) struct Report {
    pub(super) rows: Vec<Row>,
}

/// One contender.
pub(super) struct Row {
    pub(super) kind: Kind,
    pub(super) load: Load,
    pub(super) empty: Measured,
    pub(super) empty_resident: Option<u64>,
    pub(super) filled: Option<Filled>,
}

/// The same after many operations.
pub(super) struct Filled {
    /// Of the filling itself.
    pub(super) fill: Measured,
    pub(super) again: Measured,
    pub(super) resident: Option<u64>,
    pub(super) values: Option<Values>,
}

/// Reading values over HTTP.
pub(super) struct Values {
    pub(super) latest: Measured,
    /// As of an operation that held something in the limit.
    pub(super) as_of_own: Measured,
    /// As of any operation.
    pub(super) as_of_any: Measured,
}

impl Report {
    /// Over all rows.
    pub(super) fn refused(&self) -> u64 {
        let filled =
            |row: &Row| row.filled.as_ref().map_or(0, |filled| filled.fill.refused + filled.again.refused);
        self.rows.iter().map(|row| row.empty.refused + filled(row)).sum()
    }

    fn rate(&self, kind: Kind) -> Option<f64> {
        self.rows.iter().find(|row| row.kind == kind).map(|row| row.empty.rate())
    }

    /// The rate as a multiple of Limina's over HTTP, asked in the same way.
    fn ratio(&self, row: &Row) -> Option<f64> {
        let limina = if row.kind.is_batched() { Kind::HttpBatch } else { Kind::Http };
        Some(row.empty.rate() / self.rate(limina)?)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(
            "contender | clients × ops a request | ops/s | ÷ Limina HTTP | p50 ms | p99 ms | p99.9 ms | max ms | refused | CPUs server | CPUs client",
        );
        for row in &self.rows {
            let (server, own) = row.empty.processors();
            // Within one process the two cannot be told apart.
            let (server, own) = server.map_or((Some(own), None), |server| (Some(server), Some(own)));
            let mut cells = vec![
                row.kind.name(),
                format!("{} × {}", row.load.connections, row.load.batch),
                format!("{:.0}", row.empty.rate()),
                optional(self.ratio(row), 2),
            ];
            cells.extend(latencies(&row.empty));
            cells.extend([row.empty.refused.to_string(), optional(server, 1), optional(own, 1)]);
            table.rows.push(cells);
        }
        writeln!(f, "{table}")?;
        writeln!(f, "An op is one hold or one commit; a latency is that of a request, with all its ops.")?;
        if let (Some(http), Some(echo)) = (self.rate(Kind::Http), self.rate(Kind::Echo)) {
            let ratio = http / echo;
            writeln!(
                f,
                "Limina over HTTP, one op a request, does {ratio:.2} of what the bare echo server does."
            )?;
        }
        self.write_filled(f)
    }
}

impl Report {
    fn write_filled(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let filled = self.rows.iter().filter_map(|row| Some((row, row.filled.as_ref()?)));
        let mut table = Table::new(
            "contender | operations filled in | at ops/s | ops/s then | ÷ empty | p50 ms | p99 ms | p99.9 ms | max ms | MiB empty | MiB then",
        );
        let mut values_table =
            Table::new("values of one limit, one client | reads/s | p50 ms | p99 ms | p99.9 ms | max ms");
        for (row, filled) in filled {
            let Filled { fill, again, resident, values } = filled;
            let mut cells = vec![
                row.kind.name(),
                (fill.operations / 2).to_string(),
                format!("{:.0}", fill.rate()),
                format!("{:.0}", again.rate()),
                format!("{:.2}", again.rate() / row.empty.rate()),
            ];
            cells.extend(latencies(again));
            // PostgreSQL is many processes, of which one says little.
            let is_many = matches!(row.kind, Kind::Postgres | Kind::PostgresBatch);
            let mib = |bytes: Option<u64>| mib(bytes.filter(|_| !is_many));
            cells.extend([mib(row.empty_resident), mib(*resident)]);
            table.rows.push(cells);
            if let Some(Values { latest, as_of_own, as_of_any }) = values {
                for (name, measured) in [
                    ("latest", latest),
                    ("as of an operation that held in it", as_of_own),
                    ("as of any operation", as_of_any),
                ] {
                    let mut cells = vec![name.to_owned(), format!("{:.0}", measured.rate())];
                    cells.extend(latencies(measured));
                    values_table.rows.push(cells);
                }
            }
        }
        for table in [table, values_table].iter().filter(|table| !table.rows.is_empty()) {
            write!(f, "\n{table}")?;
        }
        Ok(())
    }
}
