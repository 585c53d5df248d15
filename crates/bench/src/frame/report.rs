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

/// A line about the machine and the server's program, on which all figures depend.
pub(crate) fn conditions(program: &Path, data: &Path) -> Result<String, Failed> {
    let directory = tempfile::tempdir_in(data)?;
    let sync = machine::sync_time(directory.path())?;
    let cores = std::thread::available_parallelism().map_or(0, |count| count.get());
    let modified = |path: &Path| -> Option<SystemTime> { fs::metadata(path).ok()?.modified().ok() };
    let own = std::env::current_exe()?;
    let age = match modified(program) < modified(&own) {
        true => " (older than this program: is it built from the same source?)",
        false => "",
    };
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    Ok(format!(
        "processors {cores}, load average {}; 4 KiB written and synced in p50 {:.2} ms, p99 {:.2} ms; server {name}{age}\n",
        machine::load(),
        sync.quantile_ms(0.5),
        sync.quantile_ms(0.99),
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

    /// Prints how much that was. Call this when the servers of the run have ended. `ours` is the time of servers that
    /// still run, or that are not children of this process.
    pub(crate) fn print(&self, ours: Duration) {
        if let (Some(before), Some(after)) = (self.before, machine::others_cpu_time()) {
            let others =
                after.saturating_sub(before + ours).as_secs_f64() / self.begin.elapsed().as_secs_f64();
            println!("other programs took {others:.2} processors meanwhile");
        }
    }
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

/// A table in Markdown, with aligned columns. The first column is aligned to the left, the others to the right.
pub(crate) struct Table {
    head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: &str) -> Table {
        Table { head: head.split(" | ").map(str::to_owned).collect(), rows: Vec::new() }
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
                match column {
                    0 => write!(f, "| {cell:<width$} |")?,
                    _ => write!(f, " {cell:>width$} |")?,
                }
            }
            writeln!(f)?;
            if number == 0 {
                for (column, width) in widths.iter().enumerate() {
                    match column {
                        0 => write!(f, "|{}|", "-".repeat(width + 2))?,
                        _ => write!(f, "{}:|", "-".repeat(width + 1))?,
                    }
                }
                writeln!(f)?;
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
