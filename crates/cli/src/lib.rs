//! The command line of Limina: for operators and scripts, on the Rust client.
//!
//! Data goes to standard output, as a table or as the JSON of the API, and words go to standard error. The exit code is the
//! answer: see [`Exit`]. No command asks a question; one that would destroy something demands `--yes`.
//!
//! This crate knows the server through its API alone. The binary adds the commands that work on files: serving, `rules check`,
//! `token`, export and import.

mod commands;
mod connection;
mod exit;
mod help;
mod key_values;
mod metrics;
mod output;
pub mod secret_file;
mod watch;
mod words;

pub use commands::{
    AuditCommand, Command, DecisionsCommand, EventsCommand, LedgerCommand, LocksCommand, RulesCommand,
};
pub use connection::{Options, Span};
pub use exit::{Exit, Failed};
pub use help::{CompletionsArgs, arranged, grouped, refuse_options, write_completions};
pub use key_values::KeyValueArg;
pub use output::{Format, ListLimit};

use connection::Connection;
use limina_client::Limina;
use output::Output;
use std::io::Write;

/// What every command has: the client, and where to write.
pub(crate) struct Session {
    pub(crate) client: Limina,
    pub(crate) connection: Connection,
    pub(crate) out: Output,
}

/// Runs a command to its end, and says what went wrong on standard error.
pub fn run(options: &Options, command: Command) -> Exit {
    let format = options.output.unwrap_or_default();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(Failed::error(format!("the runtime: {error}"))),
    };
    let session = runtime.block_on(async {
        let (client, connection) = options.client()?;
        Ok(Session { client, connection, out: Output::new(format) })
    });
    let mut session = match session {
        Ok(session) => session,
        Err(failed) => return report(failed),
    };
    let result = runtime.block_on(command.run(&mut session));
    if let Err(Failed { document: Some(document), .. }) = &result
        && !session.out.is_table()
    {
        session.out.line(document);
    }
    session.out.flush();
    let exit = result.unwrap_or_else(|mut failed| {
        if failed.exit == Exit::Unavailable {
            failed.message = format!("{}: {}", words::printable(&session.connection.url), failed.message);
        }
        report(failed)
    });
    session.out.finish(exit)
}

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
            let mut table = output::Table::new(columns);
            rows.into_iter().for_each(|row| table.row(row.map(|text| words::printable(&text))));
            out.table(&table);
        }
        Format::Json => out.line(serde_json::json!({"items": items, "next": null}).to_string()),
        Format::Jsonl => items.iter().for_each(|item| out.line(item.to_string())),
    }
    out.finish(Exit::Yes)
}

/// An instant of epoch milliseconds, as tables show it.
pub fn time_text(epoch_millis: u64) -> String {
    words::time(epoch_millis)
}
