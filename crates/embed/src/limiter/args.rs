//! What callers pass to the limiter. Each type becomes a command in its `build`.

use super::engine;
use crate::{Invalid, Keys, Name, call::millis, error::name, selection::Selection};
use limina_engine::limiter::{Durability, Limit, Window};
use std::time::Duration;

/// A rule: a limit for each combination of the values of its keys.
///
/// Without a window, the rule limits what is in use at the same time: counters and leases. With a window, it limits what
/// happens within the window.
#[derive(Debug, Clone)]
pub struct Rule {
    name: String,
    group_by: Vec<Box<str>>,
    selection: Selection,
    limit: Limit,
    window: Option<Window>,
    shadow: bool,
    durability: Option<Durability>,
    description: Option<Box<str>>,
}

/// Changes of a rule. What is not mentioned stays as it is.
#[derive(Debug, Clone, Default)]
pub struct RulePatch(engine::RulePatch);

/// A limit for exact key-values, in place of the rule's limit.
#[derive(Debug, Clone)]
pub struct Override {
    name: String,
    keys: Keys,
    limit: Limit,
    burst: Option<u64>,
}

/// Changes of an override. What is not mentioned stays as it is.
#[derive(Debug, Clone, Default)]
pub struct OverridePatch {
    keys: Option<Keys>,
    limit: Option<Limit>,
    burst: Option<Option<u64>>,
}

/// A check: takes from every limit that applies, or from none. Arrays of keys and [`Keys`] convert to a check of one hit.
#[derive(Debug, Clone)]
pub struct Check {
    takes: Vec<Take>,
    dry_run: bool,
    require_match: bool,
    report: bool,
}

#[derive(Debug, Clone)]
struct Take {
    keys: Keys,
    hits: i64,
    limit: Option<(u64, Duration)>,
}

/// A lease to take. By default it takes 1 and lasts for 30 seconds unless it is extended.
#[derive(Debug, Clone)]
pub struct NewLease {
    keys: Keys,
    hits: u64,
    ttl: Duration,
    owner: Option<String>,
    require_match: bool,
    wait: Duration,
}

impl Rule {
    /// A rule with this name and limit, which has one group for everything and no window.
    pub fn new(name: impl Into<String>, limit: Limit) -> Rule {
        Rule {
            name: name.into(),
            group_by: Vec::new(),
            selection: Selection::default(),
            limit,
            window: None,
            shadow: false,
            durability: None,
            description: None,
        }
    }

    /// Gives each combination of the values of these keys a limit of its own. The rule applies only where all keys are
    /// present.
    #[must_use]
    pub fn group_by<'k>(mut self, keys: impl IntoIterator<Item = &'k str>) -> Rule {
        self.group_by = keys.into_iter().map(Box::from).collect();
        self
    }

    /// Applies the rule only to key-values that this selection selects.
    #[must_use]
    pub fn selection(mut self, selection: Selection) -> Rule {
        self.selection = selection;
        self
    }

    /// Counts within windows that follow each other, aligned to the Unix epoch.
    #[must_use]
    pub fn fixed_window(mut self, per: Duration) -> Rule {
        self.window = Some(Window::Fixed { per: millis(per) });
        self
    }

    /// Counts within any span of this length.
    #[must_use]
    pub fn sliding_window(mut self, per: Duration) -> Rule {
        self.window = Some(Window::Sliding { per: millis(per) });
        self
    }

    /// Refills a bucket evenly: the whole limit within `per`. The bucket holds `burst`, or the limit if that is `None`.
    #[must_use]
    pub fn bucket(mut self, per: Duration, burst: Option<u64>) -> Rule {
        self.window = Some(Window::Bucket { per: millis(per), burst });
        self
    }

    /// Counts and reports, but never refuses.
    #[must_use]
    pub fn shadow(mut self) -> Rule {
        self.shadow = true;
        self
    }

    /// Whether a check waits for the disk. By default it does without a window, and does not with one: after a crash, the
    /// last moments of a window's count may be forgotten.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Rule {
        self.durability = Some(durability);
        self
    }

    /// A text about the rule. Limina only stores and returns it.
    #[must_use]
    pub fn description(mut self, text: &str) -> Rule {
        self.description = Some(text.into());
        self
    }

    pub(super) fn build(self) -> Result<engine::NewRule, Invalid> {
        let Rule { name: text, group_by, selection, limit, window, shadow, durability, description } = self;
        let name = name("name", &text)?;
        Ok(engine::NewRule { name, group_by, selection, limit, window, shadow, durability, description })
    }
}

