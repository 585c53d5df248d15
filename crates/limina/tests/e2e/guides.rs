//! The guides can be followed: their examples are executed in order on one server, and the answers must be those in the
//! guides.
//!
//! `UPDATE_GUIDES=1 cargo test -p limina --features cli --test e2e guides` writes the real answers into the pages.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::harness::Server;

/// The order in which a new user reads them.
const PAGES: [&str; 6] = [
    "README.md",
    "docs/ledger.md",
    "docs/limiter.md",
    "docs/locks.md",
    "docs/events.md",
    "docs/decisions.md",
];
/// The address that the pages use.
const ADDRESS: &str = "localhost:7070";
/// Blocks with these commands show other output than the answers of a running server.
const OTHER_PROGRAMS: [&str; 2] = ["$ cargo", "$ limina"];
/// How long a command that only reads is repeated until its answer is the expected one.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same with `UPDATE_GUIDES`. It is short, so that no lease or lock of an example expires meanwhile.
const PATIENCE_OF_UPDATE: Duration = Duration::from_secs(1);
/// Fields whose numbers differ each time, the parameter `t` of the header `RateLimit`, and the last word of
/// `Retry-After`.
const VARYING: [&str; 11] = [
    "time",
    "expires_at",
    "held_at",
    "publishes_at",
    "conflicting_time",
    "held_ms",
    "expires_in_ms",
    "reset_ms",
    "retry_after_ms",
    "t",
    "after",
];

#[test]
fn every_example_gets_the_written_answer() {
    let server = Server::fresh();
    let is_update = std::env::var_os("UPDATE_GUIDES").is_some();
    for page in PAGES {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
        let text = std::fs::read_to_string(&path).expect("a page");
        let real = follow(page, &text, &server, is_update);
        if is_update {
            std::fs::write(&path, real).expect("the page");
        }
    }
}

/// Executes the examples of a page in one shell, and returns the page with the real answers.
fn follow(page: &str, text: &str, server: &Server, is_update: bool) -> String {
    let mut shell = Shell::start();
    let mut ids = Ids::default();
    let mut real = String::new();
    let mut lines = text.lines().enumerate().peekable();
    while let Some((_, line)) = lines.next() {
        real += line;
        real += "\n";
        if line != "```console" {
            continue;
        }
        let mut block = Vec::new();
        while let Some(inside) = lines.next_if(|(_, line)| *line != "```") {
            block.push(inside);
        }
        if block.iter().any(|(_, line)| OTHER_PROGRAMS.iter().any(|program| line.starts_with(program))) {
            real.extend(block.iter().map(|(_, line)| format!("{line}\n")));
            continue;
        }
        for example in block.chunk_by(|_, (_, next)| !next.starts_with("$ ")) {
            let ((number, prompt), written) = example.split_first().expect("a chunk has a line");
            let command =
                prompt.strip_prefix("$ ").unwrap_or_else(|| panic!("{page}:{}: no command", number + 1));
            let written: Vec<&str> = written.iter().map(|(_, line)| *line).collect();
            let meant = ids.as_they_are(command).replace(ADDRESS, &server.address().to_string());
            let mut answer = shell.run(&meant, written.len());
            let mut is_same = ids.is_same(written.join("\n").trim_end(), answer.trim_end());
            // The effect of a command in the background may not be visible yet, so reads are repeated. The time for
            // that is short: a page that says `NotFound` by mistake must not become right because the test waited until
            // the object expired.
            let begin = Instant::now();
            let patience = if is_update { PATIENCE_OF_UPDATE } else { PATIENCE };
            let may_repeat = command.starts_with("curl localhost") && !written.concat().contains("NotFound");
            while !is_same && may_repeat && begin.elapsed() < patience {
                answer = shell.run(&meant, written.len());
                is_same = ids.is_same(written.join("\n").trim_end(), answer.trim_end());
            }
            assert!(
                is_same || is_update,
                "{page}:{}: {command}\nwritten:\n{}\nanswered:\n{answer}",
                number + 1,
                written.join("\n"),
            );
            let shown = if is_same { written.join("\n") } else { ids.as_written(answer.trim_end()) };
            real += &format!("$ {command}\n{}", if shown.is_empty() { shown } else { format!("{shown}\n") });
        }
    }
    real
}

