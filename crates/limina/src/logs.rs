//! Logs go to standard error, as text or as JSON.

use crate::{config::Config, settings::LogFormat};
use std::{error::Error, io::IsTerminal};
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

/// Starts logging.
pub(crate) fn start(config: &Config) -> Result<(), Box<dyn Error>> {
    let filter = filter(&config.log).map_err(|reason| format!("--log {:?}: {reason}", config.log))?;
    // If standard error is closed, log lines are lost and nothing else happens.
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).log_internal_errors(false);
    let subscriber = tracing_subscriber::registry().with(filter);
    match config.log_format {
        LogFormat::Text => subscriber.with(layer.with_ansi(std::io::stderr().is_terminal())).init(),
        LogFormat::Json => subscriber.with(layer.json().flatten_event(true)).init(),
    }
    Ok(())
}

fn filter(text: &str) -> Result<Targets, String> {
    // To `Targets`, a word that is no level is the name of a module. A misspelt level would silence the log.
    let is_level = |word: &str| !word.is_empty() && word.parse::<LevelFilter>().is_ok();
    let directives: Vec<&str> = text.split(',').map(str::trim).collect();
    let is_word = |directive: &&&str| !directive.contains('=');
    if let Some(word) = directives.iter().filter(is_word).find(|word| !is_level(word)) {
        return Err(format!("{word:?} is not a level: error, warn, info, debug, trace or off"));
    }
    // fjall logs its compactions at level info. To an operator of Limina these are debugging output.
    let directives = format!("fjall=warn,lsm_tree=warn,{}", directives.join(","));
    directives.parse::<Targets>().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_log_levels_are_refused() {
        #[track_caller]
        fn check(text: &str, expect: Option<&str>) {
            let refused = filter(text).err();
            assert_eq!(refused.is_some(), expect.is_some(), "{refused:?}");
            assert!(
                refused.as_deref().unwrap_or_default().contains(expect.unwrap_or_default()),
                "{refused:?}"
            );
        }
        check("info", None);
        check("WARN", None);
        check("off", None);
        check("info,limina_node=debug", None);
        check("limina_node=debug, limina_store=trace", None);
        check("nonsense", Some("\"nonsense\" is not a level: error, warn"));
        check("inf", Some("\"inf\" is not a level"));
        check("info,limina_node", Some("\"limina_node\" is not a level"));
        check("limina_node=loud", Some("level filter"));
        check("", Some("\"\" is not a level"));
    }
}