impl RulePatch {
    /// No changes yet.
    pub fn new() -> RulePatch {
        RulePatch::default()
    }

    /// Another limit.
    #[must_use]
    pub fn limit(mut self, limit: Limit) -> RulePatch {
        self.0.limit = Some(limit);
        self
    }

    /// The window becomes a fixed one: see [`Rule::fixed_window`].
    #[must_use]
    pub fn fixed_window(mut self, per: Duration) -> RulePatch {
        self.0.window = Some(Some(Window::Fixed { per: millis(per) }));
        self
    }

    /// The window becomes a sliding one: see [`Rule::sliding_window`].
    #[must_use]
    pub fn sliding_window(mut self, per: Duration) -> RulePatch {
        self.0.window = Some(Some(Window::Sliding { per: millis(per) }));
        self
    }

    /// The window becomes a bucket: see [`Rule::bucket`].
    #[must_use]
    pub fn bucket(mut self, per: Duration, burst: Option<u64>) -> RulePatch {
        self.0.window = Some(Some(Window::Bucket { per: millis(per), burst }));
        self
    }

    /// Removes the window: the rule limits what is in use at the same time.
    #[must_use]
    pub fn no_window(mut self) -> RulePatch {
        self.0.window = Some(None);
        self
    }

    /// Another selection.
    #[must_use]
    pub fn selection(mut self, selection: Selection) -> RulePatch {
        self.0.selection = Some(selection);
        self
    }

    /// Whether the rule only counts and reports.
    #[must_use]
    pub fn shadow(mut self, shadow: bool) -> RulePatch {
        self.0.shadow = Some(shadow);
        self
    }

    /// Whether a check waits for the disk. `None` is the default of the window.
    #[must_use]
    pub fn durability(mut self, durability: Option<Durability>) -> RulePatch {
        self.0.durability = Some(durability);
        self
    }

    /// Another text, or none.
    #[must_use]
    pub fn description(mut self, text: Option<&str>) -> RulePatch {
        self.0.description = Some(text.map(Box::from));
        self
    }

    pub(super) fn build(self) -> engine::RulePatch {
        self.0
    }
}

impl Override {
    /// An override for these key-values, which contain every key by which the rule groups.
    pub fn new(name: impl Into<String>, keys: impl Into<Keys>, limit: Limit) -> Override {
        Override { name: name.into(), keys: keys.into(), limit, burst: None }
    }

    /// The size of the bucket in place of the rule's. Without this, it is the limit of the override.
    #[must_use]
    pub fn burst(mut self, burst: u64) -> Override {
        self.burst = Some(burst);
        self
    }

    pub(super) fn build(self) -> Result<engine::NewOverride, Invalid> {
        let Override { name: text, keys, limit, burst } = self;
        Ok(engine::NewOverride { name: name("name", &text)?, key_values: keys.build()?, limit, burst })
    }
}

impl OverridePatch {
    /// No changes yet.
    pub fn new() -> OverridePatch {
        OverridePatch::default()
    }

    /// Other key-values.
    #[must_use]
    pub fn keys(mut self, keys: impl Into<Keys>) -> OverridePatch {
        self.keys = Some(keys.into());
        self
    }

    /// Another limit.
    #[must_use]
    pub fn limit(mut self, limit: Limit) -> OverridePatch {
        self.limit = Some(limit);
        self
    }

    /// Another size of the bucket, or none.
    #[must_use]
    pub fn burst(mut self, burst: Option<u64>) -> OverridePatch {
        self.burst = Some(burst);
        self
    }

    pub(super) fn build(self) -> Result<engine::OverridePatch, Invalid> {
        let key_values = self.keys.map(Keys::build).transpose()?;
        Ok(engine::OverridePatch { key_values, limit: self.limit, burst: self.burst })
    }
}

impl Check {
    /// A check of one hit for these key-values.
    pub fn of(keys: impl Into<Keys>) -> Check {
        Check { takes: Vec::new(), dry_run: false, require_match: false, report: false }.and(keys)
    }

    /// Adds key-values, with one hit. Either everything in the check is taken, or nothing.
    #[must_use]
    pub fn and(mut self, keys: impl Into<Keys>) -> Check {
        self.takes.push(Take { keys: keys.into(), hits: 1, limit: None });
        self
    }

