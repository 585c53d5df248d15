//! What is printed of the limiter.

use super::{
    Kind,
    changes::Changes,
    crates,
    engine::{Figure, What},
    scale,
    workload::Case,
};
use crate::{
    load::Load,
    measure::{Measured, Rated, Rounds},
    options::name_of,
    report::{LATENCIES, Table, latencies, mib, optional, spread, write_table},
};
use std::fmt;

/// All that was measured.
#[derive(Default)]
pub(super) struct Report {
    engine: Vec<(Kind, Rounds<Figure>)>,
    crates: Vec<Rounds<crates::Figure>>,
    rows: Vec<Rounds<Row>>,
    pub(super) scale: Vec<scale::Figure>,
    /// One a round.
    pub(super) changes: Vec<Changes>,
}

/// A contender that was asked by clients.
pub(super) struct Row {
    pub(super) kind: Kind,
    pub(super) load: Load,
    pub(super) measured: Measured,
}

impl Rated for Row {
    fn rate(&self) -> f64 {
        self.measured.rate()
    }
}

impl Report {
    pub(super) fn add_engine(&mut self, kind: Kind, figure: Figure) {
        let mut known = self.engine.iter_mut();
        let is_same = |other: &Figure| (other.what, other.case) == (figure.what, figure.case);
        match known.find(|(other, rounds)| *other == kind && is_same(rounds.median())) {
            Some((_, rounds)) => rounds.push(figure),
            None => self.engine.push((kind, Rounds::new(figure))),
        }
    }

    pub(super) fn add_crate(&mut self, figure: crates::Figure) {
        let is_it = |other: &crates::Figure| other.name == figure.name && other.clients == figure.clients;
        match self.crates.iter_mut().find(|rounds| is_it(rounds.median())) {
            Some(rounds) => rounds.push(figure),
            None => self.crates.push(Rounds::new(figure)),
        }
    }

    pub(super) fn add_row(&mut self, row: Row) {
        match self.rows.iter_mut().find(|rounds| rounds.median().kind == row.kind) {
            Some(rounds) => rounds.push(row),
            None => self.rows.push(Rounds::new(row)),
        }
    }

    /// Over all that should have passed.
    pub(super) fn refused(&self) -> u64 {
        let rows = self.rows.iter().flat_map(Rounds::all).map(|row| row.measured.refused);
        let phases = self.changes.iter().flat_map(|changes| &changes.phases);
        let phases = phases.map(|phase| phase.relaxed.refused + phase.durable.refused);
        let scale = self.scale.iter().flat_map(|figure| figure.rounds.all()).map(|measured| measured.refused);
        rows.chain(scale).chain(phases).chain(self.changes.iter().map(|changes| changes.fill.refused)).sum()
    }

    fn rate(&self, kind: Kind) -> Option<f64> {
        self.rows.iter().map(Rounds::median).find(|row| row.kind == kind).map(Row::rate)
    }

    fn engine_rate(&self, is_it: impl Fn(&Figure) -> bool) -> Option<f64> {
        let mut figures = self.engine.iter().map(|(_, rounds)| rounds.median());
        figures.find(|figure| is_it(figure)).map(Figure::rate)
    }

    /// What the engine does for so many clients of one rule with a fixed window.
    fn engine_rate_for(&self, clients: usize) -> Option<f64> {
        self.engine_rate(|figure| figure.what == What::Fixed && figure.case == Case::simple(clients))
    }

    /// As a part of the first of its kind: with the same number of rules that apply, or the same number of groups.
    fn engine_ratio(&self, kind: Kind, figure: &Figure) -> Option<f64> {
        let mut same = self.engine.iter().filter(|(other, _)| *other == kind);
        let first = same.find(|(_, first)| first.median().case.matching == figure.case.matching);
        first.map(|(_, first)| figure.rate / first.median().rate)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_engine(f)?;
        self.write_crates(f)?;
        self.write_rows(f)?;
        self.write_scale(f)?;
        self.write_changes(f)?;
        self.write_goals(f)
    }
}

impl Report {
    fn write_engine(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(
            "engine alone, one core | rules | apply | rules asked for | groups | checks/s | spread | ns a check | ÷ first | MiB",
        );
        for (kind, rounds) in &self.engine {
            let figure = rounds.median();
            let case = &figure.case;
            table.rows.push(vec![
                name_of(&figure.what),
                case.rules.to_string(),
                case.matching.to_string(),
                case.asked.to_string(),
                figure.groups.to_string(),
                format!("{:.0}", figure.rate),
                spread(rounds),
                format!("{:.0}", 1e9 / figure.rate),
                optional(self.engine_ratio(*kind, figure), 2),
                mib(figure.resident),
            ]);
        }
        write_table(f, &table)
    }

    fn write_crates(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table =
            Table::new("crate, one core | clients | checks/s | spread | ns a check | ÷ engine, fixed | MiB");
        for rounds in &self.crates {
            let figure = rounds.median();
            table.rows.push(vec![
                figure.name.clone(),
                figure.clients.to_string(),
                format!("{:.0}", figure.rate),
                spread(rounds),
                format!("{:.0}", 1e9 / figure.rate),
                optional(self.engine_rate_for(figure.clients).map(|engine| figure.rate / engine), 2),
                mib(figure.resident),
            ]);
        }
        write_table(f, &table)
    }