/// A shell that executes one command after another. So one of them may continue in the background.
struct Shell {
    child: Child,
    commands: ChildStdin,
    output: BufReader<ChildStdout>,
    _directory: TempDir,
}

impl Shell {
    const END: &str = "=== the command has ended ===";

    fn start() -> Shell {
        let directory = TempDir::new().expect("a temporary directory");
        let mut child = Command::new("bash")
            .current_dir(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("bash runs");
        let mut commands = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        commands
            .write_all(b"exec 2>&1; curl() { command curl -sS --max-time 60 \"$@\"; }\n")
            .expect("bash reads");
        Shell { child, commands, output, _directory: directory }
    }

    /// Returns the output of the command. If the command follows a stream, returns only as many lines as are wanted.
    fn run(&mut self, command: &str, wanted_lines: usize) -> String {
        let command = match command.starts_with("curl -N") {
            true => format!("head -n {wanted_lines} < <({command})"),
            false => command.to_owned(),
        };
        let line = format!("{{ {command}\n}}; echo; echo '{}'\n", Shell::END);
        self.commands.write_all(line.as_bytes()).expect("bash reads");
        let mut text = String::new();
        loop {
            let mut line = String::new();
            let count = self.output.read_line(&mut line).expect("bash answers");
            assert_ne!(count, 0, "bash has ended: {text}");
            if line.trim_end() == Shell::END {
                return text.replace('\r', "");
            }
            text += &line;
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _is_gone = self.child.kill();
        let _is_gone = self.child.wait();
    }
}

/// The ids in a page, each with the id that this server returned instead.
#[derive(Default)]
struct Ids(HashMap<String, String>);

impl Ids {
    /// Replaces the ids of the page by those of this server.
    fn as_they_are(&self, command: &str) -> String {
        self.0.iter().fold(command.to_owned(), |text, (written, given)| text.replace(written, given))
    }

    /// Replaces the ids of this server by those of the page. New ids stay as they are.
    fn as_written(&mut self, answer: &str) -> String {
        let mut text = answer.to_owned();
        for id in words(answer).into_iter().filter(|word| is_id(word)) {
            match self.0.iter().find(|(_, given)| *given == id) {
                Some((written, _)) => text = text.replace(id, written),
                None => drop(self.0.insert(id.to_owned(), id.to_owned())),
            }
        }
        text
    }

    /// Whether the id `written` of the page corresponds to the id `given` by this server. Two ids that are both new
    /// correspond to each other from now on.
    fn stands_for(&mut self, written: &str, given: &str) -> bool {
        match self.0.get(written) {
            Some(known) => known == given,
            None if self.0.values().any(|known| known == given) => false,
            None => self.0.insert(written.to_owned(), given.to_owned()).is_none(),
        }
    }

    /// Whether both texts are the same, except for ids and times. Remembers which ids correspond.
    fn is_same(&mut self, written: &str, answered: &str) -> bool {
        let (written, answered) = (words(written), words(answered));
        let mut name = "";
        written.len() == answered.len()
            && written.iter().zip(&answered).all(|(written, answered)| {
                let are_numbers = is_number(written) && is_number(answered);
                let is_same = if is_id(written) && is_id(answered) {
                    self.stands_for(written, answered)
                } else {
                    written == answered || (are_numbers && VARYING.contains(&name))
                };
                if !are_numbers && written.starts_with(|first: char| first.is_alphabetic()) {
                    name = written;
                }
                is_same
            })
    }
}

/// Splits a text into names, numbers, ids, and single other characters. Headers that vary are left out.
fn words(text: &str) -> Vec<&str> {
    let varies = |line: &&str| line.starts_with("date: ") || line.starts_with("content-length: ");
    let lines = text.lines().filter(|line| !varies(line));
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut words = Vec::new();
    for line in lines {
        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            let end = if is_part(first) {
                rest.find(|c| !is_part(c)).unwrap_or(rest.len())
            } else {
                first.len_utf8()
            };
            words.push(&rest[..end]);
            rest = &rest[end..];
        }
        words.push("\n");
    }
    words
}

fn is_number(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_digit())
}

/// An id of the server: 32 digits, or 28 if it is that of a request.
fn is_id(word: &str) -> bool {
    [28, 32].contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}
