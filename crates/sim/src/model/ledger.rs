//! The naive ledger: a log of everything that ever happened, summed up for every answer.

use super::{Bounds, Order};
use limina_engine::{
    Name, Position, Quota, Time,
    ledger::{
        self, AsOf, Change, EntryInfo, EntryKind, Finalization, FinalizationReply, Finish, HeldLimitInfo,
        Hold, HoldReply, HoldState, LimitInfo, NewLimit, OperationInfo, Patch, Refusal, Reply, Transfer,
        Value, ValuesReply,
    },
};

type Answer = Result<Reply, Refusal>;

/// The ledger of one namespace.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Ledger {
    bounds: Bounds,
    /// In the order of their creation.
    limits: Vec<Limit>,
    /// Everything that ever happened to a value.
    log: Vec<Event>,
    expiries: Vec<Expiry>,
}

#[derive(Debug, Clone, PartialEq)]
struct Limit {
    terms: NewLimit,
    created_at: u64,
}

/// A hold, or the end of one.
#[derive(Debug, Clone, PartialEq)]
struct Event {
    position: u64,
    time: u64,
    operation: Name,
    limit: Name,
    kind: EntryKind,
    /// The value that the entry shows.
    value: i64,
    /// The change of the sum of open holds, and of the committed sum.
    held: i128,
    committed: i128,
    expires_at: Option<u64>,
}

#[derive(Debug, Clone, PartialEq)]
struct Expiry {
    due: u64,
    position: u64,
    operation: Name,
}

/// The answer without those items of a batch that could not be read and were not executed.
pub(super) fn readable(answer: &Answer) -> Answer {
    match answer {
        Ok(Reply::Batch(results)) => {
            let read = results.iter().filter(|result| **result != Err(Refusal::Unreadable));
            Ok(Reply::Batch(read.cloned().collect()))
        }
        other => other.clone(),
    }
}

/// If both answers differ only in positions: the amounts by which the namespace's position may be larger than the model
/// assumed.
pub(super) fn shifts(order: Order, expected: &Answer, actual: &Answer) -> Vec<u64> {
    let shown = positions(actual);
    let pairs = positions(expected).into_iter().zip(shown.iter().copied());
    let difference =
        pairs.filter(|(expected, actual)| actual > expected).map(|(expected, actual)| actual - expected);
    // The answer shows values as of a position that, for the model, the namespace had not reached.
    let reached = shown.iter().max().and_then(|max| max.checked_sub(order.position));
    difference.take(1).chain(reached).collect()
}

fn positions(answer: &Answer) -> Vec<u64> {
    match answer {
        Ok(Reply::Limit(info)) => vec![info.created_at.0],
        Ok(Reply::Hold(reply)) => vec![reply.position.0],
        Ok(Reply::Finalization(reply)) => vec![reply.position.0],
        Ok(Reply::Values(reply)) => vec![reply.position.0],
        Ok(Reply::Batch(results)) => results.iter().flat_map(positions).collect(),
        Err(Refusal::PositionNotReached { current }) => vec![current.0],
        _ => Vec::new(),
    }
}

impl Ledger {
    pub(super) fn new(bounds: &Bounds) -> Ledger {
        Ledger { bounds: bounds.clone(), ..Ledger::default() }
    }

    /// The expected answer to the command at `now`, except for the items of a batch that `answer` says were not
    /// executed.
    pub(super) fn answer(
        &mut self,
        order: &mut Order,
        now: u64,
        command: &ledger::Command,
        answer: Option<&Answer>,
    ) -> Answer {
        if let (ledger::Command::Batch(transfers), Some(Ok(Reply::Batch(results)))) = (command, answer)
            && transfers.len() == results.len()
        {
            let all = transfers.iter().zip(results);
            let readable = all.filter(|(_, result)| **result != Err(Refusal::Unreadable));
            return Ok(Reply::Batch(
                readable.map(|(transfer, _)| self.transfer(order, now, transfer)).collect(),
            ));
        }
        self.command(order, now, command)
    }

    /// Rolls back every hold that is due by `now`, in due order.
    pub(super) fn expire(&mut self, order: &mut Order, now: u64) {
        self.expiries.sort_by_key(|expiry| (expiry.due, expiry.position));
        while self.expiries.first().is_some_and(|expiry| expiry.due <= now) {
            let expiry = self.expiries.remove(0);
            let ends: Vec<(Name, i64)> = self
                .open_holds(&expiry.operation)
                .into_iter()
                .filter(|hold| hold.position == expiry.position)
                .map(|hold| (hold.limit, 0))
                .collect();
            if !ends.is_empty() {
                self.end(order, expiry.due, &expiry.operation, &ends, EntryKind::Expiry);
            }
        }
    }

