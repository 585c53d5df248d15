//! The limiter: rate limits, and limits of what is in use at the same time.
//!
//! ```
//! use limina_embed::{Error, Limina, limiter::{Check, Limit, NewLease, Refusal, Rule}};
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = Limina::in_memory().await?.namespace("shop")?.limiter();
//!
//! // At most 100 a minute for each user, in any span of a minute.
//! let rate = Rule::new("per-user", Limit::AtMost(100)).group_by(["user"]);
//! limiter.create_rule(rate.sliding_window(Duration::from_secs(60))).await?;
//! limiter.check([("user", "ann")]).await?;
//! let refused = limiter.check(Check::of([("user", "ann")]).hits(100)).await;
//! assert!(matches!(refused, Err(Error::Refused(Refusal::LimitReached(_)))));
//!
//! // At most 2 jobs at the same time for each tenant. A job that stops without release counts until its lease expires.
//! limiter.create_rule(Rule::new("jobs", Limit::AtMost(2)).group_by(["tenant"])).await?;
//! let job = limiter.take_lease(NewLease::of([("tenant", 7)]).ttl(Duration::from_secs(60))).await?;
//! limiter.release_lease(&job).await?;
//! # Ok(())
//! # }
//! ```

mod args;

pub use args::{Check, NewLease, Override, OverridePatch, Rule, RulePatch};
pub use limina_engine::limiter::{
    AppliedLimit, ChangedRule, Checked, ConflictCode, Counter, CounterId, Durability, Group, Groups, Lease,
    Limit, LimitStatus, ManagedRule, Override as OverrideInfo, Refusal, Rule as RuleInfo, RuleField,
    RuleMatch, RuleOfSet, RuleSet, RuleSetChanges, RuleSetInfo, RuleWindow, SetConflict, SetOverrides, Usage,
    Window, WindowType,
};

use crate::{
    Error, Failure, Invalid, Keys, Listed, Name,
    call::{Caller, failure, page, reply},
    error::name,
};
use limina_engine::{
    Command as AnyCommand, Outcome,
    limiter::{self as engine, Change, Command, MostUsed, Reply},
    selection::Query,
};
use limina_node::draw_id;

type Result<T> = std::result::Result<T, Error<Refusal>>;

/// The limiter of a namespace. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Limiter {
    caller: Caller,
}

/// A lease that was taken, and the check that allowed it.
#[derive(Debug, Clone, PartialEq)]
pub struct LeaseTaken {
    /// The lease.
    pub lease: Lease,
    /// The secret that extensions and the release need, together with the id of the lease.
    pub session: Name,
    /// Every limit that applied.
    pub decision: Checked,
}

/// A counter that was moved, and the check that allowed it.
#[derive(Debug, Clone, PartialEq)]
pub struct CounterMoved {
    /// The counter afterwards.
    pub counter: Counter,
    /// Every limit that applied; none if something was given back.
    pub decision: Checked,
}

impl Limiter {
    pub(crate) fn new(caller: Caller) -> Limiter {
        Limiter { caller }
    }

    /// A handle whose next write is done once, however often it is repeated under this key within a day: see
    /// [`Ledger::idempotency_key`](crate::Ledger::idempotency_key).
    pub fn idempotency_key(&self, key: &str) -> std::result::Result<Limiter, Invalid> {
        Ok(Limiter { caller: self.caller.with_idempotency_key(key)? })
    }

    /// Takes from every limit that applies, or from none. If a limit refuses, this returns [`Refusal::LimitReached`] with
    /// the same facts as a success.
    pub async fn check(&self, check: impl Into<Check>) -> Result<Checked> {
        let command = Command::Check(check.into().build()?);
        reply!(self.call(command).await, Reply::Allowed(decision) => decision)
    }

    /// Several checks in order, each on its own. The decisions are in the same order; [`Checked::allowed`] says which checks
    /// passed. A check that is refused for another reason has no decision: [`Refusal::NoRuleApplies`] or
    /// [`Refusal::QuotaExceeded`].
    pub async fn check_batch(
        &self,
        checks: impl IntoIterator<Item = Check>,
    ) -> Result<Vec<std::result::Result<Checked, Refusal>>> {
        let check = |(index, check): (usize, Check)| {
            check.build().map_err(|invalid| invalid.within_item("checks", index))
        };
        let checks =
            checks.into_iter().enumerate().map(check).collect::<std::result::Result<_, Invalid>>()?;
        let command = Command::CheckBatch(engine::CheckBatch::new(checks)?);
        reply!(self.call(command).await, Reply::Batch(decisions) => decisions)
    }

