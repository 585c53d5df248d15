//! Logs go to standard error, as text or as JSON.

use crate::config::{Config, LogFormat};
use std::{error::Error, io::IsTerminal};
use tracing_subscriber::EnvFilter;

/// Starts logging.
pub(crate) fn start(config: &Config) -> Result<(), Box<dyn Error>> {
    // fjall reports its own housekeeping at info; that is debugging to an operator of Limina.
    let filter = format!("fjall=warn,lsm_tree=warn,{}", config.log);
    let filter = EnvFilter::try_new(filter).map_err(|error| format!("--log {:?}: {error}", config.log))?;
    // Where nobody reads the logs any more, losing them is all that happens.
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
