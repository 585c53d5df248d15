//! Opens a shard from what is stored, and executes its look-ups.

use super::{Event, SHARD, World, ready};
use crate::parts::Parts;
use limina_engine::{
    Applied, Command, Engine, Fetched, Job, Missing, Name, Options as EngineOptions, Outcome, Page, Read,
    ReadResult, Request, Time, record,
};
use limina_shard::{Opening, ShardClock};
use limina_store as store;
use limina_store::{Seq, ShardStore, ShardStoreOptions, StoreError};

impl World {
    pub(super) fn open(&mut self) -> Result<(), String> {
        let opened = match &self.store {
            Some(store) => ready(store.retake())?,
            None => {
                let (soft_bytes, hard_bytes) = (16 << 10, usize::MAX);
                let options = ShardStoreOptions { soft_bytes, hard_bytes };
                let opening = ShardStore::open(self.memory.clone(), self.memory.clone(), SHARD, options);
                ready(opening)?.map(|store| self.store = Some(store))
            }
        };
        let engine = opened.map_err(|error: StoreError| error.to_string()).and_then(|()| self.load());
        match engine {
            Ok(engine) => {
                self.is_fenced = false;
                self.check_parts()?;
                let doubt_happened = self.settle_doubt()?;
                self.say(|| "the shard is open".into());
                let known =
                    if self.is_restarted { engine.time() } else { engine.time().max(self.clock.time()) };
                if let Some(stopped) = self.stopped_at.take().filter(|stopped| *stopped > engine.time()) {
                    return Err(format!(
                        "shard time went back over a planned stop, from {stopped:?} to {known:?}"
                    ));
                }
                let is_handed = std::mem::replace(&mut self.is_handed, false);
                if std::mem::replace(&mut self.is_restarted, false) && !is_handed && self.random.one_in(2) {
                    self.shard.wait_for_serving(engine.time());
                    self.awaits_serving = true;
                    let delay = self.random.below(20_000);
                    self.after(delay, Event::Serve);
                }
                let opening = if is_handed { Opening::HandedOver } else { Opening::Interrupted };
                self.clock = match opening {
                    Opening::Interrupted => ShardClock::start(known, self.reading()),
                    Opening::HandedOver => {
                        let (went_on, _) = self.clock.advance(self.reading());
                        ShardClock::go_on(went_on.max(engine.time()), self.reading())
                    }
                };
                let time = self.clock.time();
                let ready = (opening == Opening::Interrupted).then_some(time);
                self.check_denied(doubt_happened)?;
                let mut asked = self.load()?;
                let ask = &mut |at, name: &Name, command| self.ask_engine(&mut asked, at, name, command);
                let loaded = self.judge.as_loaded(doubt_happened, engine.time(), ready, ask)?;
                self.judge = loaded;
                self.shard.handle_opened(engine, time, opening);
                self.followers.shard_opened(&mut self.random);
                self.look_around();
            }
            Err(error) if self.faults => {
                self.say(|| format!("opening fails: {error}"));
                // The disk may be full or failing. It recovers after a while.
                self.memory.limit_space(None);
                self.is_handed = false;
                self.after(50, Event::Open { generation: self.generation });
            }
            Err(error) => return Err(format!("the shard does not open: {error}")),
        }
        Ok(())
    }

    /// Opens another engine from the same records, and checks that each part has its decision and each decision its parts.
    fn check_parts(&self) -> Result<(), String> {
        let Some(namespace) = self.workload.decided() else { return Ok(()) };
        let mut engine = self.load()?;
        let now = engine.time();
        let ask = |command: Command| self.ask_engine(&mut engine, now, namespace, command);
        Parts::read(self.workload.decided_streams(), ask)?.check()
    }

    /// Asks an engine that is not the shard's.
    fn ask_engine(
        &self,
        engine: &mut Engine,
        at: Time,
        namespace: &Name,
        command: Command,
    ) -> Result<Outcome, String> {
        let mut job = Job::new(Request::new(namespace.clone(), command));
        let mut fetched = Fetched::default();
        loop {
            match engine.apply(at, &mut job, &fetched) {
                Ok(Applied::Done { outcome, .. }) => return Ok(outcome),
                Ok(_) => return Err("a read has to wait".to_string()),
                Err(Missing(reads)) => {
                    let read = self.fetch(reads)?;
                    read.into_iter().for_each(|(read, result)| fetched.insert(read, result));
                }
            }
        }
    }

