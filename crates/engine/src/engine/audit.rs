//! Records management commands in the audit, and reads it.

use super::{Applied, Engine, namespace::Families};
use crate::{
    Caller, Command, Fetched, Listed, Missing, Name, Outcome, Page, Request, Time,
    audit::{self, Action, AuditCursor, AuditRecord, AuditedGrant, State, Target},
    events, ledger, limiter, locks,
    reads::{ReadError, Reader},
    record,
    turn::{BatchChanges, Turn},
};

/// The most records that one command reads. A front end collects parts until it has a page.
const PART: usize = 64;

/// A record of a command that is not done yet.
#[derive(Debug)]
pub(super) struct Draft {
    caller: Caller,
    action: Action,
    target: Target,
    before: Option<State>,
}

impl Draft {
    /// The record that the request will leave, if it is to be audited and changes something.
    pub(super) fn of(request: &Request, families: &Families, now: Time) -> Option<Draft> {
        let (action, target) = request.command.audited()?;
        let before = look(families, now, &target);
        Some(Draft { caller: request.caller.clone(), action, target, before })
    }

    /// The state in which an earlier change has left the target, if it is the same one.
    pub(super) fn follow(&mut self, target: &Target, after: Option<&State>) {
        if self.target == *target {
            self.before = after.cloned();
        }
    }

    /// Stores the record of a change that was made in this turn. Returns what it was about, and its state now.
    pub(super) fn store(
        self,
        turn: &mut Turn<'_>,
        families: &Families,
        outcome: &Outcome,
    ) -> (Target, Option<State>) {
        let Draft { caller: Caller { actor, address, request_id }, action, target, before } = self;
        let after = match outcome {
            Outcome::Limiter(Ok(
                limiter::Reply::RuleSetPut { changes, .. } | limiter::Reply::RuleSetDeleted(changes),
            )) => Some(State::RuleSetChanges(changes.clone()).bounded()),
            _ => look(families, turn.now, &target),
        };
        let (time, namespace, position) = (turn.now, turn.head.name.clone(), turn.head.position);
        let (kept_target, kept_after) = (target.clone(), look(families, turn.now, &target));
        let record = AuditRecord {
            time,
            namespace,
            position,
            actor,
            address,
            request_id,
            action,
            target,
            before,
            after,
        };
        store(turn.changes, &record);
        (kept_target, kept_after)
    }
}

/// Stores a record.
pub(super) fn store(changes: &mut BatchChanges, record: &AuditRecord) {
    for key in record.keys() {
        changes.writes.put(&key, record, true);
    }
    changes.has_audited = true;
}

/// The present state of the target. `None` if it does not exist.
fn look(families: &Families, now: Time, target: &Target) -> Option<State> {
    let Families { ledger, limiter, locks, events, decisions: _ } = families;
    let state = match target {
        Target::Rule(name) => State::Rule(limiter::find_rule(limiter, name)?),
        Target::Override { rule, name } => State::Override(limiter::find_override(limiter, rule, name)?),
        Target::Counter(key_values) => State::Counter(limiter::find_counter(limiter, key_values)?),
        Target::Lease(id) => State::Lease(limiter::find_lease(limiter, now, id)?),
        Target::Limit(name) => State::Limit(ledger::find_limit(ledger, name)?),
        Target::Stream(name) => State::Stream(events::find_stream(events, name)?),
        Target::Lock(id) => State::Lock(AuditedGrant::new(now, locks::find_grant(locks, now, id)?)),
        Target::RuleSet(name) => State::RuleSet(limiter::find_rule_set(limiter, name)?),
        Target::Namespace => return None,
    };
    Some(state.bounded())
}

