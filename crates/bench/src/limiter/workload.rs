//! The work, which is the same for every contender: one rule that limits each client by itself, within a window, and
//! checks that each take 1 for some client.

use crate::{
    Failed,
    load::{self, Random},
    measure::Measured,
};
use std::{future::Future, time::Instant};

/// How much each client may take in [`PER_SECONDS`]: it is checked, and never reached.
pub(crate) const LIMIT: u64 = 1_000_000_000_000;

/// The window. It is fixed, but where something else is said.
pub(crate) const PER_SECONDS: u64 = 60;

/// The rule's name.
pub(crate) const RULE: &str = "per-client";

/// One connection to a contender.
pub(crate) trait Client: Send + 'static {
    /// Makes the rule.
    fn create(&mut self) -> impl Future<Output = Result<(), Failed>> + Send;

    /// Takes 1 for each of these clients, and returns how often that was refused.
    fn check(&mut self, clients: &[usize]) -> impl Future<Output = Result<u64, Failed>> + Send;
}

pub(crate) fn client_name(number: usize) -> String {
    format!("client-{number}")
}

/// One connection's checks, one after the other.
pub(crate) struct Checks {
    clients: usize,
    random: Random,
}

impl Checks {
    /// For so many clients, chosen at random.
    pub(crate) fn new(clients: usize, connection: usize) -> Checks {
        Checks { clients, random: Random::new(connection) }
    }
}

impl<C: Client> load::Work<C> for Checks {
    async fn step(&mut self, client: &mut C, count: u64, measured: &mut Measured) -> Result<(), Failed> {
        let clients: Vec<usize> = (0..count).map(|_| self.random.below(self.clients)).collect();
        let asked = Instant::now();
        let refused = client.check(&clients).await?;
        measured.note(count, refused, asked.elapsed());
        Ok(())
    }
}