    /// Clients are served from now on; until then time stood still. The model learns of it when everything decided is
    /// durable, which any answer shows. Otherwise a loss could take back more than the shard has.
    pub(super) fn serve(&mut self) {
        if !self.awaits_serving {
            // That process has ended.
            return;
        }
        let is_open = self.shard.engine().is_some();
        // Decisions that were made while time stood still must be judged before time continues.
        if is_open && !self.shard.is_idle() {
            return self.after(100, Event::Serve);
        }
        if is_open && !self.judge.is_settled() {
            self.confirm_all();
            return self.after(100, Event::Serve);
        }
        let (now, _) = self.clock.advance(self.reading());
        self.say(|| format!("clients are served from {} on", now.0));
        self.awaits_serving = false;
        self.report.held_back += 1;
        if is_open {
            self.judge.serving(now);
        }
        self.shard.handle_serving(now);
    }

    /// Sends a read. Its answer shows that everything decided before is durable.
    pub(super) fn confirm_all(&mut self) {
        let command = Command::ListNamespaces(Page::new(None, 1).expect("a small page"));
        let namespace = Name::new("any").expect("a valid name");
        self.submit(Request::new(namespace, command));
    }

    /// Finds out from the store whether the last append happened.
    pub(super) fn settle_doubt(&mut self) -> Result<bool, String> {
        let Some(seq) = self.in_doubt.take() else { return Ok(false) };
        let stored = self.store.as_ref().map_or(Seq::ZERO, ShardStore::seq);
        if stored > seq {
            return Err(format!("append {} was the last, but the store has {}", seq.0, stored.0));
        }
        if stored == seq {
            self.report.unknown_happened += 1;
            self.say(|| format!("append {} had happened", seq.0));
        }
        Ok(stored == seq)
    }

    /// Sends reads of what a loss of memory may have removed.
    pub(super) fn look_around(&mut self) {
        for namespace in self.judge.namespaces() {
            let most = if self.workload.decided() == Some(&namespace) { usize::MAX } else { 4 };
            for command in self.workload.looks(&namespace).into_iter().take(most) {
                self.submit(Request::new(namespace.clone(), command));
            }
        }
    }

    pub(super) fn load(&self) -> Result<Engine, String> {
        let range = record::key::residents();
        let page = self.scan(range.start, range.end)?;
        let options = EngineOptions {
            backfill_slice: self.build_slice,
            quotas: self.bounds.table(),
            slice_work: self.slice_work,
            ..EngineOptions::default()
        };
        Engine::open(options, page).map_err(|error| error.to_string())
    }

    pub(super) fn scan(
        &self,
        from: bytes::Bytes,
        to: bytes::Bytes,
    ) -> Result<Vec<(bytes::Bytes, bytes::Bytes)>, String> {
        let store = self.store.as_ref().ok_or("no store")?;
        match ready(store.read(vec![store::Read::Scan { from, to, limit: usize::MAX >> 1 }]))?.pop() {
            Some(Ok(store::Answer::Page(page))) => Ok(page),
            Some(Err(error)) => Err(error.to_string()),
            _ => Err("a scan without a page".into()),
        }
    }

    pub(super) fn fetch(&self, reads: Vec<Read>) -> Result<Vec<(Read, ReadResult)>, String> {
        let store = self.store.as_ref().ok_or("a fetch without a store")?;
        let asked = reads.iter().cloned().map(|read| match read {
            Read::Get(key) => store::Read::Get(key),
            Read::LastAtOrBefore { from, at } => store::Read::LastAtOrBefore { from, at },
            Read::Scan { from, to, limit } => store::Read::Scan { from, to, limit },
        });
        let answers = ready(store.read(asked.collect()))?.into_iter().map(|answer| match answer {
            Ok(store::Answer::Value(value)) => ReadResult::Value(value),
            Ok(store::Answer::Last(last)) => ReadResult::Last(last),
            Ok(store::Answer::Page(page)) => ReadResult::Page(page),
            Err(_) => ReadResult::Unreadable,
        });
        Ok(reads.iter().cloned().zip(answers).collect())
    }

    pub(super) fn checkpoint(&mut self) {
        let Some(store) = &self.store else { return };
        let result = ready(store.checkpoint());
        if let Ok(Ok(Some(_))) = &result {
            self.report.checkpoints += 1;
        }
        self.say(|| format!("checkpoint: {result:?}"));
    }
}
