//! `limina audit tail`: who changed what.

use crate::{Exit, Failed, Format, Session, table::Table, words};
use limina_client::{Pages, types::AuditRecord};
use std::{collections::VecDeque, time::Duration};

/// The commands of `audit`.
#[derive(clap::Subcommand, Debug)]
pub enum AuditCommand {
    /// Show the latest management actions
    Tail {
        /// The number of actions to show
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: usize,
        /// Of all namespaces
        #[arg(short = 'A', long)]
        all_namespaces: bool,
        /// Go on, and show further actions as they happen
        #[arg(short, long)]
        follow: bool,
    },
}

pub(crate) async fn run(command: AuditCommand, session: &mut Session) -> Result<Exit, Failed> {
    let AuditCommand::Tail { limit, all_namespaces, follow } = command;
    let client = session.client.clone();
    let pages = || if all_namespaces { client.server().audit() } else { client.audit() };
    let mut cursor = Cursor::default();
    let mut latest = VecDeque::new();
    while let Some(more) = cursor.read(pages()).await? {
        latest.extend(more);
        latest.drain(..latest.len().saturating_sub(limit));
    }
    show(session, latest.make_contiguous());
    while follow && !session.out.is_closed() {
        tokio::time::sleep(Duration::from_secs(1)).await;
        while let Some(more) = cursor.read(pages()).await? {
            show(session, &more);
        }
    }
    Ok(Exit::Yes)
}

/// How far the audit has been read: the page that was read last, and how much of it there was.
#[derive(Default)]
struct Cursor {
    after: Option<String>,
    seen: usize,
}

impl Cursor {
    /// The records that were not there before, or `None` if there are none.
    async fn read(&mut self, pages: Pages<AuditRecord>) -> Result<Option<Vec<AuditRecord>>, Failed> {
        let pages = pages.page_size(1000);
        let mut pages = match &self.after {
            Some(after) => pages.after(after),
            None => pages,
        };
        let Some(page) = pages.next_page().await? else { return Ok(None) };
        let page = page.into_inner();
        let fresh: Vec<AuditRecord> = page.items.into_iter().skip(self.seen).collect();
        match page.next {
            Some(next) => (self.after, self.seen) = (Some(next), 0),
            None => self.seen += fresh.len(),
        }
        let go_on = !fresh.is_empty() || self.seen == 0 && self.after.is_some();
        Ok(go_on.then_some(fresh))
    }
}

fn show(session: &mut Session, records: &[AuditRecord]) {
    let out = &mut session.out;
    if out.format == Format::Table {
        let mut table = Table::new(&["TIME", "NAMESPACE", "WHO", "FROM", "ACTION", "TARGET", "CHANGE"]);
        for record in records {
            table.row([
                words::time(record.time),
                words::printable(&record.namespace),
                words::or_dash(record.actor.as_ref()),
                words::or_dash(record.address.as_ref()),
                words::printable(&record.action),
                words::printable(&record.target),
                change(record),
            ]);
        }
        out.table(&table);
        if records.is_empty() {
            out.say("no management actions");
        }
    } else {
        for record in records {
            out.line(serde_json::to_string(record).unwrap_or_default());
        }
    }
    out.flush();
}

/// The fields that differ between before and after.
fn change(record: &AuditRecord) -> String {
    use serde_json::Value::Object;
    let text = match (&record.before, &record.after) {
        (Some(Object(before)), Some(Object(after))) => {
            let names = before.keys().chain(after.keys().filter(|name| !before.contains_key(*name)));
            let null = serde_json::Value::Null;
            let differs = names.filter_map(|name| {
                let (old, new) = (before.get(name).unwrap_or(&null), after.get(name).unwrap_or(&null));
                (old != new).then(|| format!("{name}: {old} → {new}"))
            });
            differs.collect::<Vec<_>>().join(", ")
        }
        (None, Some(_)) => "created".to_owned(),
        (Some(_), None) => "gone".to_owned(),
        _ => String::new(),
    };
    let short: String = words::printable(&text).chars().take(120).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}
