//! The samples of the API reference at `/docs` are true: their requests are sent in order to one server, and the
//! answers must be those in the samples.
//!
//! `UPDATE_SAMPLES=1 cargo test -p limina --features cli --test e2e reference` writes the real answers into the
//! samples. A value that differs each time, such as an id, stays as it is in the sample.

use std::collections::HashMap;
use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use reqwest::Method;
use reqwest::blocking::Response;

use crate::harness::Server;

/// The chapters in the order of the page. Later ones use what earlier ones have created.
const CHAPTERS: [&str; 8] =
    ["limiter", "locks", "events", "ledger", "decisions", "namespaces", "server", "doors"];
/// Fields whose values differ each time.
const VARYING: [&str; 15] = [
    "address",
    "conflicting_time",
    "expires_at",
    "expires_in_ms",
    "held_at",
    "held_ms",
    "next",
    "node",
    "open_at",
    "owner_node",
    "publishes_at",
    "reset_ms",
    "retry_after_ms",
    "shard",
    "time",
];
/// The longest object or list that a sample has on one line. The samples take half of a small screen.
const WIDTH: usize = 50;

#[test]
fn every_sample_gets_the_written_answer() {
    let server = Server::fresh();
    let is_update = std::env::var_os("UPDATE_SAMPLES").is_some();
    let mut ids = Ids::default();
    let mut count = 0;
    for chapter in CHAPTERS {
        let path =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../server/assets/docs/{chapter}.txt"));
        let text = std::fs::read_to_string(&path).expect("a chapter");
        let mut real = String::new();
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            writeln!(real, "{line}").expect("a string");
            let Some(head) = line.strip_prefix("> ") else { continue };
            let mut request = Request::new(head);
            while let Some(header) = lines.next_if(|line| line.starts_with("> ")) {
                writeln!(real, "{header}").expect("a string");
                request.headers.extend(header["> ".len()..].split_once(": "));
            }
            while let Some(line) = lines.next_if(|line| !line.starts_with("< ")) {
                request.body += line;
                request.body += "\n";
            }
            // In the sample, an option precedes the body, which leaves less of the line.
            real += &tidy(&request.body, WIDTH - 10);
            let status = lines.next().expect("a status");
            let mut written = Vec::new();
            while let Some(line) = lines.next_if(|line| !is_marker(line)) {
                written.push(line);
            }
            let written = written.join("\n").trim_end().to_owned();
            let answer = request.send(&server, &ids);
            assert_eq!(
                format!("< {}", answer.status().as_u16()),
                status,
                "{chapter}: {head}: {}",
                answer.text().unwrap()
            );
            let answered = read(answer, &written);
            let is_same = is_same(&mut ids, &written, &answered);
            assert!(is_same || is_update, "{chapter}: {head}\nwritten:\n{written}\nanswered:\n{answered}");
            count += 1;
            let shown = if is_same { tidy(&written, WIDTH) } else { ids.as_written(&answered) };
            let end = if lines.peek().is_some_and(|next| next.starts_with('#')) { "\n" } else { "" };
            writeln!(real, "{status}").expect("a string");
            real += shown.trim_end();
            real += if shown.is_empty() {
                end
            } else if end.is_empty() {
                "\n"
            } else {
                "\n\n"
            };
        }
        if is_update {
            std::fs::write(&path, real).expect("the chapter");
        }
    }
    assert!(count > 80, "only {count} samples were found");
}

/// Formats JSON as in all samples. Any other text stays as it is.
fn tidy(text: &str, width: usize) -> String {
    match text.starts_with('{') && !text.trim_end().ends_with('…') {
        true => Node::parse(text).written(0, width) + "\n",
        false => text.to_owned(),
    }
}

/// Whether a line is not part of a body.
fn is_marker(line: &str) -> bool {
    ["#", "-- ", "> ", "< ", "py:", "|"].iter().any(|marker| line.starts_with(marker))
}

struct Request<'a> {
    method: &'a str,
    target: &'a str,
    headers: Vec<(&'a str, &'a str)>,
    body: String,
}