    fn command(&mut self, order: &mut Order, now: u64, command: &ledger::Command) -> Result<Reply, Refusal> {
        match command {
            ledger::Command::CreateLimit(new) => {
                if self.limit(&new.name).is_some() {
                    return Err(Refusal::DuplicateLimitName { limit_name: new.name.clone() });
                }
                self.check_quota(1)?;
                self.create(order, new.clone());
                Ok(Reply::Limit(self.info(&new.name)))
            }
            ledger::Command::PatchLimit { name, ceiling, context } => {
                self.must_exist([name])?;
                let terms = &mut self.limits.iter_mut().find(|l| l.terms.name == *name).unwrap().terms;
                let old = terms.clone();
                match ceiling {
                    Patch::Keep => {}
                    Patch::Remove => terms.ceiling = None,
                    Patch::Set(value) => terms.ceiling = Some(*value),
                }
                match context {
                    Patch::Keep => {}
                    Patch::Remove => terms.context = Default::default(),
                    Patch::Set(value) => terms.context = value.clone(),
                }
                if *terms != old {
                    order.advance();
                }
                Ok(Reply::Limit(self.info(name)))
            }
            ledger::Command::GetLimit(name) => {
                self.must_exist([name])?;
                Ok(Reply::Limit(self.info(name)))
            }
            ledger::Command::ListLimits(page) => {
                let mut names: Vec<Name> = self.limits.iter().map(|limit| limit.terms.name.clone()).collect();
                names.retain(|name| page.after.as_ref().is_none_or(|after| name > after));
                names.sort();
                let items = names.iter().take(page.limit()).map(|name| self.info(name)).collect();
                Ok(Reply::Limits { items, more: names.len() > page.limit() })
            }
            ledger::Command::Transfer(transfer) => self.transfer(order, now, transfer),
            ledger::Command::Batch(transfers) => Ok(Reply::Batch(
                transfers.iter().map(|transfer| self.transfer(order, now, transfer)).collect(),
            )),
            ledger::Command::Values(values) => {
                let (limit_names, as_of) = (values.limit_names(), values.as_of());
                self.must_exist(limit_names)?;
                let position = match as_of {
                    AsOf::Now => order.position,
                    AsOf::Position(position) if position.0 > order.position => {
                        return Err(Refusal::PositionNotReached { current: Position(order.position) });
                    }
                    AsOf::Position(position) => position.0,
                    AsOf::Operation(id) => self.view(id).ok_or_else(|| not_found(id, None, None))?,
                };
                let values = self.values(limit_names, position);
                Ok(Reply::Values(ValuesReply { position: Position(position), values }))
            }
            ledger::Command::GetOperation(id) => {
                self.view(id).ok_or_else(|| not_found(id, None, None))?;
                Ok(Reply::Operation(self.operation(id)))
            }
            ledger::Command::ListOperations { only_held, page } => {
                let mut ids: Vec<Name> = self.log.iter().map(|event| event.operation.clone()).collect();
                ids.sort();
                ids.dedup();
                ids.retain(|id| page.after.as_ref().is_none_or(|after| id > after));
                ids.retain(|id| !only_held || !self.open_holds(id).is_empty());
                let items: Vec<OperationInfo> =
                    ids.iter().take(page.limit()).map(|id| self.operation(id)).collect();
                let next = (ids.len() > page.limit()).then(|| ids[page.limit() - 1].clone());
                Ok(Reply::Operations { items, next })
            }
            ledger::Command::ListEntries { limit_name, page } => {
                self.must_exist([limit_name])?;
                let after = page.after.map(|after| after.0);
                let events = self.log.iter().filter(|event| event.limit == *limit_name);
                let events: Vec<&Event> =
                    events.filter(|event| after.is_none_or(|a| event.position > a)).collect();
                let entry = |event: &&Event| {
                    let value = self.value(limit_name, event.position);
                    EntryInfo {
                        position: Position(event.position),
                        time: Time(event.time),
                        operation_id: event.operation.clone(),
                        kind: event.kind,
                        value: event.value,
                        commit_value: value.commit_value,
                        hold_value: value.hold_value,
                    }
                };
                let items = events.iter().take(page.limit()).map(entry).collect();
                let next = (events.len() > page.limit()).then(|| Position(events[page.limit() - 1].position));
                Ok(Reply::Entries { items, next })
            }
        }
    }

