//! The command line of Limina: for operators and scripts, on the Rust client.
//!
//! Data goes to standard output, as a table or as the JSON of the API, and words go to standard error. The exit code is the
//! answer: see [`Exit`]. No command asks a question; one that would destroy something demands `--yes`.
//!
//! This crate knows the server through its API alone. The binary adds the commands that work on files: serving, `rules check`,
//! `token`, export and import. Without the feature `client` those are all that the binary has, and this crate is what they
//! share: help, options, tables and exit codes.

#[cfg(feature = "client")]
mod client;
#[cfg(feature = "client")]
mod commands;
#[cfg(feature = "client")]
mod completions;
#[cfg(feature = "client")]
mod connection;
mod exit;
#[cfg(feature = "client")]
mod health;
mod help;
#[cfg(feature = "client")]
mod key_values;
#[cfg(feature = "client")]
mod metrics;
mod options;
#[cfg(feature = "client")]
mod or_none;
mod output;
#[cfg(feature = "client")]
mod replies;
pub mod secret_file;
#[cfg(feature = "client")]
mod session;
mod table;
#[cfg(feature = "client")]
mod watch;
pub mod words;

#[cfg(feature = "client")]
pub use client::run;
#[cfg(feature = "client")]
pub use commands::{
    AuditCommand, Command, DecisionsCommand, EventsCommand, LedgerCommand, LocksCommand, OverridesCommand,
    RulesCommand,
};
#[cfg(feature = "client")]
pub use completions::{CompletionsArgs, write_completions};
pub use exit::{Exit, Failed};
pub use help::{arranged, grouped, refuse_options};
#[cfg(feature = "client")]
pub use key_values::KeyValueArg;
pub use options::{Options, Span};
pub use output::Format;
#[cfg(feature = "client")]
pub use replies::ListLimit;

#[cfg(feature = "client")]
pub(crate) use session::Session;

use output::Output;
use std::io::Write;

/// Prints a failure. `eprintln!` would panic if standard error is closed.
pub fn report(failed: Failed) -> Exit {
    let _ = writeln!(anstream::stderr(), "limina: {failed}");
    failed.exit
}

/// Prints a list that comes from a file, as every list is printed: rows with their JSON. For the binary's own commands.
pub fn print_list<const N: usize>(
    options: &Options,
    columns: &[&str; N],
    items: impl IntoIterator<Item = ([String; N], serde_json::Value)>,
) -> Exit {
    let mut out = Output::new(options.output.unwrap_or_default());
    let (rows, items): (Vec<_>, Vec<_>) = items.into_iter().unzip();
    match out.format {
        Format::Table => {
            let mut table = table::Table::new(columns);
            rows.into_iter().for_each(|row| table.row(row.map(|text| words::printable(&text))));
            out.table(&table);
        }
        Format::Json => out.line(serde_json::json!({"items": items, "next": null}).to_string()),
        Format::Jsonl => items.iter().for_each(|item| out.line(item.to_string())),
    }
    out.finish(Exit::Yes)
}
