//! The replies of a server, shown: one, a list, or again and again.

use crate::{Failed, Format, output::Output};
use limina_client::{Pages, Reply};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use std::{
    io::{IsTerminal, Write},
    pin::pin,
    time::Duration,
};

/// How often a command that waits checks whether standard output still has a reader.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Output {
    pub(crate) fn is_table(&self) -> bool {
        self.format == Format::Table
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
            // Not more items than will be shown: `next` must continue after the last of them.
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

    /// Whether standard output has no reader any more. An endless command then ends.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed || self.error.is_some() || is_reader_gone()
    }

    /// The result of a future, or `None` if standard output loses its reader first.
    pub(crate) async fn unless_closed<T>(&self, awaited: impl Future<Output = T>) -> Option<T> {
        let mut awaited = pin!(awaited);
        while !self.is_closed() {
            if let Ok(value) = tokio::time::timeout(LOOK_EVERY, awaited.as_mut()).await {
                return Some(value);
            }
        }
        None
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

/// Whether standard output is a pipe whose other end was closed.
fn is_reader_gone() -> bool {
    let stdout = std::io::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    poll(&mut polled, Some(&Timespec::default())).is_ok() && polled[0].revents().contains(PollFlags::ERR)
}