impl<'a> Request<'a> {
    fn new(head: &'a str) -> Request<'a> {
        let (method, target) = head.split_once(' ').expect("a method and a target");
        Request { method, target, headers: Vec::new(), body: String::new() }
    }

    fn send(&self, server: &Server, ids: &Ids) -> Response {
        let method = Method::from_bytes(self.method.as_bytes()).expect("a method");
        let mut request = server.http().request(method, server.url(&ids.as_given(self.target)));
        for (name, value) in &self.headers {
            request = request.header(*name, *value);
        }
        if !self.body.trim().is_empty() {
            if self.headers.is_empty() {
                request = request.header("content-type", "application/json");
            }
            request = request.body(ids.as_given(self.body.trim_end()));
        }
        request.send().expect("an answer")
    }
}

/// The body of an answer. If it never ends, as many lines as the sample has.
fn read(answer: Response, written: &str) -> String {
    let media_type = answer.headers().get("content-type").and_then(|value| value.to_str().ok());
    match media_type.unwrap_or_default().to_owned().as_str() {
        "text/event-stream" => {
            let lines = BufReader::new(answer).lines().map(|line| line.expect("a line"));
            let lines: Vec<String> = lines
                .filter(|line| !line.starts_with(':') && !line.starts_with("retry"))
                .take(written.lines().count().max(2))
                .collect();
            lines.join("\n")
        }
        "application/json" | "application/problem+json" if !written.ends_with('…') => {
            let text = answer.text().expect("a body");
            Node::parse(&text).written(0, WIDTH)
        }
        // After a switch of protocols there is no body.
        _ if answer.status() == 101 => String::new(),
        _ => answer.text().expect("a body"),
    }
}

/// Whether an answer is that of the sample, except for ids and values that vary.
fn is_same(ids: &mut Ids, written: &str, answered: &str) -> bool {
    if written.starts_with('{') && !written.ends_with('…') {
        return ids.are_same("", &Node::parse(written), &Node::parse(answered));
    }
    if written.starts_with("id: ") || written.starts_with("data: ") {
        return written.lines().zip(answered.lines()).all(|(written, answered)| {
            match (written.strip_prefix("data: "), answered.strip_prefix("data: ")) {
                (Some(written), Some(answered)) => {
                    ids.are_same("", &Node::parse(written), &Node::parse(answered))
                }
                _ => written == answered,
            }
        });
    }
    // The sample shows a part of a long text. Each of its lines must occur, and a metric may have any value.
    let without_value =
        |line: &str| line.rsplit_once("} ").map_or(line.to_owned(), |(name, _)| format!("{name}}} "));
    let part = written.trim_end_matches('…').trim_end();
    match written.ends_with('…') {
        true => part.lines().all(|line| answered.contains(&without_value(line))),
        false => part == answered.trim_end(),
    }
}

/// The ids in the samples, each with the id that this server returned instead.
#[derive(Default)]
struct Ids(HashMap<String, String>);

impl Ids {
    /// Replaces the ids of the samples by those of this server.
    fn as_given(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (written, given)| text.replace(written, given))
    }

    /// Replaces the ids of this server by those of the samples.
    fn as_written(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (written, given)| text.replace(given, written))
    }

    /// Compares the values of a field, and remembers which ids correspond.
    fn are_same(&mut self, name: &str, written: &Node, answered: &Node) -> bool {
        match (written, answered) {
            (Node::Object(written), Node::Object(answered)) => {
                written.len() == answered.len()
                    && written.iter().zip(answered).all(|((name, written), (answered_name, answered))| {
                        // The names of fields are in quotes here.
                        name == answered_name && self.are_same(name.trim_matches('"'), written, answered)
                    })
            }
            (Node::List(written), Node::List(answered)) => {
                written.len() == answered.len()
                    && written
                        .iter()
                        .zip(answered)
                        .all(|(written, answered)| self.are_same(name, written, answered))
            }
            (Node::Scalar(written), Node::Scalar(answered)) => {
                let (written_id, answered_id) = (written.trim_matches('"'), answered.trim_matches('"'));
                if is_id(written_id) && is_id(answered_id) {
                    let given = self.0.entry(written_id.to_owned()).or_insert_with(|| answered_id.to_owned());
                    return given == answered_id;
                }
                written == answered
                    || (VARYING.contains(&name) && written != "null" && answered != "null")
                    || self.as_given(written) == *answered
            }
            _ => false,
        }
    }
}

