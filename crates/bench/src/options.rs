//! Options that mean the same for every family.

use crate::{Failed, http, load::Load};
use clap::ValueEnum;
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use tempfile::TempDir;

/// Where it is measured.
#[derive(clap::Args)]
pub(crate) struct Place {
    /// The server [default: `limina` beside this program, else this program itself]
    #[arg(long, value_name = "PROGRAM")]
    limina: Option<PathBuf>,
    /// Where temporary directories for the data are made; a disk, not memory
    #[arg(long, default_value = ".", value_name = "DIR")]
    data: PathBuf,
}

impl Place {
    /// The program that is the server.
    pub(crate) fn program(&self) -> Result<PathBuf, Failed> {
        match &self.limina {
            Some(program) => Ok(program.clone()),
            None => http::server_program(),
        }
    }

    /// Where the data are.
    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// A directory for one contender: each begins with nothing, and leaves nothing behind.
    pub(crate) fn directory(&self) -> Result<TempDir, Failed> {
        Ok(tempfile::Builder::new().prefix("limina-bench-").tempdir_in(&self.data)?)
    }
}

/// How many ask at the same time.
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
    /// One operation a request, or a batch of so many.
    pub(crate) fn load(&self, batch: Option<usize>) -> Load {
        match batch {
            Some(batch) => Load { connections: self.batch_connections, batch },
            None => Load { connections: self.connections, batch: 1 },
        }
    }
}

/// What is measured: only these, if any are named, and of them what is allowed.
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

/// As it is named in an option.
pub(crate) fn name_of(kind: &impl ValueEnum) -> String {
    kind.to_possible_value().expect("none is skipped").get_name().to_owned()
}

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map_err(|error| format!("{error}"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

pub(crate) fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".into()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}
