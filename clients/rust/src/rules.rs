//! Rules, their overrides, and sets of rules. Their documents can be given as JSON, as a reply, or as any type that serializes.

use crate::{
    Pages, Reply,
    body::{self, Body},
    call::segment,
    error::Result,
    transport::Scope,
    types::{Groups, Keys, MatchReply, Override, Rule, RuleSet, RuleSetChanges, RuleSetInfo},
};
use serde::Serialize;

/// `client.rules()`
///
/// ```no_run
/// # async fn example(client: limina_client::Limina) -> Result<(), limina_client::Error> {
/// use serde_json::json;
///
/// let window = json!({"type": "sliding", "per": "1m"});
/// client.rules().put("per-tenant", &json!({"group_by": ["tenant"], "limit": 100, "window": window})).await?;
/// # Ok(())
/// # }
/// ```
pub struct Rules<'c> {
    pub(crate) scope: &'c Scope,
}

impl Rules<'_> {
    /// Creates a rule. The document has its `name`.
    pub async fn create(&self, rule: &impl Serialize) -> Result<Reply<Rule>> {
        self.scope.post("/limiter/rules").body(rule).send().await
    }

    /// All rules, by name.
    pub fn list(&self) -> Pages<Rule> {
        Pages::get(self.scope, "/limiter/rules")
    }

    /// One rule.
    pub async fn get(&self, name: &str) -> Result<Reply<Rule>> {
        self.scope.get(path(name)).send().await
    }

    /// Creates the rule, or replaces all of it except its name and its overrides. A rule that was read can be put back.
    pub async fn put(&self, name: &str, rule: &impl Serialize) -> Result<Reply<Rule>> {
        self.scope.put(path(name)).body(rule).send().await
    }

    /// Changes the given fields. `null` removes an optional field.
    pub async fn patch(&self, name: &str, changes: &impl Serialize) -> Result<Reply<Rule>> {
        self.scope.patch(path(name)).body(changes).send().await
    }

    /// Deletes the rule and its overrides.
    pub async fn delete(&self, name: &str) -> Result<()> {
        self.scope.delete(path(name)).await
    }

    /// The rules and overrides that would apply to these key-values.
    pub async fn matching(&self, key_values: impl Into<Keys>) -> Result<Reply<MatchReply>> {
        let body = Body::default().with("key_values", body::key_values(key_values));
        self.scope.post("/limiter/rules/match").with_body(body).read_only().send().await
    }

    /// The rules that a query finds, such as `{"where": {"tenant": {"exists": true}}}`.
    pub fn query(&self, query: &impl Serialize) -> Pages<Rule> {
        Pages::query(self.scope, "/limiter/rules/query", Body::of(query))
    }

    /// The groups that use the most of their limits, at most `limit` (up to 1,000).
    pub async fn groups(&self, name: &str, limit: u32) -> Result<Reply<Groups>> {
        let call = self.scope.get(format!("{}/groups", path(name)));
        call.query("order", "used").query("limit", limit).send().await
    }
}

fn path(rule: &str) -> String {
    format!("/limiter/rules/{}", segment(rule))
}

/// `client.overrides("rule")`
pub struct Overrides<'c> {
    scope: &'c Scope,
    path: String,
}

impl<'c> Overrides<'c> {
    pub(crate) fn new(scope: &'c Scope, rule: &str) -> Overrides<'c> {
        Overrides { scope, path: format!("{}/overrides", path(rule)) }
    }

    /// Creates an override. The document has its `name`.
    pub async fn create(&self, document: &impl Serialize) -> Result<Reply<Override>> {
        self.scope.post(&self.path).body(document).send().await
    }

    /// All overrides of the rule.
    pub fn list(&self) -> Pages<Override> {
        Pages::get(self.scope, &self.path)
    }

    /// One override.
    pub async fn get(&self, name: &str) -> Result<Reply<Override>> {
        self.scope.get(self.one(name)).send().await
    }

    /// Creates the override, or replaces all of it except its name.
    pub async fn put(&self, name: &str, document: &impl Serialize) -> Result<Reply<Override>> {
        self.scope.put(self.one(name)).body(document).send().await
    }

    /// Changes the given fields.
    pub async fn patch(&self, name: &str, changes: &impl Serialize) -> Result<Reply<Override>> {
        self.scope.patch(self.one(name)).body(changes).send().await
    }

    /// Deletes the override.
    pub async fn delete(&self, name: &str) -> Result<()> {
        self.scope.delete(self.one(name)).await
    }

    /// The overrides that a query finds.
    pub fn query(&self, query: &impl Serialize) -> Pages<Override> {
        Pages::query(self.scope, format!("{}/query", self.path), Body::of(query))
    }

    fn one(&self, name: &str) -> String {
        format!("{}/{}", self.path, segment(name))
    }
}

/// `client.rule_sets()`: named sets of rules, each replaced whole or not at all.
pub struct RuleSets<'c> {
    pub(crate) scope: &'c Scope,
}

impl RuleSets<'_> {
    /// All sets, without their rules.
    pub fn list(&self) -> Pages<RuleSetInfo> {
        Pages::get(self.scope, "/limiter/rule-sets")
    }

    /// One set with its rules, as a document that can be put back.
    pub async fn get(&self, set: &str) -> Result<Reply<RuleSet>> {
        self.scope.get(set_path(set)).send().await
    }

    /// Makes the set exactly this, in one step, or changes nothing.
    pub async fn put(&self, set: &str, rules: &impl Serialize) -> Result<Reply<RuleSetChanges>> {
        self.scope.put(set_path(set)).body(rules).send().await
    }

    /// What [`RuleSets::put`] would change.
    pub async fn diff(&self, set: &str, rules: &impl Serialize) -> Result<Reply<RuleSetChanges>> {
        self.scope.put(set_path(set)).query("dry_run", true).body(rules).read_only().send().await
    }

    /// Deletes the set and its rules.
    pub async fn delete(&self, set: &str) -> Result<()> {
        self.scope.delete(set_path(set)).await
    }
}

fn set_path(set: &str) -> String {
    format!("/limiter/rule-sets/{}", segment(set))
}