    fn transfer(&mut self, order: &mut Order, now: u64, transfer: &Transfer) -> Result<Reply, Refusal> {
        match transfer {
            Transfer::Hold(hold) => self.hold(order, now, hold).map(Reply::Hold),
            Transfer::Finish(finalization) => self.finish(order, now, finalization).map(Reply::Finalization),
        }
    }

    fn hold(&mut self, order: &mut Order, now: u64, hold: &Hold) -> Result<HoldReply, Refusal> {
        let names: Vec<Name> = hold.changes().iter().map(|change| change.limit_name.clone()).collect();
        if !hold.create_missing() {
            self.must_exist(&names)?;
        }
        let operation_id = hold.operation_id().clone();
        let states: Vec<Option<HoldState>> =
            names.iter().map(|name| self.hold_in(&operation_id, name).map(|(_, state)| state)).collect();
        let with = |wanted: fn(&Option<HoldState>) -> bool| -> Vec<usize> {
            (0..names.len()).filter(|i| wanted(&states[*i])).collect()
        };
        let finished = with(|state| !matches!(state, None | Some(HoldState::Held)));
        if !finished.is_empty() {
            let limits = finished.iter().map(|i| (names[*i].clone(), states[*i].unwrap())).collect();
            return Err(Refusal::OperationAlreadyInFinalState { operation_id, limits });
        }
        let held: Vec<Name> =
            with(|state| *state == Some(HoldState::Held)).iter().map(|i| names[*i].clone()).collect();
        if !held.is_empty() && !hold.skip_existing_holds() {
            return Err(Refusal::DuplicateOperation { operation_id, limit_names: held });
        }
        let fresh = with(Option::is_none);
        if fresh.is_empty() {
            let position = self.view(&operation_id).unwrap();
            let values = self.values(&names, position);
            return Ok(HoldReply { operation_id, position: Position(position), values, skipped: held });
        }

        let mut exceeded = Vec::new();
        let mut overflowing = Vec::new();
        for change in fresh.iter().map(|i| &hold.changes()[*i]) {
            let (commit, up, down) = self.sums(&change.limit_name);
            let value = i128::from(change.value);
            let (up, down) = (up + value.max(0), down + value.min(0));
            let ceiling = self.limit(&change.limit_name).and_then(|limit| limit.terms.ceiling);
            let range = i128::from(i64::MIN)..=i128::from(i64::MAX);
            if let Some(ceiling) = ceiling
                && value > 0
                && commit + up > i128::from(ceiling)
            {
                exceeded.push((change.limit_name.clone(), ceiling));
            } else if [up, down, commit + up, commit + down].iter().any(|sum| !range.contains(sum)) {
                overflowing.push(change.limit_name.clone());
            }
        }
        if !exceeded.is_empty() {
            return Err(Refusal::LimitExceeded { limits: exceeded });
        }
        if !overflowing.is_empty() {
            return Err(Refusal::ValueOverflow { limit_names: overflowing });
        }

        self.check_quota(names.iter().filter(|name| self.limit(name).is_none()).count())?;
        for Change { limit_name, limit_id, context, .. } in hold.changes() {
            if self.limit(limit_name).is_none() {
                let (limit_id, context) = (limit_id.clone(), context.clone());
                self.create(order, NewLimit { name: limit_name.clone(), limit_id, context, ceiling: None });
            }
        }
        order.advance();
        let expires_at = hold.expires_after().map(|span| now + span.0);
        for change in fresh.iter().map(|i| &hold.changes()[*i]) {
            self.log.push(Event {
                position: order.position,
                time: now,
                operation: operation_id.clone(),
                limit: change.limit_name.clone(),
                kind: EntryKind::Hold,
                value: change.value,
                held: i128::from(change.value),
                committed: 0,
                expires_at,
            });
        }
        if let Some(due) = expires_at {
            self.expiries.push(Expiry { due, position: order.position, operation: operation_id.clone() });
        }
        let values = self.values(&names, order.position);
        Ok(HoldReply { operation_id, position: Position(order.position), values, skipped: held })
    }

