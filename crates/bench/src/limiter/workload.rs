//! The work of the limiter: rules that limit each client separately within a window, and checks that each take 1 for some
//! client.

use crate::{
    Failed,
    load::{self, Random},
    measure::Measured,
};
use std::{borrow::Cow, future::Future, time::Instant};

/// The limit of each client within [`PER_SECONDS`]. It is checked and never reached.
pub(crate) const LIMIT: u64 = 1_000_000_000_000;

/// The length of the window. It is a day, so that no group becomes idle in a run.
pub(crate) const PER_SECONDS: u64 = 86_400;

/// The name of the rule, if there is only one.
pub(crate) const RULE: &str = "per-client";

/// The numbers of rules and groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Case {
    /// All rules.
    pub(crate) rules: usize,
    /// Rules that apply to each check.
    pub(crate) matching: usize,
    /// Rules to which at least one check applies.
    pub(crate) asked: usize,
    /// Distinct key-values of checks. Each is a group of every rule that applies to it.
    pub(crate) subjects: usize,
}

/// The parts of a rule that differ between the rules of a case.
pub(crate) struct Rule {
    pub(crate) name: String,
    pub(crate) group_by: Vec<String>,
    /// The one value of `api` that the rule selects; none if it selects everything.
    pub(crate) api: Option<String>,
}

impl Case {
    /// One rule, which groups by client.
    pub(crate) fn simple(clients: usize) -> Case {
        Case { rules: 1, matching: 1, asked: 1, subjects: clients }
    }

    fn is_simple(&self) -> bool {
        self.rules == 1
    }

    /// The rules that apply to the same check share one API. Half of them select the API by its name, the others group by a
    /// key that only checks of this API have. So exactly `matching` rules apply to each check.
    pub(crate) fn rule(&self, number: usize) -> Rule {
        let client = "client".to_owned();
        if self.is_simple() {
            return Rule { name: RULE.into(), group_by: vec![client], api: None };
        }
        let (name, api) = (format!("rule-{number}"), number / self.matching);
        match number % 2 {
            0 => Rule { name, group_by: vec![client], api: Some(api_name(api)) },
            _ => Rule { name, group_by: vec![client, feature_name(api)], api: None },
        }
    }

    pub(crate) fn key_values(&self, subject: usize) -> Vec<(Cow<'static, str>, String)> {
        let mut pairs = vec![("client".into(), client_name(subject))];
        if !self.is_simple() {
            let api = subject % (self.asked / self.matching);
            pairs.push(("api".into(), api_name(api)));
            pairs.push((feature_name(api).into(), "on".into()));
        }
        pairs
    }
}

fn api_name(api: usize) -> String {
    format!("api-{api}")
}

fn feature_name(api: usize) -> String {
    format!("feature-{api}")
}

pub(crate) fn client_name(number: usize) -> String {
    format!("client-{number}")
}

/// One connection to a contender.
pub(crate) trait Client: Send + 'static {
    /// Creates the rule with this number.
    fn create(&mut self, case: Case, number: usize) -> impl Future<Output = Result<(), Failed>> + Send;

    /// Takes 1 for each of these subjects, and returns how many checks were refused.
    fn check(&mut self, case: Case, subjects: &[usize]) -> impl Future<Output = Result<u64, Failed>> + Send;
}

/// The checks of one client.
pub(crate) struct Checks {
    case: Case,
    random: Random,
}

impl Checks {
    /// Checks of subjects that are chosen at random.
    pub(crate) fn new(case: Case, connection: usize) -> Checks {
        Checks { case, random: Random::new(connection) }
    }
}

impl<C: Client> load::Work<C> for Checks {
    async fn step(&mut self, client: &mut C, count: u64, measured: &mut Measured) -> Result<(), Failed> {
        let subjects: Vec<usize> = (0..count).map(|_| self.random.below(self.case.subjects)).collect();
        let asked = Instant::now();
        let refused = client.check(self.case, &subjects).await?;
        measured.note(count, refused, asked.elapsed());
        Ok(())
    }
}