impl Engine {
    /// A part of the audit: of one namespace, or of the whole shard.
    pub(super) fn list_audit(
        &self,
        namespace: Option<&Name>,
        page: &Page<AuditCursor>,
        fetched: &Fetched,
    ) -> Result<Applied, Missing> {
        let reader = Reader::new(&self.context.changes.writes, &self.context.sealed, fetched);
        let range = audit::range(namespace, page.after.as_ref());
        let scanned = match reader.scan(range.start, range.end, page.limit().min(PART)) {
            Ok(scanned) => scanned,
            Err(ReadError::NotFetched) => return Err(reader.into_missing()),
            Err(ReadError::Unreadable) => return Ok(Applied::durable(Outcome::Unreadable)),
        };
        let items: Result<_, _> =
            scanned.records.iter().map(|(_, bytes)| record::decode::<AuditRecord>(bytes)).collect();
        let Ok(items): Result<alloc::vec::Vec<AuditRecord>, _> = items else {
            return Ok(Applied::durable(Outcome::Unreadable));
        };
        let next = scanned.more_after.and_then(|_| items.last().map(AuditRecord::cursor));
        Ok(Applied::durable(Outcome::Audit(Listed { items, next })))
    }

    /// Removes what is older than the audit is kept, about once a day.
    pub(super) fn remove_old_audit(&mut self) {
        let kept = self.options.audit_kept;
        let now = self.meta.time;
        let is_due = |first: Time| first.after(kept).after(crate::Millis::DAY) <= now;
        if self.meta.first_audit.is_some_and(is_due) {
            let cutoff = Time(now.0.saturating_sub(kept.0));
            self.begin_sweep(audit::before(cutoff));
            self.meta.first_audit = Some(cutoff);
        }
    }
}

impl Command {
    /// What the command does and to what, if the audit records it.
    pub fn audited(&self) -> Option<(Action, Target)> {
        use limiter::Change;
        Some(match self {
            Command::DeleteNamespace => (Action::DeleteNamespace, Target::Namespace),
            Command::Ledger(ledger::Command::CreateLimit(new)) => {
                (Action::CreateLimit, Target::Limit(new.name.clone()))
            }
            Command::Ledger(ledger::Command::PatchLimit { name, .. }) => {
                (Action::PatchLimit, Target::Limit(name.clone()))
            }
            Command::Ledger(ledger::Command::DeleteLimit(name)) => {
                (Action::DeleteLimit, Target::Limit(name.clone()))
            }
            Command::Limiter(limiter::Command::ReleaseLease { id, session: None }) => {
                (Action::ForceReleaseLease, Target::Lease(id.clone()))
            }
            Command::Limiter(limiter::Command::SetCounter(change)) => {
                (Action::SetCounter, Target::Counter(change.key_values().clone()))
            }
            Command::Limiter(limiter::Command::Change(change)) => match &**change {
                Change::CreateRule(new) => (Action::CreateRule, Target::Rule(new.name.clone())),
                Change::PutRule(new) => (Action::PutRule, Target::Rule(new.name.clone())),
                Change::PatchRule { name, .. } => (Action::PatchRule, Target::Rule(name.clone())),
                Change::DeleteRule(name) => (Action::DeleteRule, Target::Rule(name.clone())),
                Change::CreateOverride { rule, new } => (Action::CreateOverride, of_rule(rule, &new.name)),
                Change::PutOverride { rule, new } => (Action::PutOverride, of_rule(rule, &new.name)),
                Change::PatchOverride { rule, name, .. } => (Action::PatchOverride, of_rule(rule, name)),
                Change::DeleteOverride { rule, name } => (Action::DeleteOverride, of_rule(rule, name)),
                Change::PutRuleSet { set, .. } => (Action::PutRuleSet, Target::RuleSet(set.clone())),
                Change::DeleteRuleSet { set, .. } => (Action::DeleteRuleSet, Target::RuleSet(set.clone())),
            },
            Command::Locks(locks::Command::Release { id, session: None }) => {
                (Action::ForceReleaseLock, Target::Lock(id.clone()))
            }
            Command::Events(events::Command::Put { name, .. }) => {
                (Action::PutStream, Target::Stream(name.clone()))
            }
            Command::Events(events::Command::Delete(name)) => {
                (Action::DeleteStream, Target::Stream(name.clone()))
            }
            Command::Ledger(_)
            | Command::Limiter(_)
            | Command::Locks(_)
            | Command::Events(_)
            | Command::Decisions(_)
            | Command::ListNamespaces(_)
            | Command::ListAudit(_)
            | Command::ListShardAudit(_) => return None,
        })
    }
}

fn of_rule(rule: &Name, name: &Name) -> Target {
    Target::Override { rule: rule.clone(), name: name.clone() }
}