    fn finish(
        &mut self,
        order: &mut Order,
        now: u64,
        request: &Finalization,
    ) -> Result<FinalizationReply, Refusal> {
        let id = request.operation_id();
        let kind = match request.finish() {
            Finish::Commit => EntryKind::Commit,
            Finish::Rollback => EntryKind::Rollback,
        };
        let reply = |this: &Ledger, names: &[Name], position: u64| FinalizationReply {
            operation_id: id.clone(),
            position: Position(position),
            values: this.values(names, position),
        };
        let is_commit = request.finish() == Finish::Commit;
        let Some(changes) = request.changes() else {
            self.view(id).ok_or_else(|| not_found(id, None, None))?;
            let open = self.open_holds(id);
            if !open.is_empty() {
                let ends: Vec<(Name, i64)> = open
                    .iter()
                    .map(|hold| (hold.limit.clone(), if is_commit { hold.value } else { 0 }))
                    .collect();
                let names: Vec<Name> = ends.iter().map(|(name, _)| name.clone()).collect();
                let position = self.end(order, now, id, &ends, kind);
                return Ok(reply(self, &names, position));
            }
            let holds: Vec<Event> = self.holds(id);
            let done: Vec<(Name, u64)> = holds
                .iter()
                .filter_map(|hold| match self.hold_in(id, &hold.limit).unwrap().1 {
                    HoldState::Committed { at, .. } if is_commit => Some((hold.limit.clone(), at.0)),
                    HoldState::RolledBack { at, .. } if !is_commit => Some((hold.limit.clone(), at.0)),
                    _ => None,
                })
                .collect();
            let Some(position) = done.iter().map(|(_, at)| *at).max() else {
                let state = self.hold_in(id, &holds[0].limit).map(|(_, state)| state);
                return Err(not_found(id, None, state));
            };
            let names: Vec<Name> =
                done.into_iter().filter(|(_, at)| *at == position).map(|(name, _)| name).collect();
            return Ok(reply(self, &names, position));
        };

        let names: Vec<Name> = changes.iter().map(|change| change.limit_name.clone()).collect();
        self.must_exist(&names)?;
        self.view(id).ok_or_else(|| not_found(id, None, None))?;
        let mut ends = Vec::new();
        let mut done = Vec::new();
        for change in changes {
            let name = &change.limit_name;
            let (hold, state) = self.hold_in(id, name).ok_or_else(|| not_found(id, Some(name), None))?;
            let value = if is_commit { change.value.unwrap_or(hold.value) } else { 0 };
            match state {
                HoldState::Held => ends.push((name.clone(), value, hold.value)),
                HoldState::Committed { value: committed, at } if is_commit && committed == value => {
                    done.push(at.0)
                }
                HoldState::RolledBack { at, .. } if !is_commit => done.push(at.0),
                other => return Err(not_found(id, Some(name), Some(other))),
            }
        }
        for (name, value, held) in &ends {
            let same_sign = value.signum() == held.signum() || *value == 0;
            if is_commit && !(same_sign && value.unsigned_abs() <= held.unsigned_abs()) {
                return Err(Refusal::CommitExceedsHold {
                    operation_id: id.clone(),
                    limit_name: name.clone(),
                    held: *held,
                    value: *value,
                });
            }
        }
        let position = if ends.is_empty() {
            done.into_iter().max().unwrap()
        } else {
            let ends: Vec<(Name, i64)> = ends.into_iter().map(|(name, value, _)| (name, value)).collect();
            self.end(order, now, id, &ends, kind)
        };
        Ok(reply(self, &names, position))
    }

    /// Ends the open holds in these limits, and commits the given amount of each.
    fn end(&mut self, order: &mut Order, time: u64, id: &Name, ends: &[(Name, i64)], kind: EntryKind) -> u64 {
        order.advance();
        for (name, committed) in ends {
            let (hold, _) = self.hold_in(id, name).unwrap();
            self.log.push(Event {
                position: order.position,
                time,
                operation: id.clone(),
                limit: name.clone(),
                kind,
                value: if kind == EntryKind::Commit { *committed } else { hold.value },
                held: -i128::from(hold.value),
                committed: i128::from(*committed),
                expires_at: None,
            });
        }
        order.position
    }

    fn check_quota(&self, more: usize) -> Result<(), Refusal> {
        match self.bounds.refuses(Quota::LedgerLimits, self.limits.len(), more) {
            Some(exceeded) => Err(Refusal::QuotaExceeded(exceeded)),
            None => Ok(()),
        }
    }

