//! The audit: who has changed what, from where, and how it was before.
//!
//! Every management command leaves a record in the same batch as its change. Records are stored twice, by time and by
//! namespace, under keys of their own, so that they outlive their namespace. They are removed after
//! [`Options::audit_kept`](crate::Options).

use crate::{
    Listed, Millis, Name, Position, RequestId, Time,
    events::StreamInfo,
    key_values::KeyValues,
    ledger,
    limiter::{Counter, Lease, Override, Rule, RuleSetChanges, RuleSetInfo},
    locks::{GrantInfo, Lock, stored_locks},
    record::key,
};
use alloc::vec::Vec;
use bytes::Bytes;
use core::{cmp::Ordering, net::IpAddr, ops::Range};
use serde::{Deserialize, Serialize};

/// The largest encoded state that a record contains. A larger one is replaced by its size.
const MAX_STATE: usize = 16 << 10;

/// A management action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Action {
    /// Create a rule.
    CreateRule,
    /// Create or replace a rule.
    PutRule,
    /// Change parts of a rule.
    PatchRule,
    /// Delete a rule with its overrides.
    DeleteRule,
    /// Create an override.
    CreateOverride,
    /// Create or replace an override.
    PutOverride,
    /// Change parts of an override.
    PatchOverride,
    /// Delete an override.
    DeleteOverride,
    /// Create or replace a rule set.
    PutRuleSet,
    /// Delete a rule set with its rules.
    DeleteRuleSet,
    /// Set a counter.
    SetCounter,
    /// Release a lease without its session.
    ForceReleaseLease,
    /// Create a limit of the ledger.
    CreateLimit,
    /// Change parts of a limit of the ledger.
    PatchLimit,
    /// Delete a limit of the ledger.
    DeleteLimit,
    /// Create or change a stream.
    PutStream,
    /// Delete a stream.
    DeleteStream,
    /// Release a lock without its session.
    ForceReleaseLock,
    /// Delete the namespace.
    DeleteNamespace,
}

impl Action {
    /// The stable word for the action.
    pub fn word(self) -> &'static str {
        match self {
            Action::CreateRule => "create_rule",
            Action::PutRule => "put_rule",
            Action::PatchRule => "patch_rule",
            Action::DeleteRule => "delete_rule",
            Action::CreateOverride => "create_override",
            Action::PutOverride => "put_override",
            Action::PatchOverride => "patch_override",
            Action::DeleteOverride => "delete_override",
            Action::PutRuleSet => "put_rule_set",
            Action::DeleteRuleSet => "delete_rule_set",
            Action::SetCounter => "set_counter",
            Action::ForceReleaseLease => "force_release_lease",
            Action::CreateLimit => "create_limit",
            Action::PatchLimit => "patch_limit",
            Action::DeleteLimit => "delete_limit",
            Action::PutStream => "put_stream",
            Action::DeleteStream => "delete_stream",
            Action::ForceReleaseLock => "force_release_lock",
            Action::DeleteNamespace => "delete_namespace",
        }
    }

    /// Whether the action removes something that cannot be restored.
    pub fn is_destructive(self) -> bool {
        match self {
            Action::DeleteRule
            | Action::DeleteOverride
            | Action::DeleteRuleSet
            | Action::SetCounter
            | Action::ForceReleaseLease
            | Action::DeleteLimit
            | Action::DeleteStream
            | Action::ForceReleaseLock
            | Action::DeleteNamespace => true,
            Action::CreateRule
            | Action::PutRule
            | Action::PatchRule
            | Action::CreateOverride
            | Action::PutOverride
            | Action::PatchOverride
            | Action::PutRuleSet
            | Action::CreateLimit
            | Action::PatchLimit
            | Action::PutStream => false,
        }
    }
}

/// What an action changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Target {
    /// A rule.
    Rule(Name),
    /// An override.
    Override {
        /// The rule.
        rule: Name,
        /// The override.
        name: Name,
    },
    /// A counter.
    Counter(KeyValues),
    /// A lease, by its id.
    Lease(Name),
    /// A limit of the ledger.
    Limit(Name),
    /// A stream.
    Stream(Name),
    /// A grant of locks, by its id.
    Lock(Name),
    /// A rule set.
    RuleSet(Name),
    /// The namespace.
    Namespace,
}

