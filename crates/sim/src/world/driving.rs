//! Drives the shard: carries out its outputs, and lets some requests be decided as soon as they arrive.

use super::{Event, World, key_of_change, ready, waits_in_a_queue};
use crate::model::Fate;
use limina_engine::{Request, Time};
use limina_shard::{Loss, Output};
use limina_store::{Batch, FreeSpace, RecordRef};

impl World {
    /// Decides a request as the task of its client does it in the server: at once, if nothing comes before it. Returns whether it
    /// was begun.
    pub(super) fn send_direct(&mut self, request: &Request) -> Result<bool, String> {
        self.check_space();
        let time = self.advance()?;
        if !self.shard.is_free(time) {
            return Ok(false);
        }
        self.report.requests += 1;
        self.report.direct += 1;
        self.waiting += 1;
        self.keys_in_use.extend(key_of_change(request));
        self.shard.handle_direct(time, request.clone(), request.clone());
        while let Some(output) = self.shard.poll_direct() {
            match output {
                Output::Append { .. } | Output::Confirm | Output::Effect(_) => {
                    return Err(format!("a round of one request sealed a batch: {output:?}"));
                }
                // What is in memory is answered at once. The rest is left to the shard's task.
                Output::Fetch(reads) if self.random.one_in(2) => {
                    let answers = self.fetch(reads)?;
                    self.shard.handle_fetched(answers);
                }
                output => self.carry_out(output)?,
            }
        }
        Ok(true)
    }

    /// Polls the shard until it has nothing more to do.
    pub(super) fn drain(&mut self) -> Result<(), String> {
        self.check_space();
        let time = self.advance()?;
        while let Some(output) = self.shard.poll(time) {
            self.carry_out(output)?;
        }
        if let Some(time) = self.shard.take_lag() {
            self.report.lags += 1;
            self.clock.hold(time);
        }
        if self.shard.is_out_of_space() && self.wake_at.is_none() {
            self.wake_at = Some(self.now + 10_000);
            self.after(10_000, Event::Wake { generation: self.generation });
        }
        if let Some(at) = self.shard.next_wakeup() {
            let wake_at = self.now + at.0.saturating_sub(time.0).max(1);
            if self.wake_at.is_none_or(|wake| wake > wake_at) {
                self.wake_at = Some(wake_at);
                self.after(wake_at - self.now, Event::Wake { generation: self.generation });
            }
        }
        if self.is_stopping && self.shard.engine().is_some() && self.shard.is_idle() {
            return if self.shard.flush_relaxed() { self.drain() } else { self.stop() };
        }
        Ok(())
    }

    fn check_space(&mut self) {
        if let Some(store) = &self.store {
            self.shard.handle_space(store.free_space() == FreeSpace::Ample);
        }
    }

    fn advance(&mut self) -> Result<Time, String> {
        let before = self.clock.time();
        let (time, _) = self.clock.advance(self.reading());
        match time < before {
            true => Err(format!("shard time went back from {before:?} to {time:?}")),
            false => Ok(time),
        }
    }

    fn carry_out(&mut self, output: Output<Request>) -> Result<(), String> {
        let generation = self.generation;
        match output {
            Output::Fetch(reads) => {
                let delay = self.random.below(10);
                self.after(delay, Event::Fetch { generation, reads });
            }
            Output::Append { writes, .. } => {
                let writes = Batch::new(writes.iter().map(|write| RecordRef {
                    key: write.key,
                    value: write.value,
                    is_first: write.is_first,
                }));
                let delay = self.random.below(10);
                self.after(delay, Event::Append { generation, writes });
            }
            Output::Confirm => {
                let store = self.store.as_ref().ok_or("a confirm without a store")?;
                let result = ready(store.confirm())?.map_err(|_| Loss::NotDone);
                self.check_fence(result.is_ok())?;
                let delay = self.random.below(10);
                self.after(delay, Event::Persisted { generation, result });
            }
            Output::Reply(reply) => self.check_reply(reply)?,
            Output::Waits { request, since, order } => {
                self.report.waits += u64::from(waits_in_a_queue(&request));
                self.note(order, since, request, Fate::Waits)?;
            }
            Output::Slice { request, at, order, from, outcome } => {
                self.note_slice(&request, from);
                self.note(order, at, request, Fate::Slice { from, outcome })?;
            }
            Output::Unfinished => {}
            Output::Cut { request, at, order } => self.note(order, at, request, Fate::Cut)?,
            Output::Effect(effect) => {
                self.say(|| format!("{effect:?}"));
                self.followers.handle_effect(&effect);
            }
        }
        Ok(())
    }
}