    /// How much the key-values named last take. 0 only looks. A negative amount gives back, and is never refused.
    #[must_use]
    pub fn hits(mut self, hits: i64) -> Check {
        self.last().hits = hits;
        self
    }

    /// A limit for the key-values named last, in fixed windows of length `per`. It applies in place of all rules.
    #[must_use]
    pub fn limit(mut self, limit: u64, per: Duration) -> Check {
        self.last().limit = Some((limit, per));
        self
    }

    /// Decides, and takes nothing.
    #[must_use]
    pub fn dry_run(mut self) -> Check {
        self.dry_run = true;
        self
    }

    /// Says that it has happened already: the check is counted whatever the limits say, and a bucket goes into debt. The
    /// decision says whether it was within all limits. Negative hits give back what still counts. A check that was also made a
    /// [dry run](Check::dry_run) takes nothing.
    #[must_use]
    pub fn report(mut self) -> Check {
        self.report = true;
        self
    }

    /// Refuses the check with [`Refusal::NoRuleApplies`](super::Refusal::NoRuleApplies) if no rule applies to some of its
    /// key-values. Without this, a check that no rule applies to is allowed.
    #[must_use]
    pub fn require_match(mut self) -> Check {
        self.require_match = true;
        self
    }

    fn last(&mut self) -> &mut Take {
        self.takes.last_mut().expect("a check begins with key-values")
    }

    pub(super) fn build(self) -> Result<engine::Check, Invalid> {
        let entry = |(index, take): (usize, Take)| {
            take.build().map_err(|invalid| invalid.within_item("entries", index))
        };
        let entries = self.takes.into_iter().enumerate().map(entry).collect::<Result<_, Invalid>>()?;
        let check = engine::Check::new(entries)?.with_report(self.report).with_dry_run(self.dry_run);
        Ok(check.with_require_match(self.require_match))
    }
}

impl Take {
    fn build(self) -> Result<engine::Take, Invalid> {
        let limit =
            self.limit.map(|(limit, per)| engine::RequestLimit::new(limit, millis(per))).transpose()?;
        Ok(engine::Take::new(self.keys.build()?, self.hits)?.with_limit(limit))
    }
}

impl From<Keys> for Check {
    fn from(keys: Keys) -> Check {
        Check::of(keys)
    }
}

impl<K: AsRef<str>, V: Into<crate::KeyValue>, const N: usize> From<[(K, V); N]> for Check {
    fn from(pairs: [(K, V); N]) -> Check {
        Check::of(pairs)
    }
}

impl NewLease {
    /// A lease for these key-values.
    pub fn of(keys: impl Into<Keys>) -> NewLease {
        let ttl = Duration::from_secs(30);
        NewLease { keys: keys.into(), hits: 1, ttl, owner: None, require_match: false, wait: Duration::ZERO }
    }

    /// How long to wait while only limits without a window refuse, at most 5 minutes. Dropping the future of the call ends the
    /// wait.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> NewLease {
        self.wait = wait;
        self
    }

    /// How much the lease takes; at least 1.
    #[must_use]
    pub fn hits(mut self, hits: u64) -> NewLease {
        self.hits = hits;
        self
    }

    /// How long the lease lasts unless it is extended: from 100 ms to 24 hours.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> NewLease {
        self.ttl = ttl;
        self
    }

    /// The name of the holder, shown to those who list leases.
    #[must_use]
    pub fn owner(mut self, owner: impl Into<String>) -> NewLease {
        self.owner = Some(owner.into());
        self
    }

    /// Refuses the lease with [`Refusal::NoRuleApplies`](super::Refusal::NoRuleApplies) if no rule applies to its
    /// key-values.
    #[must_use]
    pub fn require_match(mut self) -> NewLease {
        self.require_match = true;
        self
    }

    pub(super) fn build(&self, id: Name, session: Name) -> Result<engine::NewLease, Invalid> {
        let owner = self.owner.as_deref().map(|owner| name("owner", owner)).transpose()?;
        let key_values = self.keys.clone().build()?;
        let lease = engine::NewLease::new(id, session, key_values, self.hits, millis(self.ttl))?;
        lease.with_owner(owner).with_require_match(self.require_match).with_wait(millis(self.wait))
    }
}
