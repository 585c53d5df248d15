//! Data on standard output, words on standard error.

use crate::{Exit, Failed, words};
use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, presets};
use limina_client::{Pages, Reply};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use std::{
    io::{IsTerminal, Write},
    pin::pin,
    time::Duration,
};

/// How often a command that waits looks whether somebody still reads.
const LOOK_EVERY: Duration = Duration::from_secs(1);

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
    data: String,
    /// The reader of standard output has gone. What is written from then on is dropped.
    closed: bool,
    error: Option<std::io::Error>,
}

impl Output {
    pub(crate) fn new(format: Format) -> Output {
        Output { format, data: String::new(), closed: false, error: None }
    }

    pub(crate) fn is_table(&self) -> bool {
        self.format == Format::Table
    }

    /// A line of data.
    pub(crate) fn line(&mut self, line: impl AsRef<str>) {
        self.data.push_str(line.as_ref());
        self.data.push('\n');
    }

    /// A table, unless it is empty.
    pub(crate) fn table(&mut self, table: &Table) {
        if !table.inner.is_empty() {
            let text = table.to_string();
            text.lines().for_each(|line| self.line(trimmed(line)));
        }
    }

    /// A line that belongs to an answer without being a part of it. It goes to standard error, where programs do not read.
    pub(crate) fn say(&mut self, words: impl AsRef<str>) {
        self.flush();
        let _ = writeln!(anstream::stderr(), "{}", words.as_ref());
    }

    /// One answer: its JSON, or what `show` makes of it.
    pub(crate) fn reply<T>(&mut self, reply: &Reply<T>, show: impl FnOnce(&mut Output, &T)) {
        match self.format {
            Format::Table => show(self, reply),
            Format::Json | Format::Jsonl => self.line(reply.json()),
        }
    }

    /// A list. JSON is a page as the API has it, with all the items that were asked for.
    pub(crate) async fn list<T: DeserializeOwned>(
        &mut self,
        mut pages: Pages<T>,
        limit: ListLimit,
        show: impl FnOnce(&mut Output, &[T]),
    ) -> Result<(), Failed> {
        #[derive(Deserialize)]
        struct RawPage {
            items: Vec<Box<RawValue>>,
        }
        let wanted = limit.items();
        let (mut items, mut raw, mut next) = (Vec::new(), Vec::new(), None);
        while items.len() < wanted {
            // Only as many as will be shown: `next` must go on after the last of them.
            pages = pages.page_size((wanted - items.len()).min(1000) as u32);
            let Some(page) = pages.next_page().await? else { break };
            if !self.is_table() {
                let page: RawPage = serde_json::from_str(page.json())
                    .map_err(|error| Failed::error(format!("a page cannot be read: {error}")))?;
                raw.extend(page.items);
            }
            let page = page.into_inner();
            items.extend(page.items);
            next = page.next;
            if next.is_none() {
                break;
            }
        }
        match self.format {
            Format::Table => {
                show(self, &items);
                if next.is_some() {
                    let hint = format!("These are the first {}. --limit N or --all shows more.", items.len());
                    self.say(hint);
                }
            }
            Format::Jsonl => raw.iter().for_each(|item| self.line(item.get())),
            Format::Json => {
                let items: Vec<&str> = raw.iter().map(|item| item.get()).collect();
                let next = serde_json::Value::from(next);
                self.line(format!("{{\"items\":[{}],\"next\":{next}}}", items.join(",")));
            }
        }
        Ok(())
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

    /// Whether nobody reads any more. An endless command then ends.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed || self.error.is_some() || is_reader_gone()
    }

