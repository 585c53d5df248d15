//! Loads the stored records of a limiter.

use super::{
    counting::count_for_rule,
    keys,
    lease::Lease,
    overrides::{Override, StoredOverride},
    rule::{Rule, StoredRule},
    rule_sets::StoredRuleSet,
    state::Limiter,
};
use crate::{
    Position, Time,
    ids::NamespaceId,
    record::{self, Malformed, key::ResidentKey},
    timers::Timers,
};
use alloc::sync::Arc;

impl Limiter {
    /// Loads a stored record. Records come in the order of their keys: rules, overrides, windows, counters, leases,
    /// rule sets.
    pub(crate) fn load(&mut self, key: ResidentKey<'_>, bytes: &[u8]) -> Result<(), Malformed> {
        match keys::parse(key).ok_or(Malformed)? {
            keys::Resident::Rule(id) => self.load_rule(id, bytes),
            keys::Resident::Override { rule, .. } => self.load_override(rule, bytes),
            keys::Resident::Window(index) => self.groups.load(index, bytes),
            keys::Resident::Counter(index) => self.counters.load(index, bytes),
            keys::Resident::Lease(_) => self.load_lease(bytes),
            keys::Resident::RuleSet(id) => self.load_rule_set(id, bytes),
        }
    }

    fn load_rule(&mut self, id: Position, bytes: &[u8]) -> Result<(), Malformed> {
        let stored: StoredRule = record::decode(bytes)?;
        if stored.id != id || self.rule(&stored.terms.name).is_some() {
            return Err(Malformed);
        }
        self.rules.insert(Rule::new(stored, Arc::default(), true));
        Ok(())
    }

    /// An override without a rule is left over from a deleted rule, and a pending sweep removes it.
    fn load_override(&mut self, rule: Position, bytes: &[u8]) -> Result<(), Malformed> {
        let stored: StoredOverride = record::decode(bytes)?;
        if let Some(number) = self.rules.number_of(rule) {
            let item = Override { stored, is_active: true };
            self.rules.change_overrides(number, |overrides| overrides.insert(item));
        }
        Ok(())
    }

    fn load_rule_set(&mut self, id: Position, bytes: &[u8]) -> Result<(), Malformed> {
        let stored: StoredRuleSet = record::decode(bytes)?;
        if stored.id != id || self.rules.sets.get(&stored.name).is_some() {
            return Err(Malformed);
        }
        self.rules.sets.insert(stored);
        Ok(())
    }

    /// All counters must be loaded before.
    fn load_lease(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        let lease: Lease = record::decode(bytes)?;
        self.counters.load_lease(&lease.key_values, lease.hits);
        match self.leases.insert(lease) {
            None => Ok(()),
            Some(_) => Err(Malformed),
        }
    }

    /// Replaces a stored record, or removes it. Returns false if that is not possible.
    pub(crate) fn amend(
        &mut self,
        key: ResidentKey<'_>,
        bytes: Option<&[u8]>,
        now: Time,
        timers: &mut Timers,
    ) -> Result<bool, Malformed> {
        self.last_taken_at = Some(now);
        match keys::parse(key).ok_or(Malformed)? {
            keys::Resident::Window(index) => {
                let is_amended = self.groups.amend(index, bytes)?;
                if !self.is_idle_timer_set {
                    self.set_idle_timer(now, key.namespace, timers);
                }
                Ok(is_amended)
            }
            keys::Resident::Counter(index) => {
                let Some(changes) = self.counters.amend(index, bytes)? else { return Ok(false) };
                changes.iter().for_each(|(key_values, change)| self.count(key_values, index, *change));
                Ok(true)
            }
            keys::Resident::Rule(_)
            | keys::Resident::Override { .. }
            | keys::Resident::Lease(_)
            | keys::Resident::RuleSet(_) => Ok(false),
        }
    }

    /// Sets the timers and counts all counters for the rules without windows. To be called after the last record.
    pub(crate) fn finish_load(&mut self, now: Time, id: NamespaceId, timers: &mut Timers) {
        self.set_lease_timers(id, timers);
        self.set_idle_timer(now, id, timers);
        self.last_taken_at = Some(now);
        let Limiter { rules, groups, counters, .. } = self;
        for (_, key_values, counter) in counters.iter_from(0) {
            rules.for_each_match(key_values, |rule, group| {
                if rule.terms().window.is_none() {
                    let total = counter.total() as i128;
                    count_for_rule(rule, key_values, group.as_bytes(), groups, total, |_| true);
                }
            });
        }
    }

    /// Sets the timers of the loaded leases.
    fn set_lease_timers(&self, namespace: NamespaceId, timers: &mut Timers) {
        for lease in self.leases.iter().filter(|lease| lease.operation_id.is_none()) {
            timers.set(lease.timer_key(namespace), lease.timer());
        }
    }

    /// Gives each lease at least its whole ttl from `now` on.
    pub(crate) fn apply_grace_period(&mut self, now: Time, namespace: NamespaceId, timers: &mut Timers) {
        for lease in self.leases.iter_mut().filter(|lease| lease.operation_id.is_none()) {
            timers.cancel(lease.timer_key(namespace));
            lease.expires_at = lease.expires_at.max(now.after(lease.ttl));
            timers.set(lease.timer_key(namespace), lease.timer());
        }
    }
}
