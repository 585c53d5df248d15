//! The report of the limiter.

use super::{
    Kind, Limiter, Section,
    changes::Changes,
    engine::{EngineWork, Figure},
    scale,
    workload::Case,
};
use crate::{
    frame::{
        Family, Kind as _, LATENCIES, Rows, Table, latencies, mib, name_of, optional, spread, write_table,
    },
    measure::Rated,
};
use std::fmt::{self, Write};

pub(super) fn write(limiter: &Limiter, section: Section, rows: &Rows<Kind>) -> Result<String, fmt::Error> {
    let mut text = String::new();
    match section {
        Section::Engine => limiter.write_engine(&mut text)?,
        Section::Crates => limiter.write_crates(&mut text)?,
        Section::Contenders => {
            write_table(&mut text, &rows.table(Limiter::UNIT))?;
            let mut goals = Goals::new();
            goals.add("http: ÷ echo", 0.75, 2, rows.ratio(Kind::Http, Kind::Echo));
            goals.add("http: ÷ redis", 1.0, 2, rows.ratio(Kind::Http, Kind::Redis));
            goals.add("http-batch: checks/s", 4e5, 0, rows.rate(Kind::HttpBatch));
            write_table(&mut text, &goals.0)?;
        }
        Section::Scale => limiter.write_scale(&mut text)?,
        Section::Changes => {
            limiter.changes.iter().try_for_each(|changes| write_changes(changes, &mut text))?
        }
    }
    Ok(text)
}

/// What is wanted, beside what was measured.
struct Goals(Table);

impl Goals {
    fn new() -> Goals {
        Goals(Table::new("goal | wanted | measured"))
    }

    /// Adds a goal, unless nothing was measured for it.
    fn add(&mut self, name: impl Into<String>, wanted: f64, decimals: usize, measured: Option<f64>) {
        if let Some(measured) = measured {
            let cell = |number: f64| format!("{number:.decimals$}");
            self.0.rows.push(vec![name.into(), format!("≥ {}", cell(wanted)), cell(measured)]);
        }
    }
}

impl Limiter {
    fn engine_rate(&self, is_it: impl Fn(&Figure) -> bool) -> Option<f64> {
        let mut figures = self.engine.iter().map(|(_, rounds)| rounds.median());
        figures.find(|figure| is_it(figure)).map(Figure::rate)
    }

    /// The engine's rate with one rule, a fixed window and this many clients.
    pub(super) fn engine_rate_for(&self, clients: usize) -> Option<f64> {
        self.engine_rate(|figure| figure.what == EngineWork::Fixed && figure.case == Case::simple(clients))
    }

    /// The rate as a part of the rate of the first figure of the same kind to whose checks as many rules apply.
    fn engine_ratio(&self, kind: Kind, figure: &Figure) -> Option<f64> {
        let mut same = self.engine.iter().filter(|(other, _)| *other == kind);
        let first = same.find(|(_, first)| first.median().case.matching == figure.case.matching);
        first.map(|(_, first)| figure.rate / first.median().rate)
    }

    fn write_engine(&self, text: &mut String) -> fmt::Result {
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
        write_table(text, &table)?;
        write_table(text, &self.engine_goals().0)
    }

    fn engine_goals(&self) -> Goals {
        let mut goals = Goals::new();
        for what in [EngineWork::Fixed, EngineWork::Sliding, EngineWork::Bucket] {
            let rate = self.engine_rate(|figure| figure.what == what && figure.case.rules == 1);
            goals.add(format!("engine, one rule, {}: checks/s", name_of(&what)), 1e6, 0, rate);
        }
        for (kind, rounds) in &self.engine {
            let figure = rounds.median();
            let Case { rules, matching, asked, subjects } = figure.case;
            let ratio = self.engine_ratio(*kind, figure);
            match kind {
                Kind::EngineRules if rules >= 100_000 => {
                    let name =
                        format!("engine, {rules} rules, {matching} apply, {asked} asked for: ÷ fewest rules");
                    goals.add(name, 0.8, 2, ratio);
                }
                Kind::EngineGroups if subjects >= 5_000_000 => {
                    goals.add(format!("engine, {subjects} groups: ÷ fewest groups"), 0.6, 2, ratio);
                }
                _ => {}
            }
        }
        goals
    }

    fn write_crates(&self, text: &mut String) -> fmt::Result {
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
        write_table(text, &table)
    }

    fn write_scale(&self, text: &mut String) -> fmt::Result {
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
        write_table(text, &table)?;
        write_table(text, &self.scale_goals().0)
    }

    fn scale_goals(&self) -> Goals {
        let mut goals = Goals::new();
        for figure in &self.scale {
            let Case { rules, matching, subjects, .. } = figure.case;
            let way = figure.asked.name();
            let ratio = Some(*figure.ratios.median());
            match figure.kind {
                Kind::Rules if rules >= 100_000 => {
                    goals.add(
                        format!("{way}, {rules} rules, {matching} apply: ÷ fewest rules"),
                        0.8,
                        2,
                        ratio,
                    );
                }
                Kind::Groups if subjects >= 5_000_000 => {
                    goals.add(format!("{way}, {subjects} groups: ÷ fewest groups"), 0.6, 2, ratio);
                }
                _ => {}
            }
        }
        goals
    }
}

/// The figure with which another one is compared: the first of the same kind.
fn first_of<'a>(all: &'a [scale::Figure], figure: &scale::Figure) -> &'a scale::Figure {
    let key = |figure: &scale::Figure| (figure.kind, figure.asked, figure.case.matching);
    all.iter().find(|other| key(other) == key(figure)).expect("it is among them")
}

fn write_changes(changes: &Changes, text: &mut String) -> fmt::Result {
    writeln!(
        text,
        "{} counters were created at {:.0} a second. Then a rule without a window was created, changed and deleted:\n",
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
    write_table(text, &table)
}
