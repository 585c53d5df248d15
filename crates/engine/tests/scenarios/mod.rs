//! Scenarios of the engine, as scripts. In `testdata/*/*.txt` each line is a command, and the lines after it that begin
//! with `>` are the expected answer. `UPDATE_EXPECT=1 cargo test -p limina-engine` rewrites the answers.
//!
//! Each family's module describes its commands. These work with all of them:
//!
//! - `ns:red` sends the command to the namespace `red`; without it, the namespace is `default`.
//! - `key:k` gives the request an idempotency key. `body:1` stands for another request body under the same key.
//! - `as:alice` sends the command with the token `alice`.
//! - `pages 3 COMMAND` reads a whole list, three items a page. A line `…` says that more items follow.
//! - `repeat 20 COMMAND ; COMMAND` runs the commands 20 times, with 1, 2, 3 … in place of `#`, and shows the last answer.
//! - `wait 100` lets 100 ms pass. Time starts at 1,000,000 ms.
//! - `seal` ends the batch that is being built. `reopen` also loads the engine from what is stored. `restart` is a
//!   `reopen` after which every holder of a lock or a lease gets its whole ttl again. `restored 1` is a `reopen` of a shard that
//!   was marked as restored, once.
//! - `quotas counters:2 streams:1` sets these quotas, and no others, for all namespaces. `for:shop-*` sets them for the
//!   namespaces that match the pattern, in addition to those that were set before. `usage` shows what the namespace has.
//! - `slice 10` lets a turn of a batch do 10 units of work, from the next `reopen` on.
//! - `slowly 5 COMMAND` lets 5 ms pass between two turns of a batch.
//! - `cut 2 COMMAND` runs a batch until 2 items are done. Then it is cut, as by a crash: what is done is stored, and the engine
//!   is loaded again.
//! - `sweep` removes what is deleted for good, and counts the records that are left.
//!
//! Commands are applied one by one, after everything that is due. If a request that waited is answered meanwhile, the
//! answer is shown with its command in parentheses. Every stored record goes through its bytes.

mod conditions;
mod decisions;
mod events;
mod ledger;
mod limiter;
mod locks;

use bytes::Bytes;
use limina_engine::{
    Applied, Caller, Command, Engine, Fetched, Idempotency, Job, Millis, Missing, Name, Options, Outcome,
    Page, Quota, QuotaExceeded, QuotaTable, Read, ReadResult, Request, RequestId, Sizes, Time, WaitId,
    audit::{AuditRecord, State},
    decisions::Reply as Decisions,
    events::{Refusal as EventsRefusal, Reply as Events},
    ledger::Reply as Ledger,
    limiter::Reply as Limiter,
    locks::Reply as Locks,
    quotas::QuotaSection,
    record,
};
use std::{collections::BTreeMap, fmt::Write, path::Path, sync::Arc};

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
    let mut failures = String::new();
    for file in files {
        let script = std::fs::read_to_string(&file).unwrap();
        let actual = play(&script);
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&file, actual).unwrap();
        } else if actual != script {
            writeln!(failures, "{}\n{}", file.display(), first_difference(&script, &actual)).unwrap();
        }
    }
    assert!(failures.is_empty(), "UPDATE_EXPECT=1 rewrites the answers\n{failures}");
}

/// The first answer that differs, with the command that it belongs to.
fn first_difference(expected: &str, actual: &str) -> String {
    let (mut command, mut number) = ("", 0);
    let mut actual_lines = actual.lines();
    for line in expected.lines() {
        number += 1;
        let found = actual_lines.next().unwrap_or("the end");
        if line != found {
            return format!("  line {number}, {command}\n    expected {line}\n    answered {found}");
        }
        if !line.starts_with('>') {
            command = line;
        }
    }
    format!("  after line {number}, {command}\n    answered {}", actual_lines.next().unwrap_or("nothing"))
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
    /// How much time passes between two turns of a batch.
    pause: Millis,
    quotas: QuotaSection,
    quota_patterns: BTreeMap<String, QuotaSection>,
    options: Options,
    /// Who waits for an answer, as the line that asked.
    waiting: BTreeMap<WaitId, String>,
}