/// An id of the server: 32 digits, or 28 if it is that of a request.
fn is_id(word: &str) -> bool {
    [28, 32].contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// JSON that keeps the order of its fields, because readers of the samples see it.
enum Node {
    /// A string with its quotes, a number, or a word.
    Scalar(String),
    List(Vec<Node>),
    Object(Vec<(String, Node)>),
}

impl Node {
    fn parse(text: &str) -> Node {
        let mut rest = text.trim();
        let node = Node::take(&mut rest);
        assert_eq!(rest.trim(), "", "one value: {text}");
        node
    }

    fn take(rest: &mut &str) -> Node {
        match rest.chars().next() {
            Some('{') => {
                let mut fields = Vec::new();
                let mut items = Items::of(rest, '}');
                while items.next(rest) {
                    let name = take_scalar(rest);
                    *rest = rest.trim_start().strip_prefix(':').expect("a colon").trim_start();
                    fields.push((name, Node::take(rest)));
                }
                Node::Object(fields)
            }
            Some('[') => {
                let mut list = Vec::new();
                let mut items = Items::of(rest, ']');
                while items.next(rest) {
                    list.push(Node::take(rest));
                }
                Node::List(list)
            }
            _ => Node::Scalar(take_scalar(rest)),
        }
    }

    /// Writes the value on one line if it is short, and otherwise with one line for each item.
    fn written(&self, indent: usize, width: usize) -> String {
        let flat = self.flat();
        if indent + flat.len() <= width {
            return flat;
        }
        let (open, close, items) = match self {
            Node::Scalar(text) => return text.clone(),
            Node::List(items) => {
                ('[', ']', items.iter().map(|item| item.written(indent + 2, width)).collect::<Vec<_>>())
            }
            Node::Object(fields) => {
                let fields = fields
                    .iter()
                    .map(|(name, value)| format!("{name}: {}", value.written(indent + 2, width)));
                ('{', '}', fields.collect())
            }
        };
        let space = " ".repeat(indent);
        let items: Vec<String> = items.iter().map(|item| format!("\n{space}  {item}")).collect();
        format!("{open}{}\n{space}{close}", items.join(","))
    }

    fn flat(&self) -> String {
        match self {
            Node::Scalar(text) => text.clone(),
            Node::List(items) => format!("[{}]", items.iter().map(Node::flat).collect::<Vec<_>>().join(", ")),
            Node::Object(fields) => {
                let fields = fields.iter().map(|(name, value)| format!("{name}: {}", value.flat()));
                format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// The items of a list or an object, up to its end.
struct Items {
    end: char,
    is_first: bool,
}

impl Items {
    fn of(rest: &mut &str, end: char) -> Items {
        *rest = &rest[1..];
        Items { end, is_first: true }
    }

    /// Continues to the next item. Returns false at the end.
    fn next(&mut self, rest: &mut &str) -> bool {
        *rest = rest.trim_start();
        if let Some(behind) = rest.strip_prefix(self.end) {
            *rest = behind;
            return false;
        }
        if !std::mem::take(&mut self.is_first) {
            *rest = rest.strip_prefix(',').expect("a comma").trim_start();
        }
        true
    }
}

fn take_scalar(rest: &mut &str) -> String {
    let mut is_escaped = false;
    let is_text = rest.starts_with('"');
    let end = rest.char_indices().skip(1).find(|(_, letter)| {
        let is_end = if is_text { *letter == '"' && !is_escaped } else { ",]} \n".contains(*letter) };
        is_escaped = *letter == '\\' && !is_escaped;
        is_end
    });
    let end = end.map_or(rest.len(), |(n, _)| n + usize::from(is_text));
    let scalar = rest[..end].to_owned();
    *rest = &rest[end..];
    scalar
}
