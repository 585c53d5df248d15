//! What `top` reads from the server.

use crate::{Failed, health::Health, metrics::Metrics};
use limina_client::{
    Error, Limina,
    types::{Group, Limit, Lock},
};
use std::{collections::BTreeMap, time::Instant};

/// The most grants of locks that are looked at for queues.
const LOCKS: u32 = 1000;
/// The most rules without a window that are looked at for queues.
const SLOT_RULES: usize = 8;

/// The counters at one moment. Rates are differences between two samples.
pub(super) struct Sample {
    pub(super) at: Instant,
    /// Requests decided, by family.
    pub(super) decided: BTreeMap<String, f64>,
    /// Requests that were not allowed, by family and code.
    pub(super) refused: BTreeMap<(String, String), f64>,
    /// What rules of the limiter refused, by namespace and rule.
    pub(super) refused_by_rule: BTreeMap<(String, String), f64>,
    /// What the node lacks.
    pub(super) health: Health,
    pub(super) waiting: f64,
    pub(super) locks_held: f64,
    pub(super) leases: f64,
    pub(super) decisions_open: f64,
}

/// Outcomes that say no. Others are mistakes of clients, and not worth a night's sleep.
const REFUSALS: [&str; 9] = [
    "LimitReached",
    "LimitExceeded",
    "LockHeld",
    "LockWaitTimeout",
    "EventConflict",
    "Refused",
    "StreamFull",
    "QuotaExceeded",
    "ValueOverflow",
];

impl Sample {
    pub(super) async fn take(client: &Limina) -> Result<Sample, Failed> {
        let metrics = Metrics::parse(&client.server().metrics().await?);
        let mut decided: BTreeMap<String, f64> = BTreeMap::new();
        let mut refused = BTreeMap::new();
        for (labels, count) in metrics.sums_by("limina_decisions_total", &[], &["family", "outcome"]) {
            let [family, outcome] = labels.as_slice() else { continue };
            *decided.entry(family.clone()).or_default() += count;
            if REFUSALS.contains(&outcome.as_str()) {
                refused.insert((family.clone(), outcome.clone()), count);
            }
        }
        let by_rule = metrics.sums_by(
            "limina_limiter_rule_checks_total",
            &[("result", "refused")],
            &["namespace", "rule"],
        );
        let refused_by_rule = by_rule.into_iter().filter_map(|(labels, count)| {
            let [namespace, rule] = <[String; 2]>::try_from(labels).ok()?;
            Some(((namespace, rule), count))
        });
        Ok(Sample {
            at: Instant::now(),
            decided,
            refused,
            refused_by_rule: refused_by_rule.collect(),
            health: Health::of(&metrics),
            waiting: metrics.sum("limina_locks_waiting", &[]),
            locks_held: metrics.sum("limina_locks_held", &[]),
            leases: metrics.sum("limina_limiter_leases", &[]),
            decisions_open: metrics.sum("limina_decisions_open", &[]),
        })
    }
}

/// What the namespace has at this moment. A list that could not be read is empty.
#[derive(Default)]
pub(super) struct Lists {
    /// Locks for which somebody waits, the longest queue first.
    pub(super) locks: Vec<Lock>,
    /// Groups of rules for whose slots somebody waits, with the names of the rules.
    pub(super) slots: Vec<(String, Group)>,
    /// Why a part of the queues is missing.
    pub(super) queues_unread: Option<String>,
    /// The limits of the ledger that are nearest to their ceilings.
    pub(super) ceilings: Vec<Limit>,
    /// Why they are missing.
    pub(super) ceilings_unread: Option<String>,
}

impl Lists {
    pub(super) async fn read(client: &Limina) -> Lists {
        let (locks, slots, ceilings) = tokio::join!(locks(client), slots(client), ceilings(client));
        let queues_unread = locks.as_ref().err().or(slots.as_ref().err()).map(unread);
        let ceilings_unread = ceilings.as_ref().err().map(unread);
        Lists {
            locks: locks.unwrap_or_default(),
            slots: slots.unwrap_or_default(),
            queues_unread,
            ceilings: ceilings.unwrap_or_default(),
            ceilings_unread,
        }
    }
}

/// Why a list is missing, in a few words.
fn unread(error: &Error) -> String {
    match error.failure().needs() {
        Some(right) => format!("not shown: the token lacks the right {right}"),
        None => format!("not shown: {error}"),
    }
}

async fn locks(client: &Limina) -> limina_client::Result<Vec<Lock>> {
    let page = client.locks().list().page_size(LOCKS).next_page().await?;
    let mut locks = page.map(|page| page.into_inner().items).unwrap_or_default();
    locks.retain(|lock| lock.waiting > 0);
    locks.sort_by_key(|lock| std::cmp::Reverse(lock.waiting));
    Ok(locks)
}

async fn slots(client: &Limina) -> limina_client::Result<Vec<(String, Group)>> {
    let page = client.rules().list().page_size(1000).next_page().await?;
    let rules = page.map(|page| page.into_inner().items).unwrap_or_default();
    let mut queues = Vec::new();
    for rule in rules.iter().filter(|rule| rule.window.is_none()).take(SLOT_RULES) {
        let groups = client.rules().groups(&rule.name, 20).await?;
        let groups = groups.into_inner().items.into_iter().filter(|group| group.waiting > 0);
        queues.extend(groups.map(|group| (rule.name.to_string(), group)));
    }
    queues.sort_by_key(|(_, group)| std::cmp::Reverse(group.waiting));
    Ok(queues)
}

async fn ceilings(client: &Limina) -> limina_client::Result<Vec<Limit>> {
    let page = client.ledger().limits().list().filter("order", "used").page_size(20).next_page().await?;
    let mut limits = page.map(|page| page.into_inner().items).unwrap_or_default();
    limits.retain(|limit| limit.ceiling.is_some());
    Ok(limits)
}