    /// The rules and overrides that apply to these key-values.
    pub async fn matches(&self, keys: impl Into<Keys>) -> Result<Vec<RuleMatch>> {
        let command = Command::Match(keys.into().build()?);
        reply!(self.call(command).await, Reply::Matches(matches) => matches)
    }

    /// Creates a rule. If the rule has no window, this returns when everything in use is counted.
    pub async fn create_rule(&self, rule: Rule) -> Result<RuleInfo> {
        let change = Change::CreateRule(rule.build()?);
        reply!(self.change(change).await, Reply::RuleCreated(rule) => rule)
    }

    /// Creates a rule, or replaces everything of it except its overrides.
    pub async fn put_rule(&self, rule: Rule) -> Result<RuleInfo> {
        let change = Change::PutRule(rule.build()?);
        reply!(self.change(change).await, Reply::RuleCreated(rule) | Reply::Rule(rule) => rule)
    }

    /// Changes parts of a rule.
    pub async fn patch_rule(&self, rule: &str, patch: RulePatch) -> Result<RuleInfo> {
        let change = Change::PatchRule { name: name("name", rule)?, patch: patch.build() };
        reply!(self.change(change).await, Reply::Rule(rule) => rule)
    }

    /// Deletes a rule with its overrides.
    pub async fn delete_rule(&self, rule: &str) -> Result<()> {
        let change = Change::DeleteRule(name("name", rule)?);
        reply!(self.change(change).await, Reply::RuleDeleted => ())
    }

    /// Reads a rule.
    pub async fn rule(&self, rule: &str) -> Result<RuleInfo> {
        let command = Command::GetRule(name("name", rule)?);
        reply!(self.call(command).await, Reply::Rule(rule) => rule)
    }

