//! Few and many rules, or groups, by Limina in process and over HTTP.
//!
//! What is compared is set up first, side by side, and then measured in turn, again and again: what disturbs one of them
//! disturbs the others as well, so the ratio within a round says more than any rate.

use super::{
    Kind, Options,
    report::Report,
    workload::{Case, Checks, Client},
};
use crate::{
    Failed,
    http::Http,
    in_process::InProcess,
    load::{Contender, Load, Until, Work, drive},
    machine,
    measure::{Measured, Rounds},
};
use std::{ops::Range, path::Path, time::Duration};

/// What one case came to.
pub(crate) struct Figure {
    /// `rules` or `groups`.
    pub(crate) kind: Kind,
    /// How it was asked.
    pub(crate) asked: Kind,
    pub(crate) case: Case,
    pub(crate) rounds: Rounds<Measured>,
    /// Of the rate to that of the first case in the same round.
    pub(crate) ratios: Rounds<f64>,
    /// Processor time of a check, the client's included, in microseconds: it suffers less from what others do.
    pub(crate) micros: Rounds<f64>,
    /// The server's, where it is a process of its own.
    pub(crate) resident: Option<u64>,
}

/// Measures cases that are compared with the first of them.
pub(crate) async fn measure(
    options: &Options,
    kind: Kind,
    cases: &[Case],
    program: &Path,
    report: &mut Report,
) -> Result<(), Failed> {
    let in_process = async |directory: &Path| InProcess::start(directory).await;
    compare(options, kind, cases, &[Kind::InProcess], in_process, report).await?;
    let http = async |directory: &Path| Http::limina(program, directory);
    compare(options, kind, cases, &[Kind::Http, Kind::HttpBatch], http, report).await
}

async fn compare<C: Contender<Client: Client>>(
    options: &Options,
    kind: Kind,
    cases: &[Case],
    ways: &[Kind],
    start: impl AsyncFn(&Path) -> Result<C, Failed>,
    report: &mut Report,
) -> Result<(), Failed> {
    let mut sides = Vec::new();
    for &case in cases {
        eprintln!("making {} rules and {} groups …", case.rules, case.subjects * case.matching);
        let directory = options.place.directory()?;
        let contender = start(directory.path()).await?;
        set_up(&contender, case).await?;
        // So few leave nothing behind that would disturb.
        if case.rules + case.subjects * case.matching >= 100_000 {
            machine::settle(contender.process().unwrap_or_else(std::process::id)).await;
        }
        sides.push((case, contender, directory));
    }
    for &asked in ways {
        let figure = |&case| {
            let rounds = Rounds::default();
            let (ratios, micros) = (Rounds::default(), Rounds::default());
            Figure { kind, asked, case, rounds, ratios, micros, resident: None }
        };
        let mut figures: Vec<Figure> = cases.iter().map(figure).collect();
        for _ in 0..options.rounds {
            let mut first = None;
            for (figure, (case, contender, _)) in figures.iter_mut().zip(&sides) {
                let load = options.load(asked.is_batched());
                let checks = |connection| Checks::new(*case, connection);
                drive(contender, load, Until::Time(options.seconds / 5), checks).await?;
                let measured = drive(contender, load, Until::Time(options.seconds), checks).await?;
                figure.ratios.push(measured.rate() / *first.get_or_insert(measured.rate()));
                figure.micros.push(measured.cpu_micros());
                figure.rounds.push(measured);
                figure.resident = contender.process().and_then(machine::resident_bytes);
            }
        }
        report.scale.extend(figures);
    }
    for (_, contender, _) in sides {
        contender.stop().await?;
    }
    Ok(())
}

/// Makes the rules, and every group.
async fn set_up<C: Contender<Client: Client>>(contender: &C, case: Case) -> Result<(), Failed> {
    let rules = Load { connections: 64.min(case.rules), batch: 1 };
    drive(contender, rules, Until::Finished(case.rules as u64), |client| Rules {
        case,
        numbers: part(case.rules, client, rules.connections),
    })
    .await?;
    let groups = Load { connections: 8.min(case.subjects), batch: 256 };
    let filled = drive(contender, groups, Until::Finished(case.subjects as u64), |client| Groups {
        case,
        subjects: part(case.subjects, client, groups.connections),
    })
    .await?;
    match filled.refused {
        0 => Ok(()),
        refused => Err(format!("{refused} checks were refused while groups were made").into()),
    }
}

/// One client's part of so many.
fn part(all: usize, client: usize, clients: usize) -> Range<usize> {
    let share = all.div_ceil(clients);
    (client * share).min(all)..((client + 1) * share).min(all)
}

/// Makes rules.
struct Rules {
    case: Case,
    numbers: Range<usize>,
}

impl<C: Client> Work<C> for Rules {
    async fn step(&mut self, client: &mut C, count: u64, _: &mut Measured) -> Result<(), Failed> {
        for number in self.numbers.by_ref().take(usize::try_from(count)?) {
            client.create(self.case, number).await?;
        }
        Ok(())
    }
}

/// Makes groups, by a check for each subject.
struct Groups {
    case: Case,
    subjects: Range<usize>,
}

impl<C: Client> Work<C> for Groups {
    async fn step(&mut self, client: &mut C, count: u64, measured: &mut Measured) -> Result<(), Failed> {
        let subjects: Vec<usize> = self.subjects.by_ref().take(usize::try_from(count)?).collect();
        if !subjects.is_empty() {
            let refused = client.check(self.case, &subjects).await?;
            measured.note(subjects.len() as u64, refused, Duration::ZERO);
        }
        Ok(())
    }
}
