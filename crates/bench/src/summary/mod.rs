//! The summary of a run of all families: figures, from which the top of `docs/benchmarks.md` and a chart for each family are
//! made. The figures are stored beside the charts, so a test can check that text and charts come from one run.

mod chart;
mod text;

use crate::{Failed, measure::Measured};
use serde::{Deserialize, Serialize};
use std::{fs, path::Path};

/// The contender that has its own columns in the table.
pub(crate) const ECHO: &str = "echo";

const PAGE: &str = "benchmarks.md";
const BEGIN: &str = "<!-- `limina-bench all` writes everything from here -->\n";
const END: &str = "<!-- to here -->\n";

/// One run of all families.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) date: String,
    pub(crate) commit: String,
    /// How this program was built: the folder that it is in.
    pub(crate) build: String,
    pub(crate) machine: String,
    /// The rivals that were measured, with their versions.
    pub(crate) rivals: Vec<String>,
    /// The command line of the run.
    pub(crate) command: String,
    pub(crate) families: Vec<Family>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Family {
    pub(crate) name: String,
    /// The command line that measures only this family.
    pub(crate) command: String,
    /// Hundredths of a processor that other programs and virtual machines took meanwhile, if it is known.
    pub(crate) others_percent: Option<u64>,
    pub(crate) comparisons: Vec<Comparison>,
}

/// The same work, by Limina and by others.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Comparison {
    pub(crate) work: String,
    /// Clients × operations a request.
    pub(crate) load: String,
    pub(crate) limina: Bar,
    pub(crate) beside: Vec<Bar>,
}

impl Comparison {
    fn bars(&self) -> impl Iterator<Item = &Bar> {
        std::iter::once(&self.limina).chain(&self.beside)
    }
}

/// The rate of one contender. All figures are whole numbers, so that storing them loses nothing.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Bar {
    pub(crate) contender: String,
    pub(crate) role: Role,
    /// Operations a second.
    pub(crate) rate: u64,
    /// Latency in microseconds, which a call in this process does not have.
    pub(crate) p99_micros: Option<u64>,
}

/// How the summary shows a contender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    Limina,
    /// Does less than Limina: what remains if something is left out. Only charts show it.
    Bound,
    /// What a user could use instead.
    Rival,
}

impl Bar {
    pub(crate) fn new(contender: &str, role: Role, measured: &Measured) -> Bar {
        let p99_micros = Some((measured.quantile_ms(0.99) * 1000.0).round() as u64);
        Bar { p99_micros, ..Bar::of_rate(contender, role, measured.rate()) }
    }

    pub(crate) fn of_rate(contender: &str, role: Role, rate: f64) -> Bar {
        Bar { contender: contender.into(), role, rate: rate.round() as u64, p99_micros: None }
    }

    fn p99_ms(&self) -> Option<String> {
        self.p99_micros.map(|micros| format!("{:.2}", micros as f64 / 1000.0))
    }
}

impl Summary {
    /// Writes the text between the marks of `benchmarks.md`, the charts and the figures.
    pub(crate) fn write(&self, docs: &Path) -> Result<(), Failed> {
        let page = read_page(docs)?;
        fs::write(docs.join(PAGE), page.with(self))?;
        let directory = docs.join("benchmarks");
        fs::create_dir_all(&directory)?;
        for family in &self.families {
            fs::write(directory.join(chart::file(family)), chart::draw(self, family)?)?;
        }
        let figures = serde_json::to_string_pretty(self)?;
        Ok(fs::write(directory.join("figures.json"), figures + "\n")?)
    }
}

/// The page that shows a summary, without it.
pub(crate) struct Page {
    before: String,
    after: String,
}

/// Reads the page. Fails if there is none, or if it has no place for the summary.
pub(crate) fn read_page(docs: &Path) -> Result<Page, Failed> {
    let path = docs.join(PAGE);
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let page = || {
        let (before, rest) = text.split_once(BEGIN)?;
        let (_, after) = rest.split_once(END)?;
        Some(Page { before: before.into(), after: after.into() })
    };
    page().ok_or_else(|| format!("{}: the marks of the summary are missing", path.display()).into())
}

impl Page {
    fn with(&self, summary: &Summary) -> String {
        let Page { before, after } = self;
        format!("{before}{BEGIN}\n{}\n{END}{after}", text::write(summary))
    }
}

/// A number with a comma before each three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests;
