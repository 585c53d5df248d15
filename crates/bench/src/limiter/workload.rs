//! The work, which is the same for every contender: rules that limit each client by itself, within a window, and checks
//! that each take 1 for some client.

use crate::{
    Failed,
    load::{self, Random},
    measure::Measured,
};
use std::{borrow::Cow, future::Future, time::Instant};

/// How much each client may take in [`PER_SECONDS`]: it is checked, and never reached.
pub(crate) const LIMIT: u64 = 1_000_000_000_000;

/// The window. It is fixed, but where something else is said; and it is a day, so that no group falls idle in a run.
pub(crate) const PER_SECONDS: u64 = 86_400;

/// The rule's name, where there is one.
pub(crate) const RULE: &str = "per-client";

/// How much there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Case {
    /// All rules.
    pub(crate) rules: usize,
    /// How many apply to each check.
    pub(crate) matching: usize,
    /// Of how many rules checks are asked that they apply to.
    pub(crate) asked: usize,
    /// Distinct key-values for which checks are asked. Each is a group of every rule that applies to it.
    pub(crate) subjects: usize,
}

/// What a rule is about.
pub(crate) struct Rule {
    pub(crate) name: String,
    pub(crate) group_by: Vec<String>,
    /// The one value of `api` that it selects, if it does.
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

    /// Rules that apply together have one API in common. Every other one selects it by its name, and the rest group by a
    /// key that only its checks have. So all but `matching` of the rules do not apply to a check.
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
    /// Makes the rule of this number.
    fn create(&mut self, case: Case, number: usize) -> impl Future<Output = Result<(), Failed>> + Send;

    /// Takes 1 for each of these subjects, and returns how often that was refused.
    fn check(&mut self, case: Case, subjects: &[usize]) -> impl Future<Output = Result<u64, Failed>> + Send;
}

/// One connection's checks, one after the other.
pub(crate) struct Checks {
    case: Case,
    random: Random,
}

impl Checks {
    /// For subjects chosen at random.
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