/// The state of a target at one instant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum State {
    /// A rule.
    Rule(#[serde(with = "crate::record::answer")] Rule),
    /// An override.
    Override(#[serde(with = "crate::record::answer")] Override),
    /// A counter.
    Counter(#[serde(with = "crate::record::answer")] Counter),
    /// A lease.
    Lease(#[serde(with = "crate::record::answer")] Lease),
    /// A limit of the ledger.
    Limit(#[serde(with = "crate::record::answer")] ledger::Limit),
    /// A stream.
    Stream(StreamInfo),
    /// A grant of locks.
    Lock(AuditedGrant),
    /// A rule set without its rules.
    RuleSet(#[serde(with = "crate::record::answer")] RuleSetInfo),
    /// What a change of a rule set has changed.
    RuleSetChanges(#[serde(with = "crate::record::answer")] RuleSetChanges),
    /// How many rules a change of a rule set has changed. The audit has this in place of very many names.
    RuleSetCounts {
        /// Created rules.
        created: u64,
        /// Changed rules.
        changed: u64,
        /// Deleted rules.
        deleted: u64,
    },
    /// The state is too large for the audit.
    TooLarge {
        /// Its encoded size.
        bytes: u64,
    },
}

/// A grant of locks at one instant, as the audit stores it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AuditedGrant {
    id: Name,
    owner: Option<Name>,
    #[serde(with = "stored_locks")]
    locks: Vec<Lock>,
    ttl: Millis,
    granted_at: Time,
    expires_at: Time,
    fencing_token: Position,
    waiting: usize,
    operation_id: Option<Name>,
    now: Time,
}

impl AuditedGrant {
    pub(crate) fn new(now: Time, grant: GrantInfo) -> AuditedGrant {
        AuditedGrant {
            id: grant.lock_id,
            owner: grant.owner,
            locks: grant.locks,
            ttl: grant.ttl_ms,
            granted_at: Time(now.0.saturating_sub(grant.held_ms.0)),
            expires_at: now.after(grant.expires_in_ms),
            fencing_token: grant.fencing_token,
            waiting: grant.waiting,
            operation_id: grant.operation_id,
            now,
        }
    }

    /// The grant as it was.
    pub fn into_info(self) -> GrantInfo {
        GrantInfo {
            lock_id: self.id,
            operation_id: self.operation_id,
            owner: self.owner,
            locks: self.locks,
            held_ms: self.now.since(self.granted_at),
            expires_in_ms: self.expires_at.since(self.now),
            ttl_ms: self.ttl,
            fencing_token: self.fencing_token,
            waiting: self.waiting,
        }
    }
}

impl State {
    /// This state, or a summary if it is too large.
    pub(crate) fn bounded(self) -> State {
        let bytes = postcard::serialize_with_flavor(&self, postcard::ser_flavors::Size::default());
        match bytes.expect("counting bytes cannot fail, and all lengths are known") {
            ..=MAX_STATE => self,
            bytes => match self {
                State::RuleSetChanges(changes) => State::RuleSetCounts {
                    created: changes.created.len() as u64,
                    changed: changes.changed.len() as u64,
                    deleted: changes.deleted.len() as u64,
                },
                _ => State::TooLarge { bytes: bytes as u64 },
            },
        }
    }
}

/// A record of the audit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// When it was done.
    pub time: Time,
    /// Where it was done.
    pub namespace: Name,
    /// The position of the change. For the deletion of a namespace, that of the last change before it.
    pub position: Position,
    /// The name of the token. `None` without tokens, and for what the server does itself.
    pub actor: Option<Name>,
    /// The address from which the client's connection came.
    pub address: Option<IpAddr>,
    /// The id of the client's request. `None` for what the server does itself.
    pub request_id: Option<RequestId>,
    /// What was done.
    pub action: Action,
    /// The rule, limit, lock, … that the action is about.
    pub target: Target,
    /// How the target was before. `None` if it did not exist.
    pub before: Option<State>,
    /// How the target is since then. `None` if it no longer exists.
    pub after: Option<State>,
}

/// The place of a record in the audit: by time, then namespace, then position.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AuditCursor {
    /// The time of the record.
    pub time: Time,
    /// Its namespace.
    pub namespace: Name,
    /// Its position.
    pub position: Position,
    /// Whether the record is about the deletion of the namespace, which follows the last change at the same position.
    pub is_deletion: bool,
}

impl AuditCursor {
    /// The same place among the records of one namespace: behind all of them that are not behind this place.
    fn within(&self, namespace: &Name) -> AuditCursor {
        let (position, is_deletion) = match namespace.cmp(&self.namespace) {
            Ordering::Less => (Position(u64::MAX), true),
            Ordering::Equal => (self.position, self.is_deletion),
            Ordering::Greater => (Position(0), false),
        };
        AuditCursor { time: self.time, namespace: namespace.clone(), position, is_deletion }
    }
}

/// Merges parts of the audit that have no record in common and were read after the same place, into one page of at most this many.
pub fn merge(
    parts: impl IntoIterator<Item = Listed<AuditRecord, AuditCursor>>,
    limit: usize,
) -> Listed<AuditRecord, AuditCursor> {
    let (mut items, mut horizon) = (Vec::new(), None);
    for mut part in parts {
        items.append(&mut part.items);
        // There are more records behind this part. Those of other parts behind there come later.
        horizon = [horizon, part.next].into_iter().flatten().min();
    }
    items.sort_by_cached_key(AuditRecord::cursor);
    if let Some(horizon) = &horizon {
        items.retain(|item| item.cursor() <= *horizon);
    }
    let has_more = horizon.is_some() || items.len() > limit;
    items.truncate(limit);
    let next = items.last().map(AuditRecord::cursor).filter(|_| has_more);
    Listed { items, next }
}

impl AuditRecord {
    /// The place of this record.
    pub fn cursor(&self) -> AuditCursor {
        AuditCursor {
            time: self.time,
            namespace: self.namespace.clone(),
            position: self.position,
            is_deletion: self.action == Action::DeleteNamespace,
        }
    }

    /// The keys under which the record is stored.
    pub(crate) fn keys(&self) -> [Bytes; 2] {
        let cursor = self.cursor();
        [by_time(&cursor).into_bytes(), by_namespace(&cursor).into_bytes()]
    }
}

fn by_time(cursor: &AuditCursor) -> key::Key {
    let AuditCursor { time, namespace, position, is_deletion } = cursor;
    key::audit_by_time()
        .u64(time.0)
        .bytes(namespace.as_bytes())
        .bytes(&[0])
        .u64(position.0)
        .bytes(&[u8::from(*is_deletion)])
}

fn by_namespace(cursor: &AuditCursor) -> key::Key {
    let AuditCursor { time, namespace, position, is_deletion } = cursor;
    of_namespace(namespace).u64(time.0).u64(position.0).bytes(&[u8::from(*is_deletion)])
}

fn of_namespace(namespace: &Name) -> key::Key {
    key::audit_by_namespace().bytes(namespace.as_bytes()).bytes(&[0])
}

/// The range of the records after `after`: of one namespace, or of all.
pub(crate) fn range(namespace: Option<&Name>, after: Option<&AuditCursor>) -> Range<Bytes> {
    let behind = |key: key::Key| key.bytes(&[0]).into_bytes();
    match namespace {
        Some(namespace) => {
            let first = of_namespace(namespace);
            let after = after.map(|after| after.within(namespace));
            let from = after.map_or_else(|| first.clone().into_bytes(), |after| behind(by_namespace(&after)));
            from..key::audit_by_namespace().bytes(namespace.as_bytes()).bytes(&[1]).into_bytes()
        }
        None => {
            let first = key::audit_by_time();
            let from = after.map_or_else(|| first.into_bytes(), |after| behind(by_time(after)));
            from..key::audit_by_namespace().into_bytes()
        }
    }
}

/// The range of all records, by time, before this time.
pub(crate) fn before(time: Time) -> Range<Bytes> {
    key::audit_by_time().into_bytes()..key::audit_by_time().u64(time.0).into_bytes()
}

/// The key under which the record is stored by namespace, from its key by time. `None` if the key is another one.
pub(crate) fn twin(key: &[u8]) -> Option<Vec<u8>> {
    let rest = key.strip_prefix(&*key::audit_by_time())?;
    let (time, rest) = rest.split_first_chunk::<8>()?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    let (name, rest) = (&rest[..=end], &rest[end + 1..]);
    Some([&key::audit_by_namespace(), name, time, rest].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_the_order_of_cursors_and_find_each_other() {
        let cursor = |time, name: &str, position, is_deletion| AuditCursor {
            time: Time(time),
            namespace: Name::new(name).unwrap(),
            position: Position(position),
            is_deletion,
        };
        let key_of = |cursor: &AuditCursor| by_namespace(cursor).into_bytes();
        let cursors = [
            cursor(1, "b", 9, false),
            cursor(2, "a", 3, false),
            cursor(2, "a", 3, true),
            cursor(2, "a", 256, false),
            cursor(2, "a b", 1, false),
            cursor(2, "b", 1, false),
            cursor(300, "a", 4, false),
        ];
        assert!(cursors.is_sorted());
        assert!(cursors.windows(2).all(|pair| *by_time(&pair[0]) < *by_time(&pair[1])));
        for cursor in &cursors {
            assert_eq!(twin(&by_time(cursor)).as_deref(), Some(&*by_namespace(cursor)));
            assert_eq!(twin(&by_namespace(cursor)), None);
            let own = range(Some(&cursor.namespace), None);
            for other in &cursors {
                let key = by_namespace(other).into_bytes();
                assert_eq!(own.contains(&key), cursor.namespace == other.namespace);
                let after = range(None, Some(cursor)).contains(&by_time(other).into_bytes());
                assert_eq!(after, other > cursor);
                // A place that another namespace has is one in each namespace.
                let after = range(Some(&other.namespace), Some(cursor)).contains(&key_of(other));
                assert_eq!(after, other > cursor, "{other:?} after {cursor:?}");
                assert_eq!(
                    before(cursor.time).contains(&by_time(other).into_bytes()),
                    other.time < cursor.time
                );
            }
        }
    }
}
