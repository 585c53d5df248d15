//! Scenarios as scripts: each line of `testdata/*/*.txt` is a command, and the lines behind it that begin with `>` are
//! what the engine must answer. `UPDATE_EXPECT=1 cargo test -p limina-engine` writes the answers anew.
//!
//! Commands are applied one by one; every stored record goes through the bytes, and `seal` and `reopen` decide when a
//! batch ends and when the engine is loaded from what was stored.

mod events;
mod ledger;
mod limiter;
mod locks;

use bytes::Bytes;
use limina_engine::{
    Applied, Command, Engine, Fetched, Idempotency, Job, Millis, Missing, Name, Options, Outcome, Page, Read,
    ReadResult, Request, Time, WaitId, record,
};
use std::{collections::BTreeMap, fmt::Write, path::Path};

#[test]
fn scenarios() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/testdata");
    let list = |folder: &Path| -> Vec<_> {
        let mut entries: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        entries
    };
    let files: Vec<_> = list(&folder).iter().flat_map(|family| list(family)).collect();
    assert!(files.len() > 10, "the scenarios are missing");
    for file in files {
        let script = std::fs::read_to_string(&file).unwrap();
        let actual = play(&script);
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&file, actual).unwrap();
        } else {
            assert_eq!(actual, script, "{} (UPDATE_EXPECT=1 writes the answers anew)", file.display());
        }
    }
}

/// The script with the engine's answers in place of the expected ones.
fn play(script: &str) -> String {
    let mut bench = Bench::new();
    let mut text = String::new();
    for line in script.lines().filter(|line| !line.starts_with('>')) {
        writeln!(text, "{line}").unwrap();
        if !line.is_empty() && !line.starts_with('#') {
            let answer = bench.line(line);
            answer.lines().for_each(|line| writeln!(text, "> {line}").unwrap());
        }
    }
    text
}

/// An engine and what it has stored.
struct Bench {
    engine: Engine,
    stored: BTreeMap<Bytes, Bytes>,
    now: Time,
    /// Who waits for an answer, as the line that asked.
    waiting: BTreeMap<WaitId, String>,
}

impl Bench {
    fn new() -> Bench {
        Bench {
            engine: Engine::open(Options::default(), []).unwrap(),
            stored: BTreeMap::new(),
            now: Time(1_000_000),
            waiting: BTreeMap::new(),
        }
    }

    fn line(&mut self, line: &str) -> String {
        let mut words = line.split_whitespace();
        let verb = words.next().unwrap();
        let words: Vec<&str> = words.collect();
        match verb {
            "wait" => {
                self.now = self.now.after(Millis(words[0].parse().unwrap()));
                String::new()
            }
            "seal" => {
                self.seal();
                String::new()
            }
            "reopen" => {
                self.seal();
                let range = record::key::residents();
                let residents: Vec<_> =
                    self.stored.range(range).map(|(key, value)| (key.clone(), value.clone())).collect();
                self.engine = Engine::open(Options::default(), residents).unwrap();
                String::new()
            }
            "sweep" => {
                let mut slices = 0;
                while let Some(due) = self.engine.next_sweep() {
                    self.with_fetching(|engine, now, fetched| engine.apply_due(now, due, fetched));
                    self.seal();
                    slices += 1;
                }
                format!("{slices} slices, {} records left", self.stored.len())
            }
            "restart" => {
                self.line("reopen");
                self.engine.apply_grace_period(self.now);
                String::new()
            }
            _ => self.request(line, parse(verb, &words)),
        }
    }

    /// Everything due first, then the request. Tells its answer, and before and after it those of others that waited.
    fn request(&mut self, line: &str, request: Request) -> String {
        while let Some(due) = self.engine.due(self.now, 1).pop() {
            self.with_fetching(|engine, now, fetched| engine.apply_due(now, due, fetched));
        }
        let mut told = self.completions();
        let mut job = Job::new(request);
        match self.with_fetching(|engine, now, fetched| engine.apply(now, &mut job, fetched)) {
            Applied::Done { outcome, .. } => told.push(show(&outcome)),
            Applied::Waiting(id) => {
                self.waiting.insert(id, line.to_owned());
                told.push("waits".into());
            }
        }
        told.extend(self.completions());
        told.retain(|text| !text.is_empty());
        lines(told.into_iter())
    }

