//! All families in one run, and the summary of it: the top of `docs/benchmarks.md`, with a chart for each family.

use crate::{
    Cli, Failed,
    frame::{Bench, Figures, Place, Screen, positive, seconds},
    limiter, machine,
    summary::{self, Family, Summary},
};
use clap::{CommandFactory, Parser, builder::PossibleValuesParser};
use std::{ffi::OsString, path::PathBuf, process::Command, time::Duration};

/// What is measured of each family, as options of its subcommand: everything that the summary shows, and nothing that takes
/// long to set up.
pub(crate) const FAMILIES: [(&str, &[&str]); 8] = [
    ("ledger", &[]),
    (
        "limiter",
        &[
            "--only=in-process,in-process-batch,http,http-batch,http-namespaces,http-batch-namespaces,echo,echo-batch,redis,redis-batch,engine-windows,limitador,governor",
            "--groups=1000",
        ],
    ),
    ("envoy", &["--only=grpc-1,grpc-4,check,redis-1,redis-4"]),
    (
        "locks",
        &[
            "--only=in-process,http,echo,redis,in-process-contended,http-contended,redis-contended,in-process-heartbeats,http-heartbeats,redis-heartbeats",
        ],
    ),
    ("events", &["--only=in-process,http,redis,in-process-hot,http-hot,redis-hot,fan-out", "--rates=300"]),
    ("decisions", &[]),
    (
        "cluster",
        &[
            "--only=ledger,ledger-batch,sql-ledger,checks,counters,counters-batch,sql-counters,locks,events,latency",
        ],
    ),
    ("overload", &[]),
];

const RIVALS: [&str; 4] = ["redis", "postgres", "limitador", "governor"];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Duration of each measurement in seconds; a fifth of it is added for warm-up
    #[arg(long, default_value = "5", value_parser = seconds)]
    seconds: Duration,
    /// How often contenders are measured, one after the other; the report shows the median
    #[arg(long, default_value_t = 1, value_parser = positive)]
    rounds: usize,
    /// Rivals to measure as well, if they are installed [default: all]
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(RIVALS))]
    rivals: Option<Vec<String>>,
    /// Measure only these families; the summary then has no others
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(FAMILIES.map(|(name, _)| name)))]
    only: Vec<String>,
    /// Directory of `benchmarks.md`, which the summary is written to
    #[arg(long, default_value = "docs", value_name = "DIR")]
    docs: PathBuf,
    #[command(flatten)]
    place: Place,
}

/// A family that is going to be measured.
struct FamilyRun {
    name: &'static str,
    command: String,
    bench: Box<dyn Bench>,
}

pub(crate) async fn run(options: Options) -> Result<(), Failed> {
    summary::read_page(&options.docs)?;
    let rivals = options.installed_rivals();
    let planned = options.plan(&rivals)?;
    let mut summary = Summary {
        date: said("date", &["-u", "+%F"]).ok_or("there is no date")?,
        commit: commit(),
        build: build()?,
        machine: machine::description(options.place.data())?,
        rivals: rivals.into_iter().map(|(_, version)| version).collect(),
        command: format!("limina-bench all{}", options.shared()),
        families: Vec::new(),
    };
    let screen = Screen::new(planned.iter().map(|planned| planned.bench.plan()).sum());
    let mut failed = Vec::new();
    for FamilyRun { name, command, bench } in planned {
        screen.print(&format!("\n# {name}\n\n`{command}`\n\n"))?;
        match bench.run(&screen).await {
            Ok(Figures { comparisons, others }) => summary.families.push(Family {
                name: name.into(),
                command,
                others_percent: others.map(|others| (others * 100.0).round() as u64),
                comparisons,
            }),
            // The tables of the other families are worth having, but a summary without this one is not.
            Err(error) => failed.push(format!("{name}: {error}")),
        }
    }
    drop(screen);
    match failed.is_empty() {
        true => summary.write(&options.docs),
        false => {
            Err(format!("no summary is written, because there are failures: {}", failed.join("; ")).into())
        }
    }
}