impl Bench {
    fn new() -> Bench {
        Bench {
            engine: Engine::open(Options::default(), []).unwrap(),
            options: Options::default(),
            stored: BTreeMap::new(),
            now: Time(1_000_000),
            pause: Millis(0),
            quotas: QuotaSection::new(),
            quota_patterns: BTreeMap::new(),
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
                let before = self.usages();
                let options = Options { quotas: self.quota_table(), ..self.options.clone() };
                self.engine = Engine::open(options, residents).unwrap();
                self.check_reopened(&before);
                String::new()
            }
            "restored" => {
                self.seal();
                let restores: u64 = words[0].parse().unwrap();
                let mut mark = Vec::new();
                record::encode_into(&restores, &mut mark);
                self.stored.insert(record::key::restored(), mark.into());
                self.line("reopen")
            }
            "slice" => {
                self.options.slice_work = words[0].parse().unwrap();
                String::new()
            }
            "slowly" => {
                let (pause, command) = split_number(line);
                self.pause = Millis(pause as u64);
                let answer = self.line(command);
                self.pause = Millis(0);
                answer
            }
            "cut" => {
                let (items, command) = split_number(line);
                let mut job = Job::new(parse_line(command));
                while job.done() < items {
                    let applied =
                        self.with_fetching(|engine, now, fetched| engine.apply(now, &mut job, fetched));
                    assert!(matches!(applied, Applied::Unfinished), "the batch has ended: {applied:?}");
                }
                self.line("reopen")
            }
            // From the next opening on, so many counters are counted at once.
            "count-slice" => {
                self.options.backfill_slice = words[0].parse().unwrap();
                String::new()
            }
            "backfill" => {
                let mut told = Vec::new();
                while let Some(due) = self.engine.next_backfill() {
                    self.with_fetching(|engine, now, fetched| engine.apply_due(now, due, fetched));
                    told.extend(self.completions());
                }
                lines(told.into_iter())
            }
            // How many records the changes since the last seal are.
            "writes" => {
                let writes = self.engine.seal().writes.iter().count();
                format!("{writes} records")
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
            "repeat" => {
                let (times, commands) = split_number(line);
                let mut last = String::new();
                for n in 1..=times {
                    for command in commands.split(" ; ") {
                        let answer = self.line(&command.replace('#', &n.to_string()));
                        last = if answer.is_empty() { last } else { answer };
                    }
                }
                last
            }
            "pages" => {
                let (size, command) = split_number(line);
                self.pages(command, size)
            }
            "selects" => self.selects(&words),
            "quotas" => {
                self.set_quotas(&words);
                String::new()
            }
            "usage" => {
                self.apply_due();
                self.usage(option_of(&words, "ns").unwrap_or("default"))
            }
            _ => {
                let answer = self.ask(line).0;
                self.check_usage();
                answer
            }
        }
    }

    fn quota_table(&self) -> Arc<QuotaTable> {
        Arc::new(QuotaTable::new(self.quotas.clone(), self.quota_patterns.clone()))
    }

    fn set_quotas(&mut self, words: &[&str]) {
        let limits = words.iter().filter_map(|word| word.split_once(':')).filter(|(key, _)| *key != "for");
        let section = limits.map(|(key, limit)| {
            let limit = (limit != "unlimited").then(|| limit.parse().unwrap());
            (Quota::from_name(key).unwrap(), limit)
        });
        match option_of(words, "for") {
            Some(pattern) => drop(self.quota_patterns.insert(pattern.to_owned(), section.collect())),
            None => self.quotas = section.collect(),
        }
        self.engine.set_quotas(self.quota_table());
    }

    /// Everything except the bytes, which depend on the sizes of types.
    fn usage(&self, namespace: &str) -> String {
        let Some(usage) = self.engine.usage(&name(namespace)) else { return "nothing".into() };
        let counted = Quota::ALL.into_iter().filter(|quota| *quota != Quota::ResidentBytes);
        let counts = counted.map(|quota| (quota, usage.of(quota))).filter(|(_, count)| *count > 0);
        let counts: Vec<String> = counts.map(|(quota, count)| format!("{quota} {count}")).collect();
        if counts.is_empty() { "nothing".into() } else { counts.join(", ") }
    }

    fn usages(&self) -> BTreeMap<Name, Sizes> {
        let names = self.engine.namespaces();
        names.map(|name| (name.clone(), self.engine.usage(name).unwrap())).collect()
    }

    /// What is counted as it changes is what there is.
    fn check_usage(&self) {
        let mut sum = 0;
        for (name, usage) in self.usages() {
            assert_eq!(Some(usage), self.engine.recount(&name), "the usage of {name}");
            sum += usage.resident_bytes;
        }
        assert_eq!(self.engine.resident_bytes(), sum);
    }

    /// Opening changes no usage, except that requests no longer wait, that windows are lost which were not written, and that groups
    /// and counters have less room for others.
    fn check_reopened(&self, before: &BTreeMap<Name, Sizes>) {
        self.check_usage();
        let after = self.usages();
        assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
        for (before, after) in before.values().zip(after.values()) {
            let stored = |sizes: &Sizes| (sizes.limiter.rules, sizes.limiter.overrides, sizes.limiter.leases);
            assert_eq!(stored(before), stored(after));
            let is_same = before.locks == after.locks && before.limiter == after.limiter;
            if is_same && before.limiter.groups + before.limiter.counters == 0 {
                assert_eq!(before, after);
            }
        }
    }

