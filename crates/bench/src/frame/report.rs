//! Parts of reports: tables in Markdown, and the conditions under which a run was measured.

use crate::{
    Failed, machine,
    measure::{Measured, Rated, Rounds},
};
use std::{
    fmt::{self, Write},
    fs,
    path::Path,
    time::{Duration, Instant, SystemTime},
};

/// One build of both programs takes no longer than this.
const MAX_BUILD: Duration = Duration::from_secs(900);

/// A line about the machine and the server's program, on which all figures depend.
pub(crate) fn conditions(program: &Path, data: &Path) -> Result<String, Failed> {
    let modified = |path: &Path| -> Option<SystemTime> { fs::metadata(path).ok()?.modified().ok() };
    let own = std::env::current_exe()?;
    let age = match modified(program).map(|time| time + MAX_BUILD) < modified(&own) {
        true => " (older than this program: is it built from the same source?)",
        false => "",
    };
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    Ok(format!(
        "processors {}, load average {}; {}; server {name}{age}\n",
        machine::cores(),
        machine::load(),
        machine::sync_in_words(data)?,
    ))
}

/// Watches how much processor time other programs take during a run.
pub(crate) struct Others {
    begin: Instant,
    before: Option<Duration>,
}

impl Others {
    pub(crate) fn watch() -> Others {
        Others { begin: Instant::now(), before: machine::others_cpu_time() }
    }

    /// The number of processors that they took. Call this when the servers of the run have ended.
    pub(crate) fn took(&self) -> Option<f64> {
        let others = machine::others_cpu_time()?.saturating_sub(self.before?);
        Some(others.as_secs_f64() / self.begin.elapsed().as_secs_f64())
    }
}

pub(crate) fn others_in_words(others: Option<f64>) -> String {
    format!("other programs and virtual machines took {} processors meanwhile\n", optional(others, 2))
}

/// The columns of [`latencies`].
pub(crate) const LATENCIES: &str = "p50 ms | p99 ms | p99.9 ms | max ms";

pub(crate) fn latencies(measured: &Measured) -> [String; 4] {
    let at = |quantile| format!("{:.2}", measured.quantile_ms(quantile));
    [at(0.5), at(0.99), at(0.999), format!("{:.2}", measured.max_ms())]
}

pub(crate) fn optional(number: Option<f64>, decimals: usize) -> String {
    number.map_or_else(|| "–".into(), |number| format!("{number:.decimals$}"))
}

/// The spread of several rounds; a dash for a single round.
pub(crate) fn spread<T: Rated>(rounds: &Rounds<T>) -> String {
    match rounds.all().count() {
        1 => "–".into(),
        _ => format!("{:.0} %", rounds.spread() * 100.0),
    }
}

/// A number of bytes in mebibytes.
pub(crate) fn mib(bytes: Option<u64>) -> String {
    optional(bytes.map(|bytes| bytes as f64 / (1 << 20) as f64), 0)
}

/// A table in Markdown, with aligned columns.
pub(crate) struct Table {
    head: Vec<String>,
    /// The number of columns that are aligned to the left; the others are aligned to the right.
    pub(crate) left: usize,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: &str) -> Table {
        Table { head: head.split(" | ").map(str::to_owned).collect(), left: 1, rows: Vec::new() }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = || std::iter::once(&self.head).chain(&self.rows);
        let widths: Vec<usize> = (0..self.head.len())
            .map(|column| lines().map(|line| line[column].chars().count()).max().unwrap_or(0))
            .collect();
        for (number, line) in lines().enumerate() {
            for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
                match column < self.left {
                    true => write!(f, "| {cell:<width$} ")?,
                    false => write!(f, "| {cell:>width$} ")?,
                }
            }
            writeln!(f, "|")?;
            if number == 0 {
                for (column, width) in widths.iter().enumerate() {
                    match column < self.left {
                        true => write!(f, "|{}", "-".repeat(width + 2))?,
                        false => write!(f, "|{}:", "-".repeat(width + 1))?,
                    }
                }
                writeln!(f, "|")?;
            }
        }
        Ok(())
    }
}

/// Appends the table and an empty line, unless the table has no rows.
pub(crate) fn write_table(text: &mut String, table: &Table) -> fmt::Result {
    match table.rows.is_empty() {
        true => Ok(()),
        false => writeln!(text, "{table}"),
    }
}