impl Options {
    /// The rivals that were asked for and are installed, with their versions.
    fn installed_rivals(&self) -> Vec<(&str, String)> {
        let asked = RIVALS.iter().filter(|&&rival| match &self.rivals {
            Some(rivals) => rivals.iter().any(|asked| asked == rival),
            None => true,
        });
        let installed = asked.filter_map(|&rival| match version(rival) {
            Some(version) => Some((rival, version)),
            None => {
                eprintln!("{rival} is left out: it is not installed (`cargo xtask rivals` installs it)");
                None
            }
        });
        installed.collect()
    }

    fn plan(&self, rivals: &[(&str, String)]) -> Result<Vec<FamilyRun>, Failed> {
        let mut planned = Vec::new();
        for (name, args) in FAMILIES {
            if !self.only.is_empty() && !self.only.iter().any(|only| only == name) {
                continue;
            }
            if name == "cluster" && version("postgres").is_none() {
                eprintln!(
                    "{name} is left out: PostgreSQL is not installed (`cargo xtask rivals` installs it)"
                );
                continue;
            }
            let command = format!("limina-bench {name}{}", self.args(name, args, rivals));
            let args = command.split(' ').map(OsString::from).chain(self.place.args());
            let Cli::Family(family) = Cli::try_parse_from(args)? else {
                return Err(format!("{name} is not a family").into());
            };
            planned.push(FamilyRun { name, command, bench: family.bench()? });
        }
        Ok(planned)
    }

    /// The options that mean the same for every family.
    fn shared(&self) -> String {
        let rounds = if self.rounds > 1 { format!(" --rounds={}", self.rounds) } else { String::new() };
        format!(" --seconds={}{rounds}", self.seconds.as_secs_f64())
    }

    /// The options of a family: those of this run that it has, and its own.
    fn args(&self, family: &str, own: &[&str], rivals: &[(&str, String)]) -> String {
        let cli = Cli::command();
        let command = cli.find_subcommand(family).expect("every family is a subcommand");
        let find = |long| command.get_arguments().find(move |arg| arg.get_long() == Some(long));
        let mut args = match find("rounds") {
            Some(_) => self.shared(),
            None => format!(" --seconds={}", self.seconds.as_secs_f64()),
        };
        let known = find("rivals").map_or_else(Vec::new, |arg| arg.get_possible_values());
        let is_known = |rival: &&str| known.iter().any(|value| value.get_name() == *rival);
        let rivals: Vec<&str> = rivals.iter().map(|(rival, _)| *rival).filter(is_known).collect();
        if !rivals.is_empty() {
            args.push_str(&format!(" --rivals={}", rivals.join(",")));
        }
        own.iter().for_each(|own| args.push_str(&format!(" {own}")));
        args
    }
}

/// The name and version of a rival; none if it is not installed.
fn version(rival: &str) -> Option<String> {
    match rival {
        "redis" => {
            let text = said("redis-server", &["--version"])?;
            let version = text.split_whitespace().find_map(|word| word.strip_prefix("v="))?;
            Some(format!("Redis {version}"))
        }
        "postgres" => Some(format!("PostgreSQL {}", limina_pg_server::version().ok()?)),
        _ => limiter::rival_crates().ok().map(|_| rival.into()),
    }
}

/// The commit of the working tree. Files that this program writes do not count as changes of it.
fn commit() -> String {
    let Some(commit) = said("git", &["rev-parse", "--short=10", "HEAD"]) else { return "unknown".into() };
    match said("git", &["status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs"]) {
        Some(_) => format!("{commit} with changes"),
        None => commit,
    }
}

/// The build, by the folder of this program: a profile of cargo, or `package`.
fn build() -> Result<String, Failed> {
    let program = std::env::current_exe()?;
    let folder = program.parent().and_then(|folder| folder.file_name());
    Ok(folder.unwrap_or_default().to_string_lossy().into_owned())
}

/// What a program prints; none if it fails or prints nothing.
fn said(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (!text.is_empty()).then_some(text)
}