    fn pages(&mut self, command: &str, size: usize) -> String {
        let mut pages = Vec::new();
        let mut after = String::new();
        loop {
            let (text, outcome) = self.ask(&format!("{command} page:{size}{after}"));
            pages.push(text);
            match outcome.as_ref().and_then(|outcome| next(outcome, size)) {
                Some(cursor) => {
                    let next = format!(" after:{cursor}");
                    assert_ne!(next, after, "a page of {command} leads to itself");
                    after = next;
                }
                None => return lines(pages.into_iter()),
            }
        }
    }

    /// `selects CONDITIONS VALUE…`: those of the values, under the key `v`, to which a rule with these conditions
    /// applies. `-` stands for a check without the key.
    fn selects(&mut self, words: &[&str]) -> String {
        self.ask(&format!("put-rule selected limit:-1 where:{}", words[0]));
        let selected = words[1..].iter().filter(|value| {
            let key_values = if **value == "-" { String::new() } else { format!("v={value}") };
            let (_, outcome) = self.ask(&format!("check {key_values} other=1 hits:0"));
            matches!(outcome, Some(Outcome::Limiter(Ok(Limiter::Allowed(decision)))) if !decision.limits.is_empty())
        });
        let selected: Vec<&str> = selected.copied().collect();
        if selected.is_empty() { "nothing".into() } else { selected.join(" ") }
    }

    /// First everything that is due, then the request. Returns its answer as text, with the answers to requests that
    /// had been waiting, and the outcome if there is one already.
    fn ask(&mut self, line: &str) -> (String, Option<Outcome>) {
        let request = parse_line(line);
        let mut done = None;
        self.apply_due();
        let mut told = self.completions();
        let mut job = Job::new(request);
        let applied = loop {
            match self.with_fetching(|engine, now, fetched| engine.apply(now, &mut job, fetched)) {
                Applied::Unfinished => {
                    self.now = self.now.after(self.pause);
                    self.apply_due();
                }
                applied => break applied,
            }
        };
        match applied {
            Applied::Unfinished => unreachable!("it is finished"),
            Applied::Done { outcome, .. } => {
                told.push(show(&outcome));
                done = Some(outcome);
            }
            Applied::Waiting(id) => {
                self.waiting.insert(id, line.to_owned());
                told.push("waits".into());
            }
        }
        told.extend(self.completions());
        told.retain(|text| !text.is_empty());
        (lines(told.into_iter()), done)
    }