    fn write_rows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(&format!(
            "contender | clients × checks a request | checks/s | spread | ÷ Limina HTTP | {LATENCIES} | CPUs server | CPUs client | CPU µs a check"
        ));
        for rounds in &self.rows {
            let row = rounds.median();
            let limina = if row.kind.is_batched() { Kind::HttpBatch } else { Kind::Http };
            let (server, own) = row.measured.processors();
            // Within one process the two cannot be told apart.
            let (server, own) = server.map_or((Some(own), None), |server| (Some(server), Some(own)));
            let mut cells = vec![
                row.kind.name(),
                format!("{} × {}", row.load.connections, row.load.batch),
                format!("{:.0}", row.measured.rate()),
                spread(rounds),
                optional(self.rate(limina).map(|limina| row.measured.rate() / limina), 2),
            ];
            cells.extend(latencies(&row.measured));
            let micros = format!("{:.2}", row.measured.cpu_micros());
            cells.extend([optional(server, 1), optional(own, 1), micros]);
            table.rows.push(cells);
        }
        write_table(f, &table)
    }

    fn write_scale(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(&format!(
            "many | rules | apply | groups | checks/s | ÷ first | least | most | {LATENCIES} | CPU µs a check | first ÷ it | MiB"
        ));
        for figure in &self.scale {
            let (case, measured) = (&figure.case, figure.rounds.median());
            let mut cells = vec![
                format!("{}, {}", figure.kind.name(), figure.asked.name()),
                case.rules.to_string(),
                case.matching.to_string(),
                (case.subjects * case.matching).to_string(),
                format!("{:.0}", measured.rate()),
            ];
            let (least, most) = figure.ratios.ends();
            cells.extend([figure.ratios.median(), least, most].map(|ratio| format!("{ratio:.2}")));
            cells.extend(latencies(measured));
            let micros = figure.micros.median();
            let of_micros = format!("{:.2}", first_of(&self.scale, figure).micros.median() / micros);
            cells.extend([format!("{micros:.2}"), of_micros, mib(figure.resident)]);
            table.rows.push(cells);
        }
        write_table(f, &table)
    }

    fn write_changes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.changes.iter().try_for_each(|changes| write_changes(changes, f))
    }

    fn write_goals(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new("goal | wanted | measured");
        let mut add = |name: String, wanted: f64, decimals: usize, measured: Option<f64>| {
            if let Some(measured) = measured {
                let cell = |number: f64| format!("{number:.decimals$}");
                table.rows.push(vec![name, format!("≥ {}", cell(wanted)), cell(measured)]);
            }
        };
        for what in [What::Fixed, What::Sliding, What::Bucket] {
            let rate = self.engine_rate(|figure| figure.what == what && figure.case.rules == 1);
            add(format!("engine, one rule, {}: checks/s", name_of(&what)), 1e6, 0, rate);
        }
        for (kind, rounds) in &self.engine {
            let figure = rounds.median();
            let case = &figure.case;
            let ratio = self.engine_ratio(*kind, figure);
            match kind {
                Kind::EngineRules if case.rules >= 100_000 => {
                    let Case { rules, matching, asked, .. } = case;
                    let name =
                        format!("engine, {rules} rules, {matching} apply, {asked} asked for: ÷ fewest rules");
                    add(name, 0.8, 2, ratio);
                }
                Kind::EngineGroups if case.subjects >= 5_000_000 => {
                    add(format!("engine, {} groups: ÷ fewest groups", case.subjects), 0.6, 2, ratio);
                }
                _ => {}
            }
        }
        for figure in &self.scale {
            let Case { rules, matching, subjects, .. } = figure.case;
            let way = figure.asked.name();
            let ratio = Some(*figure.ratios.median());
            match figure.kind {
                Kind::Rules if rules >= 100_000 => {
                    add(format!("{way}, {rules} rules, {matching} apply: ÷ fewest rules"), 0.8, 2, ratio);
                }
                Kind::Groups if subjects >= 5_000_000 => {
                    add(format!("{way}, {subjects} groups: ÷ fewest groups"), 0.6, 2, ratio);
                }
                _ => {}
            }
        }
        let of_echo = self.rate(Kind::Http).zip(self.rate(Kind::Echo)).map(|(http, echo)| http / echo);
        add("http: ÷ echo".into(), 0.6, 2, of_echo);
        add("http-batch: checks/s".into(), 4e5, 0, self.rate(Kind::HttpBatch));
        write_table(f, &table)
    }
}

/// What a figure is compared with.
fn first_of<'a>(all: &'a [scale::Figure], figure: &scale::Figure) -> &'a scale::Figure {
    let key = |figure: &scale::Figure| (figure.kind, figure.asked, figure.case.matching);
    all.iter().find(|other| key(other) == key(figure)).expect("it is among them")
}

fn write_changes(changes: &Changes, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(
        f,
        "{} counters were made at {:.0} a second. Then a rule without a window was made, changed and deleted:\n",
        changes.counters,
        changes.fill.rate()
    )?;
    let mut table = Table::new(&format!("meanwhile | took ms | kind | checks | {LATENCIES} | MiB"));
    for phase in &changes.phases {
        for (kind, measured) in [("relaxed", &phase.relaxed), ("durable", &phase.durable)] {
            let mut cells = vec![
                phase.name.to_owned(),
                optional(phase.took.map(|took| took.as_secs_f64() * 1000.0), 1),
                kind.to_owned(),
                measured.operations.to_string(),
            ];
            cells.extend(latencies(measured));
            cells.push(mib(phase.resident));
            table.rows.push(cells);
        }
    }
    write_table(f, &table)
}
