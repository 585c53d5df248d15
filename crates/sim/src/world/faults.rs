//! Faults, and their consequences for the machine.

use super::{DAY, Event, SHARD, World, ready, shard_options};
use limina_engine::Engine;
use limina_shard::{Failure, Loss, Shard};
use limina_store::memory::{AppendFault, Memory, SurvivingData};
use limina_store::{AppendError, Batch};
use std::sync::Arc;

impl World {
    pub(super) fn inject_fault(&mut self) -> Result<(), String> {
        match self.random.below(13) {
            0 | 1 => self.crash()?,
            2 => self.fault(AppendFault::NotDone),
            3 => self.fault(AppendFault::UnknownButHappened),
            4 => self.fault(AppendFault::UnknownAndDidNotHappen),
            5 => {
                self.say(|| "another owner takes the shard".into());
                self.memory.fence(SHARD);
                self.is_fenced = true;
            }
            6 => {
                let records = self.random.below(20) as usize;
                self.say(|| format!("the next checkpoint fails after {records} records"));
                self.memory.fail_checkpoint(records);
            }
            7 => {
                let (pass, fail) = (self.random.below(2), 1 + self.random.below(3));
                self.say(|| format!("after {pass} syncs {fail} fail"));
                if let Some(disk) = self.memory.disk() {
                    disk.fail_syncs(pass, fail);
                }
            }
            8 => {
                self.report.clock_steps += 1;
                let step = self.random.below(4 * DAY) as i64 - 2 * DAY as i64;
                self.say(|| format!("the wall clock steps by {step} ms"));
                self.wall_ahead += step;
            }
            9 => {
                let used = self.memory.disk().map_or(0, |disk| disk.used());
                let limit = self
                    .random
                    .one_in(2)
                    .then(|| used + self.random.below(4 * self.memory_options.segment_bytes));
                self.say(|| format!("space is limited to {limit:?} bytes, {used} are used"));
                self.memory.limit_space(limit);
            }
            10 => self.begin_stop(),
            _ => self.after(0, Event::StandStill),
        }
        Ok(())
    }

    /// The process stands still for a while, and notices that before it does anything else. As in [`World::serve`], the model must know
    /// everything that was decided before.
    pub(super) fn stand_still(&mut self) -> Result<(), String> {
        let Some(engine) = self.shard.engine() else { return Ok(()) };
        if self.awaits_serving || self.is_stopping || self.shard.is_out_of_space() {
            return Ok(());
        }
        let is_behind = engine.next_due().is_some_and(|due| due <= self.clock.time());
        if is_behind || !self.shard.is_idle() {
            self.after(20, Event::StandStill);
            return Ok(());
        }
        if !self.judge.is_settled() {
            self.confirm_all();
            self.after(20, Event::StandStill);
            return Ok(());
        }
        // Nothing falls due between the last turn and the interruption.
        self.judge.nothing_is_due(self.clock.time())?;
        let span = self.random.below(20_000);
        self.now += span;
        self.wake_at = None;
        let (now, _) = self.clock.advance(self.reading());
        self.say(|| format!("the process stood still for {span} ms"));
        self.report.interruptions += 1;
        self.judge.serving(now);
        self.shard.handle_interruption(now);
        Ok(())
    }

    pub(super) fn check_fence(&self, succeeded: bool) -> Result<(), String> {
        if self.is_fenced && succeeded { Err("a deposed owner wrote or confirmed".into()) } else { Ok(()) }
    }

    pub(super) fn fault(&mut self, fault: AppendFault) {
        self.say(|| format!("the next append fails: {fault:?}"));
        self.memory.fail_append(fault);
    }

    pub(super) fn append(&mut self, writes: Batch) -> Result<(), String> {
        let store = self.store.as_ref().ok_or("an append without a store")?;
        let seq = store.seq().next();
        self.in_doubt = Some(seq);
        let result = ready(store.append(seq, writes))?.map_err(|error| match error {
            AppendError::Fenced | AppendError::NotDone(_) => Loss::NotDone,
            AppendError::Full => Loss::Full,
            AppendError::Unknown(_) => Loss::Unknown,
        });
        self.say(|| format!("append {}: {result:?}", seq.0));
        self.check_fence(result.is_ok())?;
        let delay = self.random.below(30);
        self.after(delay, Event::Persisted { generation: self.generation, result });
        Ok(())
    }

    /// An append or confirm failed: the shard drops its memory and opens again.
    pub(super) fn lose(&mut self, loss: Loss) -> Result<(), String> {
        self.report.losses += 1;
        self.abandon(loss)?;
        let delay = self.random.below(100);
        self.after(delay, Event::Open { generation: self.generation });
        Ok(())
    }

    /// The machine loses power. Requests in flight get no answer, but may have been executed.
    pub(super) fn crash(&mut self) -> Result<(), String> {
        self.report.crashes += 1;
        self.is_handed = false;
        self.abandon(Loss::Unknown)?;
        self.shard.reject_waiting(Failure::Unavailable);
        self.drain()?;
        let remains = if self.random.one_in(2) {
            let seed = self.random.number();
            self.memory.crash(seed)
        } else {
            self.memory.kill()
        };
        self.restart(remains)
    }

    /// Begins a planned stop: no more requests are accepted, and the accepted ones are answered.
    pub(super) fn begin_stop(&mut self) {
        if self.shard.engine().is_some() {
            self.say(|| "the shard is to be closed".into());
            self.shard.handle_closing();
            self.is_stopping = true;
        }
    }

    /// Everything is answered and stored: the process ends, and starts again later. Only a rule change that could not
    /// be executed for lack of space is dropped.
    pub(super) fn stop(&mut self) -> Result<(), String> {
        self.report.stops += 1;
        // A stop on a completely full disk cannot store its time.
        self.stopped_at = self.shard.engine().map(Engine::time).filter(|_| !self.shard.is_out_of_space());
        self.is_handed = self.stopped_at.is_some() && !self.awaits_serving && self.random.one_in(2);
        self.report.hand_overs += u64::from(self.is_handed);
        self.abandon(Loss::NotDone)?;
        let remains = self.memory.kill();
        self.restart(remains)
    }

    pub(super) fn restart(&mut self, remains: SurvivingData) -> Result<(), String> {
        self.is_stopping = false;
        self.followers.owner_died();
        let options = shard_options(&mut self.random);
        self.shard = Shard::new(options);
        self.is_restarted = true;
        self.awaits_serving = false;
        self.store = None;
        self.memory_options.seed = self.random.number();
        remains.disk.limit_space(None);
        remains.disk.fail_syncs(0, 0);
        let opened = Memory::open(remains, &self.memory_options);
        self.memory =
            Arc::new(opened.map_err(|error| format!("the store does not open after a crash: {error}"))?);
        let down = match self.is_handed {
            true => self.random.below(200),
            false if self.random.one_in(10) => DAY,
            false => self.random.below(10_000),
        };
        self.say(|| format!("nobody is there for {down} ms"));
        self.after(down, Event::Open { generation: self.generation });
        Ok(())
    }

    pub(super) fn abandon(&mut self, loss: Loss) -> Result<(), String> {
        self.say(|| format!("the shard drops its memory: {loss:?}"));
        self.generation += 1;
        self.wake_at = None;
        if loss != Loss::Unknown {
            self.in_doubt = None;
        }
        self.shard.handle_lost(loss);
        self.drain()?;
        self.check_all_known()?;
        self.judged = 0;
        self.begun.clear();
        self.followers.shard_lost();
        Ok(())
    }
}
