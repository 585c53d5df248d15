//! What the ring records of a refused request.

use super::{Refusals, RefusedRequest};
use limina_engine::{
    Command, KeyValues, Name, Outcome, Request, decisions, events,
    ledger::{self, Transfer},
    limiter::{self, Checked},
    locks,
};
use std::{
    borrow::Cow,
    time::{SystemTime, UNIX_EPOCH},
};

/// What a refusal of a request does not say itself. It is noted before the request is sent, so it must be cheap: names are
/// shared, not copied.
pub(crate) struct RefusalSubject {
    namespace: Name,
    details: Details,
}

enum Details {
    Operation(Name),
    /// The operations of a batch, in its order.
    Operations(Vec<Name>),
    /// The decisions of a batch, in its order. `None` for a dry run.
    Decisions(Vec<Option<Name>>),
    /// The indexes of the dry runs of a batch of checks, ascending.
    DryRuns(Vec<usize>),
    Stream(Name),
    Nothing,
}

impl RefusalSubject {
    /// `None` for a request that only reads, or that is a dry run: these are not recorded as refusals.
    pub(crate) fn of(request: &Request) -> Option<RefusalSubject> {
        if !request.is_write() || request.command.is_dry_run() {
            return None;
        }
        let details = match &request.command {
            Command::Ledger(ledger::Command::Transfer(transfer)) => {
                Details::Operation(transfer.operation_id().clone())
            }
            Command::Ledger(ledger::Command::Extend(extend)) => {
                Details::Operation(extend.operation_id.clone())
            }
            Command::Ledger(ledger::Command::Batch(transfers)) => {
                Details::Operations(transfers.iter().map(Transfer::operation_id).cloned().collect())
            }
            Command::Limiter(limiter::Command::CheckBatch(checks)) => {
                let dry_runs = checks.iter().enumerate().filter(|(_, check)| check.dry_run());
                Details::DryRuns(dry_runs.map(|(index, _)| index).collect())
            }
            Command::Decisions(command) => match command {
                decisions::Command::Decide(request) => {
                    Details::Operation(request.wanted.operation_id().clone())
                }
                decisions::Command::Settle(settle) => Details::Operation(settle.operation_id.clone()),
                decisions::Command::Rollback(id) | decisions::Command::Heartbeat(id) => {
                    Details::Operation(id.clone())
                }
                decisions::Command::Batch(items) => {
                    let id = |item: &decisions::BatchItem| match item {
                        decisions::BatchItem::Decide(request) if request.wanted.dry_run() => None,
                        item => Some(item.operation_id().clone()),
                    };
                    Details::Decisions(items.iter().map(id).collect())
                }
                decisions::Command::Abandon { .. }
                | decisions::Command::Get(_)
                | decisions::Command::List { .. } => return None,
            },
            Command::Events(events::Command::Submit(submit)) => Details::Stream(submit.stream().clone()),
            Command::Locks(locks::Command::Abandon(_)) => return None,
            _ => Details::Nothing,
        };
        Some(RefusalSubject { namespace: request.namespace.clone(), details })
    }

    fn refused(&self, family: &'static str, code: &'static str) -> RefusedRequest {
        let operation_id = match &self.details {
            Details::Operation(id) => Some(id.clone()),
            _ => None,
        };
        let stream = match &self.details {
            Details::Stream(stream) => Some(stream.clone()),
            _ => None,
        };
        RefusedRequest {
            time: now(),
            namespace: self.namespace.clone(),
            family: Cow::Borrowed(family),
            code: Cow::Borrowed(code),
            rule: None,
            limit_name: None,
            stream,
            key_values: None,
            operation_id,
        }
    }
}

/// Milliseconds since the epoch. A clock before 1970 reads as 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

impl Refusals {
    /// Records what the outcome refuses, if it refuses anything.
    pub(crate) fn record(&self, subject: &RefusalSubject, outcome: &Outcome) {
        match outcome {
            Outcome::Limiter(Err(refusal)) => self.record_one(limited(subject, refusal)),
            Outcome::Limiter(Ok(limiter::Reply::Set(decision))) if !decision.allowed => {
                self.record_one(reached(subject, decision));
            }
            Outcome::Limiter(Ok(limiter::Reply::Batch(results))) => {
                let is_dry_run = |index: usize| match &subject.details {
                    Details::DryRuns(indexes) => indexes.binary_search(&index).is_ok(),
                    _ => false,
                };
                let refused = results.iter().enumerate().filter_map(|(index, result)| match result {
                    _ if is_dry_run(index) => None,
                    Ok(decision) if !decision.is_refused() => None,
                    Ok(decision) => Some(reached(subject, decision)),
                    Err(refusal) => Some(limited(subject, refusal)),
                });
                self.record_all(refused);
            }
            Outcome::Ledger(Err(refusal)) => self.record_one(held_back(subject, None, refusal)),
            Outcome::Ledger(Ok(ledger::Reply::Batch(results))) => {
                let operation = |index: usize| match &subject.details {
                    Details::Operations(ids) => ids.get(index).cloned(),
                    _ => None,
                };
                let refused = results.iter().enumerate().filter_map(|(index, result)| {
                    result.as_ref().err().map(|refusal| held_back(subject, operation(index), refusal))
                });
                self.record_all(refused);
            }
            Outcome::Locks(Err(refusal)) => {
                let key_values = match refusal {
                    locks::Refusal::LockHeld(blocked) | locks::Refusal::LockWaitTimeout(blocked) => {
                        Some(blocked.key_values.clone())
                    }
                    locks::Refusal::LockNotFound { .. }
                    | locks::Refusal::SessionMismatch { .. }
                    | locks::Refusal::PartOfOperation { .. }
                    | locks::Refusal::QuotaExceeded(_) => None,
                };
                let refused = RefusedRequest { key_values, ..subject.refused("locks", refusal.code()) };
                self.record_one(match refusal {
                    locks::Refusal::PartOfOperation { operation_id, .. } => refused.about(operation_id),
                    _ => refused,
                });
            }
            Outcome::Decisions(Err(refusal)) => self.record_one(not_decided(subject, None, refusal)),
            Outcome::Decisions(Ok(decisions::Reply::Batch(results))) => {
                let Details::Decisions(ids) = &subject.details else { return };
                let refused = ids.iter().zip(results).filter_map(|(id, result)| {
                    let refusal = result.as_ref().err()?;
                    Some(not_decided(subject, Some(id.clone()?), refusal))
                });
                self.record_all(refused);
            }
            Outcome::Events(Err(refusal)) => self.record_one(subject.refused("events", refusal.code())),
            // A request that succeeded, or that no family has refused.
            _ => {}
        }
    }