    /// The rules by name whose keys match the query: at most `limit` of those that follow `after`. [`Query::default`]
    /// matches all.
    pub async fn rules(
        &self,
        query: Query,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Listed<RuleInfo, Name>> {
        let query = engine::RuleQuery::new(query)?;
        let command = Command::ListRules { query, page: page(after, limit)? };
        reply!(self.call(command).await, Reply::Rules(rules) => rules)
    }

    /// Makes a rule set exactly these rules, each with its overrides, in one step, or changes nothing. For configuration in
    /// files or code. A rule that belongs to no set is taken over; the rules of a set cannot be changed by other methods
    /// ([`Refusal::RuleManagedBySet`]).
    pub async fn put_rule_set(
        &self,
        set: &str,
        rules: impl IntoIterator<Item = (Rule, Vec<Override>)>,
        overrides: SetOverrides,
    ) -> Result<RuleSetChanges> {
        let new = new_rule_set(rules, overrides)?;
        let change = Change::PutRuleSet { set: name("set", set)?, new, author: engine::SetAuthor::Client };
        reply!(self.change(change).await, Reply::RuleSetPut { changes, .. } => changes)
    }

    /// What [`Limiter::put_rule_set`] would change, and why it would be refused. Changes nothing.
    pub async fn plan_rule_set(
        &self,
        set: &str,
        rules: impl IntoIterator<Item = (Rule, Vec<Override>)>,
        overrides: SetOverrides,
    ) -> Result<RuleSetChanges> {
        let plan = engine::RuleSetPlan::new(name("set", set)?, new_rule_set(rules, overrides)?)?;
        let command = Command::PlanRuleSet(plan);
        reply!(self.call(command).await, Reply::RuleSetPlanned(changes) => changes)
    }

    /// Deletes a rule set with its rules. Returns which rules that were.
    pub async fn delete_rule_set(&self, set: &str) -> Result<RuleSetChanges> {
        let change = Change::DeleteRuleSet { set: name("set", set)?, author: engine::SetAuthor::Client };
        reply!(self.change(change).await, Reply::RuleSetDeleted(changes) => changes)
    }

    /// Reads a rule set with its rules.
    pub async fn rule_set(&self, set: &str) -> Result<RuleSet> {
        let command = Command::GetRuleSet(name("set", set)?);
        reply!(self.call(command).await, Reply::RuleSet(set) => set)
    }

    /// The rule sets by name: at most `limit` of those that follow `after`.
    pub async fn rule_sets(&self, after: Option<&Name>, limit: usize) -> Result<Listed<RuleSetInfo, Name>> {
        let command = Command::ListRuleSets(page(after, limit)?);
        reply!(self.call(command).await, Reply::RuleSets(sets) => sets)
    }

    /// Creates an override of a rule.
    pub async fn create_override(&self, rule: &str, new: Override) -> Result<OverrideInfo> {
        let change = Change::CreateOverride { rule: name("rule", rule)?, new: new.build()? };
        reply!(self.change(change).await, Reply::OverrideCreated(item) => item)
    }

    /// Creates an override of a rule, or replaces it.
    pub async fn put_override(&self, rule: &str, new: Override) -> Result<OverrideInfo> {
        let change = Change::PutOverride { rule: name("rule", rule)?, new: new.build()? };
        reply!(self.change(change).await, Reply::OverrideCreated(item) | Reply::Override(item) => item)
    }

    /// Changes parts of an override.
    pub async fn patch_override(
        &self,
        rule: &str,
        override_name: &str,
        patch: OverridePatch,
    ) -> Result<OverrideInfo> {
        let (rule, name) = (name("rule", rule)?, name("name", override_name)?);
        let change = Change::PatchOverride { rule, name, patch: patch.build()? };
        reply!(self.change(change).await, Reply::Override(item) => item)
    }

    /// Deletes an override.
    pub async fn delete_override(&self, rule: &str, override_name: &str) -> Result<()> {
        let (rule, name) = (name("rule", rule)?, name("name", override_name)?);
        reply!(self.change(Change::DeleteOverride { rule, name }).await, Reply::OverrideDeleted => ())
    }

    /// Reads an override.
    pub async fn get_override(&self, rule: &str, override_name: &str) -> Result<OverrideInfo> {
        let (rule, name) = (name("rule", rule)?, name("name", override_name)?);
        reply!(self.call(Command::GetOverride { rule, name }).await, Reply::Override(item) => item)
    }

    /// The overrides of a rule by name whose key-values match the query: at most `limit` of those that follow `after`.
    pub async fn overrides(
        &self,
        rule: &str,
        query: Query,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Listed<OverrideInfo, Name>> {
        let command = Command::ListOverrides { rule: name("rule", rule)?, query, page: page(after, limit)? };
        reply!(self.call(command).await, Reply::Overrides(overrides) => overrides)
    }

    /// Moves the counter of exactly these key-values: a positive amount is taken as in a check, and stays in use until it
    /// is given back with a negative amount.
    pub async fn move_counter(&self, keys: impl Into<Keys>, by: i64) -> Result<CounterMoved> {
        let command = Command::MoveCounter(engine::CounterChange::new(keys.into().build()?, by)?);
        reply!(self.call(command).await, Reply::Moved { counter, decision } => CounterMoved { counter, decision })
    }

    /// Sets the part of a counter that leases do not hold. No rule is asked. The counter is removed at 0 or below.
    pub async fn set_counter(&self, keys: impl Into<Keys>, to: i64) -> Result<Counter> {
        let command = Command::SetCounter(engine::CounterChange::new(keys.into().build()?, to)?);
        reply!(self.call(command).await, Reply::Counter(counter) => counter)
    }

    /// The counters whose key-values match the query: at most `limit` of those that follow `after`.
    pub async fn counters(
        &self,
        query: Query,
        after: Option<CounterId>,
        limit: usize,
    ) -> Result<Listed<Counter, CounterId>> {
        let command = Command::ListCounters { query, page: page(after.as_ref(), limit)? };
        reply!(self.call(command).await, Reply::Counters(counters) => counters)
    }

    /// The groups of a rule that use the most of their limits, at most `limit`: those that use the largest part of their limit
    /// come first, and groups without a limit come last. The groups are read in parts, between other requests, so they show
    /// different instants. With millions of groups in the namespace this takes seconds.
    pub async fn most_used_groups(&self, rule: &str, limit: usize) -> Result<Vec<Group>> {
        let mut most_used = MostUsed::new(name("name", rule)?, limit)?;
        while let Some(command) = most_used.command() {
            let part = reply!(self.call(command).await, Reply::Groups(part) => part)?;
            most_used.add(part);
        }
        Ok(most_used.into_groups().items)
    }

    /// Takes a lease: a check whose hits stay in use until the lease is released or expires.
    pub async fn take_lease(&self, lease: NewLease) -> Result<LeaseTaken> {
        let (id, session) = (draw_id().map_err(Failure::from)?, draw_id().map_err(Failure::from)?);
        let command = |id, session| {
            Ok::<_, Invalid>(AnyCommand::Limiter(Command::TakeLease(lease.build(id, session)?)))
        };
        let same = Name::new("drawn").expect("a valid name");
        let outcome = self.caller.call_drawn(command(id, session)?, command(same.clone(), same)?).await?;
        reply!(
            decided(outcome),
            Reply::LeaseTaken { lease, session, decision } => LeaseTaken { lease: *lease, session, decision }
        )
    }

    /// Extends a lease: it lasts for its ttl from now on.
    pub async fn extend_lease(&self, taken: &LeaseTaken) -> Result<Lease> {
        self.extend_lease_as(taken.lease.lease_id.as_str(), taken.session.as_str()).await
    }

    /// Extends a lease by its id and the session of its holder.
    pub async fn extend_lease_as(&self, lease_id: &str, session: &str) -> Result<Lease> {
        let (id, session) = (name("lease_id", lease_id)?, name("session_id", session)?);
        reply!(self.call(Command::ExtendLease { id, session }).await, Reply::Lease(lease) => lease)
    }

    /// Releases a lease: what it holds is given back.
    pub async fn release_lease(&self, taken: &LeaseTaken) -> Result<()> {
        self.release_lease_as(taken.lease.lease_id.as_str(), taken.session.as_str()).await
    }

    /// Releases a lease by its id and the session of its holder.
    pub async fn release_lease_as(&self, lease_id: &str, session: &str) -> Result<()> {
        let (id, session) = (name("lease_id", lease_id)?, Some(name("session_id", session)?));
        reply!(self.call(Command::ReleaseLease { id, session }).await, Reply::LeaseReleased => ())
    }

    /// Releases a lease of any holder. For operators: the holder is not asked, and learns of it when it next extends the
    /// lease.
    pub async fn force_release_lease(&self, lease_id: &str) -> Result<()> {
        let command = Command::ReleaseLease { id: name("lease_id", lease_id)?, session: None };
        reply!(self.call(command).await, Reply::LeaseReleased => ())
    }

    /// Reads a lease.
    pub async fn lease(&self, lease_id: &str) -> Result<Lease> {
        let command = Command::GetLease(name("lease_id", lease_id)?);
        reply!(self.call(command).await, Reply::Lease(lease) => lease)
    }

    /// The leases by id, of one owner or of all: at most `limit` of those that follow `after`.
    pub async fn leases(
        &self,
        owner: Option<&str>,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Listed<Lease, Name>> {
        let owner = owner.map(|owner| name("owner", owner)).transpose()?;
        let command = Command::ListLeases { owner, page: page(after, limit)? };
        reply!(self.call(command).await, Reply::Leases(leases) => leases)
    }

    async fn change(&self, change: Change) -> Result<Reply> {
        self.call(Command::Change(engine::RuleChange::new(change)?)).await
    }

    async fn call(&self, command: Command) -> Result<Reply> {
        decided(self.caller.call(AnyCommand::Limiter(command)).await?)
    }
}

fn decided(outcome: Outcome) -> Result<Reply> {
    match outcome {
        Outcome::Limiter(Ok(reply)) => Ok(reply),
        Outcome::Limiter(Err(refusal)) => Err(Error::Refused(refusal)),
        outcome => Err(Error::Failed(failure(&outcome))),
    }
}

fn new_rule_set(
    rules: impl IntoIterator<Item = (Rule, Vec<Override>)>,
    overrides: SetOverrides,
) -> std::result::Result<engine::NewRuleSet, Invalid> {
    let rule = |(rule, overrides): (Rule, Vec<Override>)| {
        let overrides = overrides.into_iter().map(Override::build);
        let overrides = overrides.collect::<std::result::Result<_, Invalid>>()?;
        Ok(engine::SetRule { rule: rule.build()?, overrides })
    };
    let rules = rules.into_iter().map(rule).collect::<std::result::Result<_, Invalid>>()?;
    Ok(engine::NewRuleSet { rules, overrides })
}
