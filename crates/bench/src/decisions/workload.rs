//! The work of decisions: a client reserves some parts, and then settles less than it reserved.
//!
//! - *1 part*: a hold in the budget of a tenant.
//! - *3 parts*: that, a window of requests and a slot of the tenant.
//! - *8 parts*: holds in three budgets, windows of requests and of tokens, slots of the tenant and of the model, and a lock
//!   that nobody else wants.
//!
//! The parts are reserved together, as one decision, or one after the other by separate calls. The separate calls are the
//! fewest that do the same if nothing is refused and nobody fails in between: the ledger holds in several budgets by one call.

use crate::{Failed, load, load::Contender, measure::Measured};
use std::{future::Future, time::Instant};

/// Every limit and ceiling. They are checked and never reached.
pub(crate) const LIMIT: u64 = 1_000_000_000_000;
/// What a decision holds in each budget, and what it commits.
pub(crate) const HELD: u64 = 50;
pub(crate) const COMMITTED: u64 = 40;
/// The tokens that a decision estimates, and what it took.
pub(crate) const ESTIMATE: u64 = 4_000;
pub(crate) const ACTUAL: u64 = 3_100;
/// How long something is held that is never released. No run is that long.
pub(crate) const TTL_SECONDS: u64 = 600;

/// How many parts a decision has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parts {
    One,
    Three,
    Eight,
}

impl Parts {
    /// The budgets of the tenant in which the decision holds.
    pub(crate) fn budgets(self, tenant: usize) -> Vec<String> {
        let kinds: &[&str] = if self == Parts::Eight { &["day", "month", "year"] } else { &["month"] };
        kinds.iter().map(|kind| format!("{kind}/{}", tenant_name(tenant))).collect()
    }
}

/// The rules of the limiter: the name, the key by which the rule groups, and whether it has a window. The key `meter` says
/// which of them a check is about.
pub(crate) const RULES: [(&str, &str, bool); 4] = [
    ("requests", "tenant", true),
    ("tokens", "tenant", true),
    ("tenant-slots", "tenant", false),
    ("model-slots", "model", false),
];

pub(crate) fn tenant_name(tenant: usize) -> String {
    format!("tenant-{tenant}")
}

/// One decision, from its reservation to its settlement.
pub(crate) struct Flow {
    pub(crate) id: String,
    pub(crate) parts: Parts,
    pub(crate) tenant: usize,
}

/// One connection to a contender. The effect of each call is durable when the call returns.
pub(crate) trait Client: Send + 'static {
    /// Creates the rules, and the budgets of all tenants.
    fn create(&mut self, tenants: usize) -> impl Future<Output = Result<(), Failed>> + Send;

    /// Reserves, and returns how many decisions were refused.
    fn decide(&mut self, flows: &[Flow]) -> impl Future<Output = Result<u64, Failed>> + Send;

    /// Settles, and returns how many decisions were refused.
    fn settle(&mut self, flows: &[Flow]) -> impl Future<Output = Result<u64, Failed>> + Send;

    /// Reserves and settles by separate calls, and returns whether everything was done. Only Limina over HTTP implements this.
    fn separately(&mut self, _: &Flow) -> impl Future<Output = Result<bool, Failed>> + Send {
        async { Err("separate calls are not implemented for this contender".into()) }
    }
}

pub(crate) async fn create<C: Contender<Client: Client>>(
    contender: &C,
    tenants: usize,
) -> Result<(), Failed> {
    contender.connect().await?.create(tenants).await
}

/// The decisions of one client.
pub(crate) struct Flows {
    pub(crate) parts: Parts,
    /// Whether each decision is made by separate calls.
    pub(crate) is_separate: bool,
    pub(crate) tenants: usize,
    /// A part of the ids, so each phase needs another name.
    pub(crate) phase: &'static str,
    pub(crate) client: usize,
    pub(crate) made: u64,
    pub(crate) random: load::Random,
}

impl Flows {
    fn next(&mut self) -> Flow {
        self.made += 1;
        let id = format!("request-{}-{}-{}", self.phase, self.client, self.made);
        let tenant = self.random.below(self.tenants);
        Flow { id, parts: self.parts, tenant }
    }
}

impl<C: Client> load::Work<C> for Flows {
    async fn step(&mut self, client: &mut C, count: u64, measured: &mut Measured) -> Result<(), Failed> {
        let flows: Vec<Flow> = (0..count).map(|_| self.next()).collect();
        let begun = Instant::now();
        let mut refused = 0;
        if self.is_separate {
            for flow in &flows {
                refused += u64::from(!client.separately(flow).await?);
            }
        } else {
            // A decision that was refused cannot be settled either.
            refused += client.decide(&flows).await?.max(client.settle(&flows).await?);
        }
        measured.note(count, refused, begun.elapsed());
        Ok(())
    }
}
