//! Those who follow streams.

use super::World;
use limina_engine::{Command, Outcome, Request, events};
use limina_shard::Failure;

impl World {
    /// Some of those who follow go away, and others come back.
    pub(super) fn come_and_go(&mut self) {
        for index in 0..self.followers.len() {
            match self.random.below(8) {
                0 => self.followers[index].leave(),
                1..=3 => self.come_back(index),
                _ => {}
            }
        }
    }

    pub(super) fn come_back(&mut self, index: usize) {
        let follower = &mut self.followers[index];
        let question = follower.come_back(&mut self.random);
        let namespace = follower.address().0.clone();
        if let Some(question) = question {
            self.submit(Request { namespace, idempotency: None, command: Command::Events(question) });
        }
    }

    /// Those who asked for this go on with the answer, and all who are there compare what they have with it.
    pub(super) fn tell_followers(
        &mut self,
        request: &Request,
        result: &Result<Outcome, Failure>,
    ) -> Result<(), String> {
        let Command::Events(question) = &request.command else { return Ok(()) };
        let answer = match result {
            Ok(Outcome::Events(answer)) => Some(answer),
            _ => None,
        };
        let mut asked = Vec::new();
        for follower in &mut self.followers {
            let (namespace, stream) = follower.address();
            if *namespace != request.namespace {
                continue;
            }
            if let (events::Command::Incubating(name), Some(Ok(events::Reply::Incubating(frame)))) =
                (question, answer)
                && name == stream
            {
                follower.compare(frame, &mut self.report.followers)?;
            }
            asked.extend(follower.answered(question, answer, &mut self.report.followers)?);
        }
        for question in asked {
            let (namespace, command) = (request.namespace.clone(), Command::Events(question));
            self.submit(Request { namespace, idempotency: None, command });
        }
        Ok(())
    }
}