    fn completions(&mut self) -> Vec<String> {
        let completions = self.engine.take_completions().into_iter();
        completions.map(|(id, outcome)| format!("({}) {}", self.waiting[&id], show(&outcome))).collect()
    }

    fn with_fetching<R>(
        &mut self,
        mut run: impl FnMut(&mut Engine, Time, &Fetched) -> Result<R, Missing>,
    ) -> R {
        let mut fetched = Fetched::default();
        loop {
            match run(&mut self.engine, self.now, &fetched) {
                Ok(result) => return result,
                Err(Missing(reads)) => {
                    for read in reads {
                        let answer = self.answer(&read);
                        fetched.insert(read, answer);
                    }
                }
            }
        }
    }

    fn answer(&self, read: &Read) -> ReadResult {
        let copy = |(key, value): (&Bytes, &Bytes)| (key.clone(), value.clone());
        match read {
            Read::Get(key) => ReadResult::Value(self.stored.get(key).cloned()),
            Read::LastAtOrBefore { from, at } => {
                ReadResult::Last(self.stored.range(from.clone()..=at.clone()).next_back().map(copy))
            }
            Read::Scan { from, to, limit } => {
                ReadResult::Page(self.stored.range(from.clone()..to.clone()).take(*limit).map(copy).collect())
            }
        }
    }

    fn seal(&mut self) {
        for write in self.engine.seal().writes.iter() {
            let key = Bytes::copy_from_slice(write.key);
            match write.value {
                Some(value) => self.stored.insert(key, Bytes::copy_from_slice(value)),
                None => self.stored.remove(&key),
            };
        }
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A command of any family. `key:` gives it an idempotency key, and `body:` another body.
fn parse(verb: &str, words: &[&str]) -> Request {
    let command = match verb {
        "delete-namespace" => Command::DeleteNamespace,
        "namespaces" => Command::ListNamespaces(Page { after: None, limit: 100 }),
        _ => limiter::parse(verb, words)
            .or_else(|| locks::parse(verb, words))
            .or_else(|| events::parse(verb, words))
            .unwrap_or_else(|| ledger::parse(verb, words)),
    };
    let idempotency = option_of(words, "key").map(|key| Idempotency {
        key: name(key),
        fingerprint: [option_of(words, "body").map_or(0, |body| body.parse().unwrap()); 16],
    });
    Request { namespace: name("default"), idempotency, command }
}

fn show(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Ledger(Ok(reply)) => ledger::show_reply(reply),
        Outcome::Ledger(Err(refusal)) => ledger::show_refusal(refusal),
        Outcome::Limiter(Ok(reply)) => limiter::show_reply(reply),
        Outcome::Limiter(Err(refusal)) => limiter::show_refusal(refusal),
        Outcome::Locks(Ok(reply)) => locks::show_reply(reply),
        Outcome::Locks(Err(refusal)) => locks::show_refusal(refusal),
        Outcome::Events(Ok(reply)) => events::show_reply(reply),
        Outcome::Events(Err(refusal)) => format!("{refusal:?}"),
        Outcome::Namespaces(list) => {
            lines(list.iter().map(|info| format!("{} @{}", info.name, info.position.0)))
        }
        other => format!("{other:?}"),
    }
}

/// The value of `key:value`, or nothing at all for a word by itself.
fn option_of<'a>(words: &[&'a str], key: &str) -> Option<&'a str> {
    words.iter().find_map(|word| match word.split_once(':') {
        Some((k, value)) if k == key => Some(value),
        None if *word == key => Some(""),
        _ => None,
    })
}

fn lines(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join("\n")
}
