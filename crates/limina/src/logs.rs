//! Logs go to standard error, as text or as JSON.

use crate::config::{Config, LogFormat};
use std::{error::Error, io::IsTerminal};
use tracing_subscriber::EnvFilter;

/// Starts logging.
pub(crate) fn start(config: &Config) -> Result<(), Box<dyn Error>> {
    // fjall logs its compactions at level info. To an operator of Limina these are debugging output.
    let filter = format!("fjall=warn,lsm_tree=warn,{}", config.log);
    let filter = EnvFilter::try_new(filter).map_err(|error| format!("--log {:?}: {error}", config.log))?;
    // If standard error is closed, log lines are lost and nothing else happens.
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .log_internal_errors(false);
    match config.log_format {
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    Ok(())
}
