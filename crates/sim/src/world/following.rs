//! Lets the followers of streams act, and passes the shard's answers to them.

use super::World;
use limina_engine::{Command, Outcome, Request};
use limina_shard::Failure;

impl World {
    /// Followers take all or some of what there is, and send requests to the shard. Returns whether they sent any.
    pub(super) fn pump_followers(&mut self, is_all: bool) -> Result<bool, String> {
        if self.shard.engine().is_none() || self.is_stopping {
            return Ok(false);
        }
        let asked = self.followers.pump(&mut self.random, is_all)?;
        let has_asked = !asked.is_empty();
        for (namespace, question) in asked {
            self.submit(Request::new(namespace, Command::Events(question)));
        }
        Ok(has_asked)
    }

    /// Passes the answer to the followers that sent the request.
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
