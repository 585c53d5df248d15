//! Few and many rules, or groups, by Limina in process and over HTTP.
//!
//! All cases are set up first, side by side, and then measured in turn, round after round. A disturbance affects all cases
//! of a round, so the ratio within a round is more reliable than any rate.

use super::{
    Kind, Options,
    workload::{Case, Checks, Client},
};
use crate::{
    Failed,
    frame::warm_up_and_measure,
    http::Http,
    in_process::InProcess,
    load::{Contender, Load, Until, Work, drive},
    measure::{Measured, Rounds},
};
use std::{ops::Range, path::Path, time::Duration};

/// The result of one case.
pub(crate) struct Figure {
    /// `rules` or `groups`.
    pub(crate) kind: Kind,
    /// Limina in process or over HTTP, single or in batches.
    pub(crate) asked: Kind,
    pub(crate) case: Case,
    pub(crate) rounds: Rounds<Measured>,
    /// The rate as a multiple of the first case's rate in the same round.
    pub(crate) ratios: Rounds<f64>,
    /// Processor time of a check, client and server together, in microseconds. Other programs disturb it less than the
    /// rate.
    pub(crate) micros: Rounds<f64>,
    /// Resident memory of the server; none in process.
    pub(crate) resident: Option<u64>,
}

/// Measures cases, which are compared with the first of them.
pub(crate) async fn measure(
    options: &Options,
    kind: Kind,
    cases: &[Case],
    program: &Path,
) -> Result<Vec<Figure>, Failed> {
    let in_process = async |directory: &Path| InProcess::start(directory).await;
    let mut figures = compare(options, kind, cases, &[Kind::InProcess], in_process).await?;
    let http = async |directory: &Path| Http::limina(program, directory);
    figures.extend(compare(options, kind, cases, &[Kind::Http, Kind::HttpBatch], http).await?);
    Ok(figures)
}

async fn compare<C: Contender<Client: Client>>(
    options: &Options,
    kind: Kind,
    cases: &[Case],
    ways: &[Kind],
    start: impl AsyncFn(&Path) -> Result<C, Failed>,
) -> Result<Vec<Figure>, Failed> {
    let mut measured_figures = Vec::new();
    let mut sides = Vec::new();
    for &case in cases {
        let directory = options.common.place.directory()?;
        let contender = start(directory.path()).await?;
        set_up(&contender, case).await?;
        // Fewer leave no background work that would disturb the measurement.
        if case.rules + case.subjects * case.matching >= 100_000 {
            contender.settle().await;
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
        for _ in 0..options.common.rounds {
            let mut first = None;
            for (figure, (case, contender, _)) in figures.iter_mut().zip(&sides) {
                let load = options.load(asked);
                let checks = |_, connection| Checks::new(*case, connection);
                let measured = warm_up_and_measure(contender, load, options.common.seconds, checks).await?;
                figure.ratios.push(measured.rate() / *first.get_or_insert(measured.rate()));
                figure.micros.push(measured.cpu_micros());
                figure.rounds.push(measured);
                figure.resident = contender.process().and_then(|_| contender.resident_bytes());
            }
        }
        measured_figures.extend(figures);
    }
    for (_, contender, _) in sides {
        contender.stop().await?;
    }
    Ok(measured_figures)
}

/// Creates the rules, and every group.
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
        refused => Err(format!("{refused} checks were refused while groups were created").into()),
    }
}

/// The part of one client, if `clients` share all numbers below `all`.
fn part(all: usize, client: usize, clients: usize) -> Range<usize> {
    let share = all.div_ceil(clients);
    (client * share).min(all)..((client + 1) * share).min(all)
}

/// Creates rules.
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

/// Creates groups, with one check for each subject.
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
