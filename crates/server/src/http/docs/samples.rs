//! Which calls the reference shows, in the order in which one uses them, with a sample of each request and its answer.
//!
//! The samples are the files `assets/docs/*.txt`. An end-to-end test sends them to the binary from top to bottom and compares the
//! answers, so that a sample cannot be wrong. Each line of a file has a marker:
//!
//! - `# TAG TITLE`: a family, with paragraphs about it in the lines below
//! - `## TITLE`: a group of calls
//! - `### OPERATION_ID TITLE`: a call
//! - `-- TEXT`: what the next request shows
//! - `> METHOD TARGET`, then `> HEADER: VALUE`: a request, with its body in the lines below
//! - `< STATUS`: the answer, with its body in the lines below
//! - `py: IMPORTS`, then `| CODE`: the call by the Python client, if the client has it

use std::sync::LazyLock;

const FILES: [&str; 8] = [
    include_str!("../../../assets/docs/limiter.txt"),
    include_str!("../../../assets/docs/locks.txt"),
    include_str!("../../../assets/docs/events.txt"),
    include_str!("../../../assets/docs/ledger.txt"),
    include_str!("../../../assets/docs/decisions.txt"),
    include_str!("../../../assets/docs/namespaces.txt"),
    include_str!("../../../assets/docs/server.txt"),
    include_str!("../../../assets/docs/doors.txt"),
];

/// All families, in the order of the page.
pub(in super::super) static FAMILIES: LazyLock<Vec<Family>> = LazyLock::new(|| FILES.map(parse).into());

/// A chapter of the reference.
#[derive(Default)]
pub(in super::super) struct Family {
    pub(super) tag: &'static str,
    pub(super) title: &'static str,
    /// Paragraphs that replace the tag's description.
    pub(super) intro: Vec<&'static str>,
    pub(in super::super) groups: Vec<Group>,
}

/// Calls that belong together.
pub(in super::super) struct Group {
    pub(super) title: &'static str,
    pub(in super::super) calls: Vec<Call>,
}

/// A call with its samples.
pub(in super::super) struct Call {
    pub(in super::super) operation_id: &'static str,
    pub(super) title: &'static str,
    /// The first one shows the call at its simplest.
    pub(in super::super) exchanges: Vec<Exchange>,
    pub(super) python: Option<Python>,
}

/// A request and its answer.
#[derive(Default)]
pub(in super::super) struct Exchange {
    pub(super) label: Option<&'static str>,
    pub(super) method: &'static str,
    pub(super) target: &'static str,
    pub(super) headers: Vec<(&'static str, &'static str)>,
    pub(in super::super) request: String,
    pub(in super::super) status: &'static str,
    pub(in super::super) response: String,
}

/// The call by the Python client.
pub(super) struct Python {
    pub(super) imports: &'static str,
    pub(super) code: String,
}

/// Reads a file. A line that has no place is left out; the tests find it missing on the page.
fn parse(file: &'static str) -> Family {
    let mut family = Family::default();
    let mut label = None;
    for line in file.lines() {
        if let Some(rest) = line.strip_prefix("### ") {
            let (operation_id, title) = rest.split_once(' ').unwrap_or((rest, rest));
            let call = Call { operation_id, title, exchanges: Vec::new(), python: None };
            if let Some(group) = family.groups.last_mut() {
                group.calls.push(call);
            }
        } else if let Some(title) = line.strip_prefix("## ") {
            family.groups.push(Group { title, calls: Vec::new() });
        } else if let Some(rest) = line.strip_prefix("# ") {
            (family.tag, family.title) = rest.split_once(' ').unwrap_or((rest, rest));
        } else if let Some(call) = family.groups.last_mut().and_then(|group| group.calls.last_mut()) {
            parse_sample(call, &mut label, line);
        } else if family.groups.is_empty() && !line.is_empty() {
            family.intro.push(line);
        }
    }
    for call in family.groups.iter_mut().flat_map(|group| &mut group.calls) {
        for exchange in &mut call.exchanges {
            exchange.request.truncate(exchange.request.trim_end().len());
            exchange.response.truncate(exchange.response.trim_end().len());
        }
    }
    family
}

fn parse_sample(call: &mut Call, label: &mut Option<&'static str>, line: &'static str) {
    if let Some(text) = line.strip_prefix("-- ") {
        *label = Some(text);
    } else if let Some(imports) = line.strip_prefix("py:") {
        call.python = Some(Python { imports: imports.trim(), code: String::new() });
    } else if let Some(code) = line.strip_prefix('|') {
        if let Some(python) = &mut call.python {
            add_line(&mut python.code, code.strip_prefix(' ').unwrap_or(code));
        }
    } else if let Some(head) = line.strip_prefix("> ") {
        match (head.split_once(": "), call.exchanges.last_mut()) {
            (Some(header), Some(exchange)) => exchange.headers.push(header),
            _ => {
                let (method, target) = head.split_once(' ').unwrap_or((head, ""));
                call.exchanges.push(Exchange { label: label.take(), method, target, ..Exchange::default() });
            }
        }
    } else if let Some(exchange) = call.exchanges.last_mut() {
        match line.strip_prefix("< ") {
            Some(status) => exchange.status = status,
            None if exchange.status.is_empty() => add_line(&mut exchange.request, line),
            None => add_line(&mut exchange.response, line),
        }
    }
}

fn add_line(text: &mut String, line: &str) {
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(line);
}