    fn create(&mut self, order: &mut Order, terms: NewLimit) {
        order.advance();
        self.limits.push(Limit { terms, created_at: order.position });
    }

    fn limit(&self, name: &Name) -> Option<&Limit> {
        self.limits.iter().find(|limit| limit.terms.name == *name)
    }

    fn must_exist<'n>(&self, names: impl IntoIterator<Item = &'n Name>) -> Result<(), Refusal> {
        let missing: Vec<Name> =
            names.into_iter().filter(|name| self.limit(name).is_none()).cloned().collect();
        if missing.is_empty() { Ok(()) } else { Err(Refusal::LimitNotFound { limit_names: missing }) }
    }

    /// The operation's hold events, in order.
    fn holds(&self, id: &Name) -> Vec<Event> {
        let events = self.log.iter().filter(|event| event.operation == *id && event.kind == EntryKind::Hold);
        events.cloned().collect()
    }

    fn open_holds(&self, id: &Name) -> Vec<Event> {
        let mut holds = self.holds(id);
        holds.retain(|hold| self.hold_in(id, &hold.limit).unwrap().1 == HoldState::Held);
        holds
    }

    /// The operation's hold in a limit, and its present state.
    fn hold_in(&self, id: &Name, limit: &Name) -> Option<(Event, HoldState)> {
        let mut events = self.log.iter().filter(|event| event.operation == *id && event.limit == *limit);
        let hold = events.next()?.clone();
        let state = match events.next() {
            None => HoldState::Held,
            Some(end) => {
                let at = Position(end.position);
                match end.kind {
                    EntryKind::Commit => HoldState::Committed { value: end.value, at },
                    kind => HoldState::RolledBack { at, expired: kind == EntryKind::Expiry },
                }
            }
        };
        assert!(events.next().is_none(), "a hold ends once");
        Some((hold, state))
    }

    fn view(&self, id: &Name) -> Option<u64> {
        self.holds(id).iter().map(|hold| hold.position).max()
    }

    /// The committed sum, and the sums of positive and of negative open holds.
    fn sums(&self, name: &Name) -> (i128, i128, i128) {
        let commit = self.log.iter().filter(|event| event.limit == *name).map(|event| event.committed).sum();
        let open: Vec<i128> = self
            .log
            .iter()
            .filter(|event| event.limit == *name && event.kind == EntryKind::Hold)
            .filter(|event| self.hold_in(&event.operation, name).unwrap().1 == HoldState::Held)
            .map(|event| event.held)
            .collect();
        (commit, open.iter().filter(|v| **v > 0).sum(), open.iter().filter(|v| **v < 0).sum())
    }

    fn value(&self, name: &Name, position: u64) -> Value {
        let events = || self.log.iter().filter(|event| event.limit == *name && event.position <= position);
        Value {
            limit_name: name.clone(),
            limit_id: self.limit(name).unwrap().terms.limit_id.clone(),
            commit_value: events().map(|event| event.committed).sum::<i128>().try_into().unwrap(),
            hold_value: events().map(|event| event.held).sum::<i128>().try_into().unwrap(),
        }
    }

    fn values(&self, names: &[Name], position: u64) -> Vec<Value> {
        names.iter().map(|name| self.value(name, position)).collect()
    }

    fn info(&self, name: &Name) -> LimitInfo {
        let limit = self.limit(name).unwrap();
        LimitInfo {
            value: self.value(name, u64::MAX),
            context: limit.terms.context.clone(),
            ceiling: limit.terms.ceiling,
            created_at: Position(limit.created_at),
        }
    }

    fn operation(&self, id: &Name) -> OperationInfo {
        let holds = self.holds(id).into_iter().map(|hold| HeldLimitInfo {
            limit_id: self.limit(&hold.limit).unwrap().terms.limit_id.clone(),
            value: hold.value,
            held_at: Position(hold.position),
            expires_at: hold.expires_at.map(Time),
            state: self.hold_in(id, &hold.limit).unwrap().1,
            limit_name: hold.limit,
        });
        OperationInfo {
            operation_id: id.clone(),
            position: Position(self.view(id).unwrap()),
            holds: holds.collect(),
        }
    }
}

fn not_found(id: &Name, limit_name: Option<&Name>, state: Option<HoldState>) -> Refusal {
    Refusal::OperationNotFound { operation_id: id.clone(), limit_name: limit_name.cloned(), state }
}