    fn record_one(&self, refused: RefusedRequest) {
        self.push(refused);
        self.news.notify_waiters();
    }

    fn record_all(&self, refused: impl Iterator<Item = RefusedRequest>) {
        let mut any = false;
        for refused in refused {
            self.push(refused);
            any = true;
        }
        if any {
            self.news.notify_waiters();
        }
    }
}

fn limited(subject: &RefusalSubject, refusal: &limiter::Refusal) -> RefusedRequest {
    match refusal {
        limiter::Refusal::LimitReached(decision) => reached(subject, decision),
        limiter::Refusal::PartOfOperation { operation_id, .. } => {
            subject.refused("limiter", refusal.code()).about(operation_id)
        }
        limiter::Refusal::NoRuleApplies { key_values } => RefusedRequest {
            key_values: Some(key_values.clone()),
            ..subject.refused("limiter", refusal.code())
        },
        other => subject.refused("limiter", other.code()),
    }
}

/// The first limit that refused the check.
fn reached(subject: &RefusalSubject, decision: &Checked) -> RefusedRequest {
    let refuses = decision.limits.iter().find(|limit| limit.refuses());
    let rule: Option<Name> = refuses.and_then(|limit| limit.rule.clone());
    let key_values: Option<KeyValues> = refuses.map(|limit| limit.group.clone());
    RefusedRequest { rule, key_values, ..subject.refused("limiter", "LimitReached") }
}

/// `operation` is that of an item of a batch.
fn held_back(subject: &RefusalSubject, operation: Option<Name>, refusal: &ledger::Refusal) -> RefusedRequest {
    use ledger::Refusal::*;
    let limit_name = match refusal {
        DuplicateLimitName { limit_name }
        | CommitExceedsHold { limit_name, .. }
        | LimitInUse { limit_name, .. } => Some(limit_name),
        LimitNotFound { limit_names } | ValueOverflow { limit_names } => limit_names.first(),
        OperationNotFound { limit_name, .. } => limit_name.as_ref(),
        OperationAlreadyInFinalState { limits, .. } => limits.first().map(|(name, _)| name),
        DuplicateOperation { limits, .. } => limits.first().map(|(name, _)| name),
        LimitExceeded { limits } => limits.first().map(|limit| &limit.limit_name),
        OperationTooLarge { .. }
        | PartOfOperation { .. }
        | PositionNotReached { .. }
        | LimitsValuesReadingException
        | Unreadable
        | QuotaExceeded(_) => None,
    };
    let refused = subject.refused("ledger", refusal.code());
    let operation_id = operation.or(refused.operation_id);
    RefusedRequest { limit_name: limit_name.cloned(), operation_id, ..refused }
}

/// The first rule, limit or lock that refused the decision. `operation` is that of an item of a batch.
fn not_decided(
    subject: &RefusalSubject,
    operation: Option<Name>,
    refusal: &decisions::Refusal,
) -> RefusedRequest {
    use decisions::Refusal::*;
    let refused = subject.refused("decisions", refusal.code());
    let operation_id = operation.or(refused.operation_id);
    let refused = RefusedRequest { operation_id, ..refused };
    match refusal {
        Refused(parts) => {
            let limit = parts.limits.iter().find(|limit| limit.refuses).map(|limit| &limit.status);
            let lock = || parts.locks.first().map(|lock| lock.key_values.clone());
            RefusedRequest {
                rule: limit.and_then(|limit| limit.rule.clone()),
                key_values: limit.map(|limit| limit.group.clone()).or_else(lock),
                limit_name: parts.holds.first().map(|hold| match &hold.refused {
                    ledger::RefusedHold::LimitExceeded(limit) => limit.limit_name.clone(),
                    ledger::RefusedHold::ValueOverflow { limit_name, .. } => limit_name.clone(),
                }),
                ..refused
            }
        }
        LimitNotFound { limit_names } | ValueOverflow { limit_names } => {
            RefusedRequest { limit_name: limit_names.first().cloned(), ..refused }
        }
        CommitExceedsHold { limit_name, .. } | NotHeld { limit_name } => {
            RefusedRequest { limit_name: Some(limit_name.clone()), ..refused }
        }
        StreamNotFound { stream } => RefusedRequest { stream: Some(stream.clone()), ..refused },
        NoRuleApplies { key_values } => RefusedRequest { key_values: Some(key_values.clone()), ..refused },
        OperationReused { .. }
        | OperationWaits { .. }
        | OperationAlreadyInFinalState { .. }
        | OperationNotFound { .. }
        | NotEstimated { .. }
        | AnswerTooLarge { .. }
        | Unreadable
        | QuotaExceeded(_) => refused,
    }
}