    fn apply_due(&mut self) {
        while let Some(due) = self.engine.due(self.now, 1).pop() {
            self.with_fetching(|engine, now, fetched| engine.apply_due(now, due, fetched));
        }
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

/// `verb NUMBER COMMAND`
fn split_number(line: &str) -> (usize, &str) {
    let mut parts = line.splitn(3, ' ').skip(1);
    (parts.next().unwrap().parse().unwrap(), parts.next().unwrap())
}

fn parse_line(line: &str) -> Request {
    let words: Vec<&str> = line.split_whitespace().collect();
    parse(words[0], &words[1..])
}

/// A command of any family.
fn parse(verb: &str, words: &[&str]) -> Request {
    let command = match verb {
        "delete-namespace" => Command::DeleteNamespace,
        "audit" => Command::ListAudit(page(words, |_| unreachable!("a script reads the audit at once"))),
        "audit-of-all" => Command::ListShardAudit(page(words, |_| unreachable!("a script reads it at once"))),
        "namespaces" => Command::ListNamespaces(page(words, name)),
        _ => limiter::parse(verb, words)
            .or_else(|| locks::parse(verb, words))
            .or_else(|| events::parse(verb, words))
            .or_else(|| decisions::parse(verb, words))
            .unwrap_or_else(|| ledger::parse(verb, words)),
    };
    let idempotency = option_of(words, "key").map(|key| Idempotency {
        owner: option_of(words, "as").map(name),
        key: name(key),
        fingerprint: [option_of(words, "body").map_or(0, |body| body.parse().unwrap()); 16],
    });
    let request_id = option_of(words, "request").map(|id| RequestId::new(id.as_bytes()).unwrap());
    let caller = Caller { actor: option_of(words, "as").map(name), address: None, request_id };
    let namespace = name(option_of(words, "ns").unwrap_or("default"));
    Request { namespace, idempotency, caller, command }
}

fn show(outcome: &Outcome) -> String {
    let more = next(outcome, usize::MAX).map(|_| "…".to_owned());
    lines([show_items(outcome)].into_iter().chain(more).filter(|text| !text.is_empty()))
}

/// Numbers of bytes are not shown, because they depend on the sizes of types.
fn show_quota(exceeded: &QuotaExceeded) -> String {
    let QuotaExceeded { quota, limit, used } = exceeded;
    match quota {
        Quota::ResidentBytes => format!("QuotaExceeded {quota}"),
        _ => format!("QuotaExceeded {quota}: {used} of {limit}"),
    }
}

fn show_items(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Ledger(Ok(reply)) => ledger::show_reply(reply),
        Outcome::Ledger(Err(refusal)) => ledger::show_refusal(refusal),
        Outcome::Limiter(Ok(reply)) => limiter::show_reply(reply),
        Outcome::Limiter(Err(refusal)) => limiter::show_refusal(refusal),
        Outcome::Locks(Ok(reply)) => locks::show_reply(reply),
        Outcome::Locks(Err(refusal)) => locks::show_refusal(refusal),
        Outcome::Events(Ok(reply)) => events::show_reply(reply),
        Outcome::Events(Err(EventsRefusal::QuotaExceeded(exceeded))) => show_quota(exceeded),
        Outcome::Events(Err(refusal)) => format!("{refusal:?}"),
        Outcome::Audit(list) => lines(list.items.iter().map(show_audit)),
        Outcome::Decisions(Ok(reply)) => decisions::show_reply(reply),
        Outcome::Decisions(Err(refusal)) => decisions::show_refusal(refusal),
        Outcome::Namespaces(list) => {
            lines(list.iter().map(|info| format!("{} @{}", info.name, info.position.0)))
        }
        other => format!("{other:?}"),
    }
}

fn show_audit(record: &AuditRecord) -> String {
    let AuditRecord { time, namespace, position, actor, request_id, action, target, before, after, .. } =
        record;
    let request = request_id.as_ref().map_or(String::new(), |id| format!(" in {id}"));
    let actor = actor.as_ref().map_or("-", Name::as_str);
    let state = |state: &Option<State>| match state {
        None => "nothing".to_owned(),
        Some(State::Rule(rule)) => format!("limit {:?}", rule.limit),
        Some(State::Limit(limit)) => format!("ceiling {:?}", limit.ceiling),
        Some(State::RuleSet(set)) => format!("{} rules", set.rules),
        Some(State::RuleSetChanges(changes)) => format!("{} created", changes.created.len()),
        Some(State::RuleSetCounts { created, .. }) => format!("in short {created} created"),
        Some(State::TooLarge { .. }) => "too large".to_owned(),
        Some(
            State::Override(_) | State::Counter(_) | State::Lease(_) | State::Stream(_) | State::Lock(_),
        ) => "something".to_owned(),
    };
    let (word, before, after) = (action.word(), state(before), state(after));
    format!("{} {namespace} @{} {actor} {word} {target:?}{request}: {before} → {after}", time.0, position.0)
}

/// The cursor of the next page, if there is one. A list of namespaces does not say; a full page may have a next one.
fn next(outcome: &Outcome, size: usize) -> Option<String> {
    match outcome {
        Outcome::Ledger(Ok(Ledger::Limits(list) | Ledger::LimitsByUse(list))) => {
            list.next.as_ref().map(Name::to_string)
        }
        Outcome::Ledger(Ok(Ledger::Operations(list))) => list.next.as_ref().map(Name::to_string),
        Outcome::Ledger(Ok(Ledger::Entries(list))) => list.next.map(|position| position.to_string()),
        Outcome::Limiter(Ok(Limiter::Rules(list))) => list.next.as_ref().map(Name::to_string),
        Outcome::Limiter(Ok(Limiter::Overrides(list))) => list.next.as_ref().map(Name::to_string),
        Outcome::Limiter(Ok(Limiter::RuleSets(list))) => list.next.as_ref().map(Name::to_string),
        Outcome::Limiter(Ok(Limiter::Counters(list))) => list.next.map(|id| id.0.to_string()),
        Outcome::Limiter(Ok(Limiter::Leases(list))) => list.next.as_ref().map(Name::to_string),
        Outcome::Limiter(Ok(Limiter::Groups(list))) => list.next.map(|id| id.0.to_string()),
        Outcome::Locks(Ok(Locks::Grants(list))) => list.next.map(|position| position.0.to_string()),
        Outcome::Events(Ok(Events::Streams(list))) => list.next.as_ref().map(Name::to_string),
        Outcome::Decisions(Ok(Decisions::Decisions(list))) => {
            list.next.map(|position| position.0.to_string())
        }
        Outcome::Namespaces(list) if list.len() == size => list.last().map(|info| info.name.to_string()),
        _ => None,
    }
}

/// `after:` and `page:`.
fn page<C>(words: &[&str], cursor: impl Fn(&str) -> C) -> Page<C> {
    let limit = option_of(words, "page").map_or(100, |size| size.parse().unwrap());
    Page::new(option_of(words, "after").map(cursor), limit).unwrap()
}

/// The value of `key:value`. For a bare word `key` it is empty.
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
