//! Options that mean the same for every family.

use crate::{Failed, http};
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
