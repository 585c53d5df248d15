//! Followers of streams.

use super::World;
use limina_engine::{Command, Outcome, Request};
use limina_shard::Failure;

impl World {
    /// Followers take what there is, all of it or some, and ask the shard. Returns whether they asked anything.
    pub(super) fn pump_followers(&mut self, is_all: bool) -> Result<bool, String> {
        if self.shard.engine().is_none() || self.is_stopping {
            return Ok(false);
        }
        let asked = self.followers.pump(&mut self.random, is_all)?;
        let has_asked = !asked.is_empty();
        for (namespace, question) in asked {
            self.submit(Request { namespace, idempotency: None, command: Command::Events(question) });
        }
        Ok(has_asked)
    }

    /// Those who asked for this go on with the answer.
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
        self.followers.answered(&request.namespace, question, answer)
    }
}