    /// What a command waits for, or `None` if nobody reads any more before it comes.
    pub(crate) async fn unless_closed<T>(&self, awaited: impl Future<Output = T>) -> Option<T> {
        let mut awaited = pin!(awaited);
        while !self.is_closed() {
            if let Ok(value) = tokio::time::timeout(LOOK_EVERY, awaited.as_mut()).await {
                return Some(value);
            }
        }
        None
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

    /// Before the data of another round of `--watch`: on a terminal it takes the place of the last round.
    pub(crate) fn begin_round(&mut self, first: bool) {
        if std::io::stdout().is_terminal() && self.is_table() {
            self.data.push_str("\x1b[H\x1b[2J");
        } else if !first && self.is_table() {
            self.data.push('\n');
        }
    }
}

/// How much of a list to show.
#[derive(clap::Args, Debug, Clone, Copy)]
pub struct ListLimit {
    /// The number of items to show
    #[arg(long, value_name = "N", default_value_t = 100, conflicts_with = "all")]
    limit: u32,
    /// Show all items
    #[arg(long)]
    all: bool,
}

impl ListLimit {
    fn items(self) -> usize {
        if self.all { usize::MAX } else { self.limit as usize }
    }
}

impl Default for ListLimit {
    fn default() -> ListLimit {
        ListLimit { limit: 100, all: false }
    }
}

/// A table for people: a line of column names, then a line for each row. A column whose name begins with `>` is aligned to the right.
pub(crate) struct Table {
    inner: comfy_table::Table,
}

impl Table {
    pub(crate) fn new(columns: &[&str]) -> Table {
        let mut inner = comfy_table::Table::new();
        inner.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
        inner.enforce_styling();
        inner.set_header(
            columns
                .iter()
                .map(|column| Cell::new(column.trim_start_matches('>')).add_attribute(Attribute::Bold)),
        );
        for (place, column) in columns.iter().enumerate() {
            let Some(settings) = inner.column_mut(place) else { continue };
            settings.set_padding((0, 2));
            if column.starts_with('>') {
                settings.set_cell_alignment(CellAlignment::Right);
            }
        }
        Table { inner }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.inner.add_row(cells);
    }

    /// A row that needs attention.
    pub(crate) fn red_row<const N: usize>(&mut self, cells: [String; N]) {
        self.inner.add_row(cells.map(|text| Cell::new(text).fg(Color::Red)));
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

/// A line without the spaces that fill its last columns. There may be styles around them.
fn trimmed(line: &str) -> String {
    let mut kept = line.trim_end();
    while let Some((before, style)) = kept.rsplit_once("\x1b[")
        && style.strip_suffix('m').is_some_and(|codes| codes.chars().all(|c| c.is_ascii_digit() || c == ';'))
    {
        kept = before.trim_end();
    }
    if kept.contains('\x1b') { format!("{kept}\x1b[0m") } else { kept.to_owned() }
}

/// A text in a colour. The colour is dropped where it is not wanted: `NO_COLOR`, or standard output is no terminal.
pub(crate) fn red(text: &str) -> String {
    format!("\x1b[31m{text}\x1b[0m")
}

pub(crate) fn green(text: &str) -> String {
    format!("\x1b[32m{text}\x1b[0m")
}

pub(crate) fn bold(text: &str) -> String {
    format!("\x1b[1m{text}\x1b[0m")
}

/// A limit of the limiter: -1 is none.
pub(crate) fn limit(limit: i64) -> String {
    if limit < 0 { "none".to_owned() } else { words::number(limit) }
}

/// How much of a limit is used, as a bar of ten characters and a percentage; empty without a limit.
pub(crate) fn bar(used: i128, limit: i128) -> String {
    if limit <= 0 {
        return String::new();
    }
    let used = used.clamp(0, limit * 10);
    let tenths = (used * 10 / limit).min(10) as usize;
    format!("{}{} {:>3}%", "█".repeat(tenths), "░".repeat(10 - tenths), used * 100 / limit)
}

/// Whether standard output is a pipe whose other end was closed.
fn is_reader_gone() -> bool {
    let stdout = std::io::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    poll(&mut polled, Some(&Timespec::default())).is_ok() && polled[0].revents().contains(PollFlags::ERR)
}
