//! One row for each contender, and the table of them.

use super::{Kind, LATENCIES, Table, latencies, mib, optional, spread};
use crate::{
    load::Load,
    measure::{Measured, Rated, Rounds},
    summary::{Bar, Comparison, Role},
};

/// One measurement of one contender.
pub(crate) struct Row<K> {
    pub(crate) kind: K,
    pub(crate) load: Load,
    pub(crate) measured: Measured,
    /// Resident memory after the measurement, if it is known.
    pub(crate) resident: Option<u64>,
}

impl<K> Rated for Row<K> {
    fn rate(&self) -> f64 {
        self.measured.rate()
    }
}

/// All rows of a run, with all rounds of each.
pub(crate) struct Rows<K>(Vec<Rounds<Row<K>>>);

impl<K> Default for Rows<K> {
    fn default() -> Self {
        Rows(Vec::new())
    }
}

impl<K: Kind> Extend<Row<K>> for Rows<K> {
    fn extend<I: IntoIterator<Item = Row<K>>>(&mut self, rows: I) {
        for row in rows {
            match self.0.iter_mut().find(|rounds| rounds.median().kind == row.kind) {
                Some(rounds) => rounds.push(row),
                None => self.0.push(Rounds::new(row)),
            }
        }
    }
}

impl<K: Kind> Rows<K> {
    /// The median round of each kind.
    pub(crate) fn medians(&self) -> impl Iterator<Item = &Row<K>> {
        self.0.iter().map(Rounds::median)
    }

    /// The median rate of a kind, if it was measured.
    pub(crate) fn rate(&self, kind: K) -> Option<f64> {
        self.medians().find(|row| row.kind == kind).map(Rated::rate)
    }

    /// The rate of one kind as a multiple of another's.
    pub(crate) fn ratio(&self, kind: K, to: K) -> Option<f64> {
        Some(self.rate(kind)? / self.rate(to)?)
    }

    /// Refused operations of all rounds.
    pub(crate) fn refused(&self) -> u64 {
        self.0.iter().flat_map(Rounds::all).map(|row| row.measured.refused).sum()
    }

    /// What the summary shows: each row that is its own baseline, beside those that are compared with it.
    pub(crate) fn comparisons(&self) -> impl Iterator<Item = Comparison> {
        let bar = |row: &Row<K>, (contender, role): (&str, Role)| Bar::new(contender, role, &row.measured);
        let is_limina = |row: &&Row<K>| row.kind.baseline() == Some(row.kind);
        self.medians().filter(is_limina).map(move |limina| {
            let is_beside =
                |row: &&Row<K>| row.kind != limina.kind && row.kind.baseline() == Some(limina.kind);
            let beside = self.medians().filter(is_beside).map(|row| bar(row, row.kind.contender()));
            Comparison {
                work: limina.kind.work().into(),
                load: format!("{} × {}", limina.load.connections, limina.load.batch),
                limina: bar(limina, (limina.kind.contender().0, Role::Limina)),
                beside: beside.collect(),
            }
        })
    }

    /// The table of all rows; `unit` is what the rates count.
    pub(crate) fn table(&self, unit: &str) -> Table {
        let mut table = Table::new(&format!(
            "contender | clients × {unit} a request | {unit}/s | spread | ÷ Limina HTTP | {LATENCIES} | refused | CPUs server | CPUs client | CPU µs each | MiB"
        ));
        for rounds in &self.0 {
            let Row { kind, load, measured, resident } = rounds.median();
            let (server, own) = measured.processors();
            // Limina in this process and its clients share one figure.
            let (server, own) = server.map_or((Some(own), None), |server| (Some(server), Some(own)));
            let ratio = kind.baseline().and_then(|limina| self.ratio(*kind, limina));
            let mut cells = vec![
                kind.name(),
                format!("{} × {}", load.connections, load.batch),
                format!("{:.0}", measured.rate()),
                spread(rounds),
                optional(ratio, 2),
            ];
            cells.extend(latencies(measured));
            cells.extend([measured.refused.to_string(), optional(server, 2), optional(own, 2)]);
            cells.extend([format!("{:.2}", measured.cpu_micros()), mib(*resident)]);
            table.rows.push(cells);
        }
        table
    }
}
