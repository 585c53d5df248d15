//! The options of the commands that ask a server. The binary knows them even if it was built without these commands.

use crate::output::Format;
use std::{str::FromStr, time::Duration};

/// The options of every command that asks a server.
#[derive(clap::Args, Debug, Clone, Default)]
#[command(next_help_heading = "Server and output")]
pub struct Options {
    /// The server [env: LIMINA_URL] [default: http://127.0.0.1:7070]; the token is in LIMINA_TOKEN or in the context
    #[arg(long, global = true, value_name = "URL")]
    pub url: Option<String>,
    /// The namespace [env: LIMINA_NAMESPACE] [default: default]
    #[arg(short, long, global = true, value_name = "NAME")]
    pub namespace: Option<String>,
    /// A context of the configuration file: a server with its token and namespace [env: LIMINA_CONTEXT]
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// table for people; for programs json, the bodies of the API, or jsonl, one item a line [default: table]
    #[arg(short, long, global = true, value_name = "FORMAT", hide_possible_values = true)]
    pub output: Option<Format>,
    /// How long one request may take [default: 5s]
    #[arg(long, global = true, value_name = "DURATION")]
    pub timeout: Option<Span>,
}

/// The ids of [`Options`], for the binary's own commands, which have no server.
pub(crate) const OPTION_IDS: [&str; 5] = ["url", "namespace", "context", "output", "timeout"];

/// A duration as an argument: `30s`, `1m30s`, `0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        if text == "0" {
            return Ok(Span(Duration::ZERO));
        }
        let span: limina_api::Duration = text.parse().map_err(|error| format!("{error}"))?;
        Ok(Span(Duration::from_millis(span.millis)))
    }
}
