//! Data on standard output, words on standard error.

use crate::{Exit, table::Table};
use std::io::Write;

/// The form of the data.
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Tables and words, for people.
    #[default]
    Table,
    /// The bodies of the API.
    Json,
    /// One item a line.
    Jsonl,
}

/// Where a command writes. Data is collected, and written by [`Output::flush`].
pub(crate) struct Output {
    pub(crate) format: Format,
    pub(crate) data: String,
    /// The reader of standard output has gone. What is written from then on is dropped.
    pub(crate) closed: bool,
    pub(crate) error: Option<std::io::Error>,
}

impl Output {
    pub(crate) fn new(format: Format) -> Output {
        Output { format, data: String::new(), closed: false, error: None }
    }

    /// A line of data.
    pub(crate) fn line(&mut self, line: impl AsRef<str>) {
        self.data.push_str(line.as_ref());
        self.data.push('\n');
    }

    /// A table, unless it is empty.
    pub(crate) fn table(&mut self, table: &Table) {
        if !table.is_empty() {
            self.data.push_str(&table.to_string());
        }
    }

    /// Writes what was collected.
    pub(crate) fn flush(&mut self) {
        let data = std::mem::take(&mut self.data);
        if data.is_empty() || self.closed || self.error.is_some() {
            return;
        }
        let mut stdout = anstream::stdout().lock();
        match stdout.write_all(data.as_bytes()).and_then(|()| stdout.flush()) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => self.closed = true,
            Err(error) => self.error = Some(error),
        }
    }

    /// The end of a command: the exit code, unless the data could not be written.
    pub(crate) fn finish(mut self, exit: Exit) -> Exit {
        self.flush();
        match self.error {
            Some(error) => {
                let _ = writeln!(anstream::stderr(), "limina: standard output: {error}");
                Exit::Error
            }
            None => exit,
        }
    }
}
