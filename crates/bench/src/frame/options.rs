//! Options that mean the same for every family.

use super::Kind;
use crate::{Failed, http, load::Load};
use clap::{
    ValueEnum,
    builder::{EnumValueParser, PossibleValuesParser},
};
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};
use tempfile::TempDir;

/// What to measure, for how long, and where.
#[derive(clap::Args)]
pub(crate) struct Common<K: Kind> {
    /// Duration of each measurement in seconds; a fifth of it is added for warm-up
    #[arg(long, default_value = K::SECONDS, value_parser = seconds)]
    pub(crate) seconds: Duration,
    /// How often everything is measured, one contender after the other; the report shows the median
    #[arg(long, default_value_t = 1, value_parser = positive)]
    pub(crate) rounds: usize,
    /// Rivals to measure as well; `cargo xtask rivals` installs them
    #[arg(long, value_delimiter = ',', value_parser = rivals::<K>())]
    rivals: Vec<String>,
    /// Measure only these
    #[arg(long, value_delimiter = ',', value_parser = EnumValueParser::<K>::new())]
    only: Vec<K>,
    #[command(flatten)]
    pub(crate) place: Place,
}

impl<K: Kind> Common<K> {
    /// The kinds to measure: those of `--only`, or all; a rival only if `--rivals` names it.
    pub(crate) fn kinds(&self) -> Result<Vec<K>, Failed> {
        let is_named = |rival: &str| self.rivals.iter().any(|named| named == rival);
        chosen(&self.only, |kind| kind.rival().is_none_or(is_named))
    }
}

/// The rivals of a family.
fn rivals<K: Kind>() -> PossibleValuesParser {
    let mut names: Vec<&str> = K::value_variants().iter().filter_map(|kind| kind.rival()).collect();
    names.dedup();
    PossibleValuesParser::new(names)
}

/// Where Limina's program is, and where the data go.
#[derive(clap::Args)]
pub(crate) struct Place {
    /// Program of the server [default: `limina` next to this program, else this program itself]
    #[arg(long, value_name = "PROGRAM")]
    limina: Option<PathBuf>,
    /// Where temporary directories for the data are created; use a disk, not memory
    #[arg(long, default_value = ".", value_name = "DIR")]
    data: PathBuf,
}

impl Place {
    /// The program of the server.
    pub(crate) fn program(&self) -> Result<PathBuf, Failed> {
        match &self.limina {
            Some(program) => Ok(program.clone()),
            None => http::server_program(),
        }
    }

    /// The options with which another command has the same place.
    pub(crate) fn args(&self) -> Vec<OsString> {
        let mut args: Vec<OsString> = vec!["--data".into(), self.data.clone().into()];
        if let Some(limina) = &self.limina {
            args.extend(["--limina".into(), limina.clone().into()]);
        }
        args
    }

    /// The directory that contains all data.
    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// A new empty directory for one contender, which is deleted with the value.
    pub(crate) fn directory(&self) -> Result<TempDir, Failed> {
        Ok(tempfile::Builder::new().prefix("limina-bench-").tempdir_in(&self.data)?)
    }
}

/// The number of clients, for single operations and for batches.
#[derive(clap::Args)]
pub(crate) struct Connections {
    /// Connections (in-process: tasks) where a request is one operation
    #[arg(long, default_value_t = 64, value_parser = positive)]
    connections: usize,
    /// Connections (in-process: tasks) where a request is a batch
    #[arg(long, default_value_t = 8, value_parser = positive)]
    batch_connections: usize,
}

impl Connections {
    /// The load with one operation a request, or with batches of this size.
    pub(crate) fn load(&self, batch: Option<usize>) -> Load {
        match batch {
            Some(batch) => Load { connections: self.batch_connections, batch },
            None => Load { connections: self.connections, batch: 1 },
        }
    }
}

/// The values of `only`, or all if it is empty, without those that are not allowed.
pub(crate) fn chosen<K: ValueEnum + PartialEq + Copy>(
    only: &[K],
    is_allowed: impl Fn(K) -> bool,
) -> Result<Vec<K>, Failed> {
    let is_chosen = |kind: &K| only.is_empty() || only.contains(kind);
    let kinds = K::value_variants().iter().copied().filter(is_chosen);
    let kinds: Vec<K> = kinds.filter(|kind| is_allowed(*kind)).collect();
    match kinds.is_empty() {
        true => Err("nothing to measure: a rival must be named by --rivals, too".into()),
        false => Ok(kinds),
    }
}

/// The name of a value on the command line.
pub(crate) fn name_of(kind: &impl ValueEnum) -> String {
    kind.to_possible_value().expect("no value is skipped").get_name().to_owned()
}

/// Parses a duration that is given in seconds.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map_err(|error| format!("{error}"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// Parses a number that must not be 0.
pub(crate) fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".into()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}
