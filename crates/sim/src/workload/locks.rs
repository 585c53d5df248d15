//! Random commands of locks. There are so few locks that most requests have to wait, and spans differ by only a few
//! milliseconds, so that holders and waiters often expire at the same instant.

use super::{
    valid::{VALID, name, page, whole},
    vocabulary::Vocabulary,
};
use crate::random::Random;
use limina_engine::{
    KeyValues, Millis, Name, Position,
    locks::{Acquire, Command, Lock, LockRequest, Mode},
    selection::Query,
};

fn id_of(request: &LockRequest) -> (Name, Name) {
    (request.id.clone(), request.session.clone())
}

/// Later commands refer to one of this many last requests.
const REMEMBERED: usize = 12;

/// The locks to choose from, and the last requests for them.
#[derive(Debug, Clone)]
pub struct LockWorkload {
    words: Vocabulary,
    locks: Vec<KeyValues>,
    spans: Vec<u64>,
    /// The last requests.
    asked: Vec<LockRequest>,
    count: u64,
}

impl LockWorkload {
    /// Chooses at random how many names there are, and so how often requests use the same ones.
    pub fn new(random: &mut Random) -> LockWorkload {
        let spans = *random.pick(&[&[100, 101, 104][..], &[120, 200, 1_000], &[100, 5_000], &[150, 60_000]]);
        LockWorkload::with_spans(random, spans)
    }

    /// The same, with these spans for holding and waiting.
    pub fn with_spans(random: &mut Random, spans: &[u64]) -> LockWorkload {
        let words = Vocabulary::new(random);
        let mut locks: Vec<KeyValues> = Vec::new();
        let most = 1 + random.below(4) as usize;
        for _ in 0..4 * most {
            let key_values = words.key_values(random);
            if locks.len() < most && !key_values.is_empty() && !locks.contains(&key_values) {
                locks.push(key_values);
            }
        }
        if locks.is_empty() {
            let pair = (words.keys[0], words.values[0].clone());
            locks.push(KeyValues::new(vec![pair]).expect("one short pair"));
        }
        LockWorkload { words, locks, spans: spans.to_vec(), asked: Vec::new(), count: 0 }
    }

    /// The spans in use.
    pub fn spans(&self) -> &[u64] {
        &self.spans
    }

    /// The next random command.
    pub fn command(&mut self, random: &mut Random) -> Command {
        match random.below(100) {
            0..=44 => Command::Acquire(self.acquire(random)),
            45..=48 => Command::Acquire(self.acquire_again(random)),
            49..=61 => {
                let (id, session) = id_of(&self.remembered(random));
                Command::Heartbeat { id, session: self.or_wrong(random, session) }
            }
            62..=79 => {
                let (id, session) = id_of(&self.remembered(random));
                let session = (!random.one_in(4)).then(|| self.or_wrong(random, session));
                Command::Release { id, session }
            }
            80..=87 => Command::Abandon(self.remembered(random).id),
            88..=91 => Command::Get(self.remembered(random).id),
            92..=94 => self.look(),
            _ => Command::List {
                query: self.words.query(random),
                page: page(random, |random| Position(random.below(self.count + 2))),
            },
        }
    }

    /// A read that shows everything that is held.
    pub fn look(&self) -> Command {
        Command::List { query: Query::default(), page: whole() }
    }

    fn acquire(&mut self, random: &mut Random) -> LockRequest {
        let request = self.draw(random);
        self.remember(request)
    }

    /// Repeats the id of an earlier request, like a client that does not know its outcome.
    fn acquire_again(&mut self, random: &mut Random) -> LockRequest {
        let id = self.remembered(random).id;
        let other = self.draw(random);
        self.remember(LockRequest { id, ..other })
    }

    /// A client that got no answer in time repeats its request on another connection, under a new id. Or the server
    /// notices the hang-up of the first connection, possibly after the retry.
    pub fn hang_up_or_retry(&mut self, random: &mut Random, first: &Command) -> Command {
        let Command::Acquire(request) = first else { return first.clone() };
        if random.one_in(2) {
            return Command::Abandon(request.id.clone());
        }
        self.count += 1;
        let (id, session) = (name(&format!("lock{}", self.count)), name(&format!("session{}", self.count)));
        let wanted = request.wanted.clone();
        Command::Acquire(self.remember(LockRequest { id, session, wanted }))
    }

    fn draw(&mut self, random: &mut Random) -> LockRequest {
        self.count += 1;
        let first = random.below(self.locks.len() as u64) as usize;
        // Mostly one lock. If there are several, they come in any order, each once.
        let many = if random.one_in(2) { 1 } else { 1 + random.below(self.locks.len() as u64) as usize };
        let lock = |i: usize| Lock {
            key_values: self.locks[(first + i) % self.locks.len()].clone(),
            mode: if random.one_in(2) { Mode::Exclusive } else { Mode::Shared },
        };
        let locks = (0..many).map(lock).collect();
        let id = name(&format!("lock{}", self.count));
        let session = name(&format!("session{}", self.count));
        let wanted = Acquire::new(locks, Millis(*random.pick(&self.spans))).expect(VALID);
        let wait = Millis(if random.one_in(4) { 0 } else { *random.pick(&self.spans) });
        let owner = random.one_in(3).then(|| name("owner"));
        LockRequest { id, session, wanted: wanted.with_wait(wait).expect(VALID).with_owner(owner) }
    }

    fn remember(&mut self, request: LockRequest) -> LockRequest {
        self.asked.push(request.clone());
        if self.asked.len() > REMEMBERED {
            self.asked.remove(0);
        }
        request
    }

    /// One of the last requests.
    fn remembered(&mut self, random: &mut Random) -> LockRequest {
        if self.asked.is_empty() {
            return self.acquire(random);
        }
        random.pick(&self.asked).clone()
    }

    fn or_wrong(&self, random: &mut Random, session: Name) -> Name {
        if random.one_in(6) { name("wrong") } else { session }
    }
}
