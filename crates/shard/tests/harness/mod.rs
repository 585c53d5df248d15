//! A shard on a store in memory, which carries out every output at once.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use bytes::Bytes;
use limina_engine::{
    Command, Engine, Idempotency, Name, Options as EngineOptions, Outcome, Read, ReadResult, Request, Time,
    Writes,
    ledger::{self, AsOf, Batch, Change, Hold, NewLimit, Transfer, Values},
    record,
};
use limina_shard::{Failure, Loss, Opening, Options, Output, Shard};
use std::{collections::BTreeMap, ops::Range};

const NOW: Time = Time(1_000_000);

pub(crate) struct Bench {
    pub(crate) shard: Shard<String>,
    stored: BTreeMap<Bytes, Bytes>,
    slice_work: usize,
    replies: Vec<(String, Result<Outcome, Failure>)>,
    appends: usize,
    lost: Option<(usize, Loss, bool)>,
    full_after: Option<usize>,
    /// The number of polls.
    pub(crate) turns: usize,
    /// The ranges that the store may drop at once.
    pub(crate) discarded: Vec<Range<Bytes>>,
}

impl Bench {
    pub(crate) fn new(slice_work: usize, options: Options) -> Bench {
        let mut bench = Bench {
            shard: Shard::new(options),
            stored: BTreeMap::new(),
            slice_work,
            replies: Vec::new(),
            appends: 0,
            lost: None,
            full_after: None,
            turns: 0,
            discarded: Vec::new(),
        };
        bench.open();
        bench
    }

    fn open(&mut self) {
        let residents = self.stored.range(record::key::residents());
        let residents: Vec<_> = residents.map(|(key, value)| (key.clone(), value.clone())).collect();
        let options = EngineOptions { slice_work: self.slice_work, ..EngineOptions::default() };
        let engine = Engine::open(options, residents).unwrap();
        self.shard.handle_opened(engine, NOW, Opening::HandedOver);
    }

    /// Sends a request under a name of its own.
    pub(crate) fn send(&mut self, ticket: &str, namespace: &str, key: Option<&str>, command: Command) {
        let idempotency = key.map(|key| Idempotency { owner: None, key: name(key), fingerprint: [0; 16] });
        let request = Request { idempotency, ..Request::new(name(namespace), command) };
        self.shard.handle_request(ticket.to_owned(), request);
    }

    /// Sends a request and returns its outcome.
    pub(crate) fn ask(&mut self, namespace: &str, command: Command) -> Outcome {
        let ticket = format!("asked {}", self.replies.len());
        self.send(&ticket, namespace, None, command);
        self.run();
        let outcome = self.outcome(&ticket);
        self.replies.retain(|(name, _)| *name != ticket);
        outcome
    }

    /// After this many appends from now on, one is lost, although it may have happened.
    pub(crate) fn lose_append(&mut self, appends: usize, loss: Loss, happened: bool) {
        self.lost = Some((self.appends + appends, loss, happened));
    }

    /// After this many appends from now on there is no space.
    pub(crate) fn fill_after(&mut self, appends: usize) {
        self.full_after = Some(self.appends + appends);
    }

    pub(crate) fn make_space(&mut self) {
        self.full_after = None;
    }

    /// Carries out everything.
    pub(crate) fn run(&mut self) {
        self.run_slices(usize::MAX);
    }

    /// Carries out everything until the end of the last of so many slices.
    pub(crate) fn run_slices(&mut self, mut slices: usize) {
        while slices > 0 {
            let has_space = self.full_after.is_none_or(|appends| self.appends < appends);
            self.shard.handle_space(has_space);
            self.turns += 1;
            let Some(output) = self.shard.poll(NOW) else { return };
            slices -= usize::from(matches!(output, Output::Unfinished));
            match output {
                Output::Fetch(reads) => {
                    let answers: Vec<_> =
                        reads.into_iter().map(|read| (read.clone(), self.look_up(&read))).collect();
                    self.shard.handle_fetched(answers);
                }
                Output::Append { writes, .. } => self.append(&writes),
                Output::Confirm => self.shard.handle_persisted(),
                Output::Reply(reply) => self.replies.push((reply.ticket, reply.result)),
                Output::Discard(range) => self.discarded.push(range),
                Output::Effect(_) | Output::Unfinished | Output::Waits { .. } => {}
                other => panic!("not expected here: {other:?}"),
            }
        }
    }

    fn append(&mut self, writes: &Writes) {
        let lost = self.lost.take_if(|(appends, ..)| *appends == self.appends);
        self.appends += 1;
        if lost.is_none_or(|(.., happened)| happened) {
            for write in writes.iter() {
                let key = Bytes::copy_from_slice(write.key);
                match write.value {
                    Some(value) => self.stored.insert(key, Bytes::copy_from_slice(value)),
                    None => self.stored.remove(&key),
                };
            }
        }
        match lost {
            None => self.shard.handle_persisted(),
            Some((_, loss, _)) => {
                self.shard.handle_lost(loss);
                self.open();
            }
        }
    }

    fn look_up(&self, read: &Read) -> ReadResult {
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

    /// The names of the requests that were answered, in the order of their answers.
    pub(crate) fn answered(&self) -> Vec<String> {
        self.replies.iter().map(|(name, _)| name.clone()).collect()
    }

    pub(crate) fn outcome(&self, ticket: &str) -> Outcome {
        self.reply(ticket).clone().unwrap()
    }

    pub(crate) fn failure(&self, ticket: &str) -> Failure {
        self.reply(ticket).clone().unwrap_err()
    }

    pub(crate) fn reply(&self, ticket: &str) -> &Result<Outcome, Failure> {
        let reply = self.replies.iter().find(|(name, _)| name == ticket);
        &reply.unwrap_or_else(|| panic!("{ticket} was not answered")).1
    }
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Creates a limit.
pub(crate) fn limit(limit_name: &str) -> Command {
    let new = NewLimit::new(name(limit_name));
    Command::Ledger(ledger::Command::CreateLimit(new))
}

/// Holds 1 in the limit `a`.
pub(crate) fn hold(operation_id: &str) -> Command {
    Command::Ledger(ledger::Command::Transfer(transfer(operation_id)))
}

/// Holds 1 in the limit `a` for each operation.
pub(crate) fn batch(operations: &[String]) -> Command {
    let transfers = operations.iter().map(|id| transfer(id)).collect();
    Command::Ledger(ledger::Command::Batch(Batch::new(transfers).unwrap()))
}

pub(crate) fn values(limit_name: &str) -> Command {
    Command::Ledger(ledger::Command::Values(Values::new(vec![name(limit_name)], AsOf::Now).unwrap()))
}

fn transfer(operation_id: &str) -> Transfer {
    Transfer::Hold(Hold::new(name(operation_id), vec![Change::new(name("a"), 1)]).unwrap())
}
