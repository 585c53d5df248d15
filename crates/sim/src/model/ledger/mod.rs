//! The naive ledger: a log of everything that ever happened, summed up for every answer.

mod parts;

pub(super) use parts::is_within;

use super::{Bounds, Order, pages::page_of};
use limina_engine::{Listed, Page};
use limina_engine::{
    Millis, Name, Position, Time,
    ledger::{
        self, AsOf, Change, Entry, EntryType, ExceededLimit, Extend, Finalization, FinalizationReply, Finish,
        Hold, HoldReply, HoldState, LimitValue, NewLimit, Operation, OperationFilter, OperationHold, Patch,
        Refusal, RefusedHold, Reply, State, Transfer, ValuesReply,
    },
};
use std::{cmp::Ordering, collections::BTreeMap};

type Answer = Result<Reply, Refusal>;

/// The ledger of one namespace.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Ledger {
    bounds: Bounds,
    /// Every limit that ever was, in the order of their creation.
    limits: Vec<Limit>,
    /// Everything that ever happened to a value.
    log: Vec<Event>,
    expiries: Vec<Expiry>,
    /// The ids of open and waiting decisions, each with when it expires.
    reserved: BTreeMap<Name, u64>,
}

#[derive(Debug, Clone, PartialEq)]
struct Limit {
    terms: NewLimit,
    created_at: u64,
    is_deleted: bool,
}

/// A limit's place in the list of all limits. A name may belong to several of them, one after the other.
type LimitId = usize;

/// A hold, or the end of one.
#[derive(Debug, Clone, PartialEq)]
struct Event {
    position: u64,
    time: u64,
    operation: Name,
    limit: LimitId,
    kind: EntryType,
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
        Ok(Reply::Limit(info)) => vec![info.created_position.0],
        Ok(Reply::Hold(reply)) => vec![reply.position.0],
        Ok(Reply::Finalization(reply)) => vec![reply.position.0],
        Ok(Reply::Values(reply)) => vec![reply.position.0],
        Err(Refusal::PositionNotReached { current }) => vec![current.0],
        _ => Vec::new(),
    }
}

impl Ledger {
    pub(super) fn new(bounds: &Bounds) -> Ledger {
        Ledger { bounds: bounds.clone(), ..Ledger::default() }
    }

    /// The expected answer to the command at `now`. A list is returned as far as `answer` covers it.
    pub(super) fn answer(
        &mut self,
        order: &mut Order,
        now: u64,
        command: &ledger::Command,
        answer: &Answer,
    ) -> Answer {
        match (command, answer) {
            (ledger::Command::ListOperations { filter, page }, Ok(Reply::Operations(shown))) => {
                self.operations(now, filter, page, shown)
            }
            (ledger::Command::ListLimitsByUse(page), Ok(Reply::LimitsByUse(shown))) => {
                Ok(self.limits_by_use(page, shown))
            }
            _ => self.command(order, now, command),
        }
    }

    /// When the next hold expires.
    pub(in crate::model) fn next_due(&self) -> Option<u64> {
        self.next_expiry().map(|expiry| expiry.due)
    }

    fn next_expiry(&self) -> Option<&Expiry> {
        let is_open = |expiry: &&Expiry| !self.expiring(expiry).is_empty();
        self.expiries.iter().filter(is_open).min_by_key(|expiry| (expiry.due, expiry.position))
    }

    /// Rolls back the holds that are due next.
    pub(in crate::model) fn expire_next(&mut self, order: &mut Order) {
        let Some(expiry) = self.next_expiry().cloned() else { return };
        let ends = self.expiring(&expiry);
        self.end(order, expiry.due, &expiry.operation, &ends, EntryType::Expiry);
    }

    /// The limits in which this ends holds.
    fn expiring(&self, expiry: &Expiry) -> Vec<(LimitId, i64)> {
        let mut holds = self.open_holds(&expiry.operation);
        holds.retain(|hold| hold.position == expiry.position);
        holds.into_iter().map(|hold| (hold.limit, 0)).collect()
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
            ledger::Command::PatchLimit { name, patch } => {
                self.must_exist([name])?;
                let id = self.id(name).unwrap();
                let terms = &mut self.limits[id].terms;
                let old = terms.clone();
                match &patch.ceiling {
                    Patch::Keep => {}
                    Patch::Remove => terms.ceiling = None,
                    Patch::Set(value) => terms.ceiling = Some(*value),
                }
                match &patch.context {
                    Patch::Keep => {}
                    Patch::Remove => terms.context = Default::default(),
                    Patch::Set(value) => terms.context = value.clone(),
                }
                if *terms != old {
                    order.advance();
                }
                Ok(Reply::Limit(self.info(name)))
            }
            ledger::Command::DeleteLimit(name) => {
                self.must_exist([name])?;
                let id = self.id(name).unwrap();
                let open = self.log.iter().filter(|event| event.limit == id && event.kind == EntryType::Hold);
                let open = open.filter(|hold| self.state_of(hold) == HoldState::Held).count() as u64;
                if open > 0 {
                    return Err(Refusal::LimitInUse { limit_name: name.clone(), open_holds: open });
                }
                order.advance();
                self.limits[id].is_deleted = true;
                Ok(Reply::LimitDeleted)
            }
            ledger::Command::Extend(extend) => self.extend(order, now, extend),
            ledger::Command::GetLimit(name) => {
                self.must_exist([name])?;
                Ok(Reply::Limit(self.info(name)))
            }
            ledger::Command::ListLimits(page) => {
                let names = self.names_after(page.after.as_ref());
                let items = names.iter().take(page.limit()).map(|name| self.info(name)).collect();
                let next = (names.len() > page.limit()).then(|| names[page.limit() - 1].clone());
                Ok(Reply::Limits(Listed { items, next }))
            }
            ledger::Command::Transfer(transfer) => self.transfer(order, now, transfer),
            ledger::Command::Batch(_) => unreachable!("a batch is executed item by item"),
            ledger::Command::Values(values) => {
                let (limit_names, as_of) = (&values.limit_names, values.as_of());
                self.must_exist(limit_names)?;
                let position = match as_of {
                    AsOf::Now => order.position,
                    AsOf::Position(position) if position.0 > order.position => {
                        return Err(Refusal::PositionNotReached { current: Position(order.position) });
                    }
                    AsOf::Position(position) => position.0,
                    AsOf::Operation(id) => self.view(&id).ok_or_else(|| not_found(&id, None, None))?,
                };
                let values = self.values(&self.ids(limit_names), position);
                Ok(Reply::Values(ValuesReply { position: Position(position), values }))
            }
            ledger::Command::GetOperation(id) => {
                self.view(id).ok_or_else(|| not_found(id, None, None))?;
                Ok(Reply::Operation(self.operation(now, id)))
            }
            // The answer decides how far a list goes: `operations` and `limits_by_use` check it.
            ledger::Command::ListOperations { filter, page } => {
                self.operations(now, filter, page, &Listed { items: Vec::new(), next: None })
            }
            ledger::Command::ListLimitsByUse(page) => {
                Ok(self.limits_by_use(page, &Listed { items: Vec::new(), next: None }))
            }
            ledger::Command::ListEntries { limit_name, page } => {
                self.must_exist([limit_name])?;
                let after = page.after.map(|after| after.0);
                let id = self.id(limit_name).unwrap();
                let events = self.log.iter().filter(|event| event.limit == id);
                let events: Vec<&Event> =
                    events.filter(|event| after.is_none_or(|a| event.position > a)).collect();
                let entry = |event: &&Event| {
                    let value = self.value(id, event.position);
                    Entry {
                        position: Position(event.position),
                        time: Time(event.time),
                        operation_id: event.operation.clone(),
                        kind: event.kind,
                        value: event.value,
                        commit_value: value.commit_value,
                        hold_value: value.hold_value,
                        total_value: value.total_value,
                    }
                };
                let items = events.iter().take(page.limit()).map(entry).collect();
                let next = (events.len() > page.limit()).then(|| Position(events[page.limit() - 1].position));
                Ok(Reply::Entries(Listed { items, next }))
            }
        }
    }

    fn transfer(&mut self, order: &mut Order, now: u64, transfer: &Transfer) -> Result<Reply, Refusal> {
        let id = transfer.operation_id();
        if self.reserved.contains_key(id) {
            return Err(Refusal::PartOfOperation { operation_id: id.clone() });
        }
        match transfer {
            Transfer::Hold(hold) => self.hold(order, now, hold).map(Reply::Hold),
            Transfer::Finish(finish, request) => {
                self.finish(order, now, *finish, request).map(Reply::Finalization)
            }
        }
    }

    fn hold(&mut self, order: &mut Order, now: u64, hold: &Hold) -> Result<HoldReply, Refusal> {
        let names: Vec<Name> = hold.changes.iter().map(|change| change.limit_name.clone()).collect();
        if !hold.create_missing {
            self.must_exist(&names)?;
        }
        let operation_id = hold.operation_id.clone();
        let held: Vec<Option<(i64, HoldState)>> = names
            .iter()
            .map(|name| self.hold_in(&operation_id, self.id(name)?))
            .map(|held| held.map(|(event, state)| (event.value, state)))
            .collect();
        let with = |wanted: &dyn Fn(i64, Option<(i64, HoldState)>) -> bool| -> Vec<usize> {
            let changes = hold.changes.iter().zip(&held).enumerate();
            changes.filter(|(_, (change, held))| wanted(change.value, **held)).map(|(i, _)| i).collect()
        };
        let finished = with(&|_, held| held.is_some_and(|(_, state)| state != HoldState::Held));
        if !finished.is_empty() {
            let limits = finished.iter().map(|i| (names[*i].clone(), held[*i].unwrap().1)).collect();
            return Err(Refusal::OperationAlreadyInFinalState { operation_id, limits });
        }
        let is_same = |value, held: Option<(i64, HoldState)>| held.is_some_and(|(held, _)| held == value);
        let skipped = with(&|value, held| hold.skip_existing_holds && is_same(value, held));
        let duplicates: Vec<usize> =
            with(&|_, held| held.is_some()).into_iter().filter(|i| !skipped.contains(i)).collect();
        if !duplicates.is_empty() {
            let limits = duplicates.iter().map(|i| (names[*i].clone(), held[*i].unwrap().0)).collect();
            return Err(Refusal::DuplicateOperation { operation_id, limits });
        }
        let skipped: Vec<Name> = skipped.into_iter().map(|i| names[i].clone()).collect();
        let fresh = with(&|_, held| held.is_none());
        if fresh.is_empty() {
            let position = self.view(&operation_id).unwrap();
            let values = self.values(&self.ids(&names), position);
            return Ok(HoldReply { operation_id, position: Position(position), values, skipped });
        }

        let mut exceeded = Vec::new();
        let mut overflowing = Vec::new();
        for change in fresh.iter().map(|i| &hold.changes[*i]) {
            match self.refused(change) {
                Some(RefusedHold::LimitExceeded(limit)) => exceeded.push(limit),
                Some(RefusedHold::ValueOverflow { limit_name, .. }) => overflowing.push(limit_name),
                None => {}
            }
        }
        if !exceeded.is_empty() {
            return Err(Refusal::LimitExceeded { limits: exceeded });
        }
        if !overflowing.is_empty() {
            return Err(Refusal::ValueOverflow { limit_names: overflowing });
        }

        let fresh: Vec<Change> = fresh.iter().map(|i| hold.changes[*i].clone()).collect();
        self.check_quota(self.missing(&fresh).len())?;
        let expires_at = hold.expires_after().map(|span| now + span.0);
        self.hold_all(order, now, &operation_id, &fresh, expires_at);
        if let Some(due) = expires_at {
            self.expiries.push(Expiry { due, position: order.position, operation: operation_id.clone() });
        }
        let values = self.values(&self.ids(&names), order.position);
        Ok(HoldReply { operation_id, position: Position(order.position), values, skipped })
    }

    fn extend(&mut self, order: &mut Order, now: u64, request: &Extend) -> Result<Reply, Refusal> {
        let id = &request.operation_id;
        self.view(id).ok_or_else(|| not_found(id, None, None))?;
        let open = self.open_holds(id);
        if open.is_empty() {
            return Err(not_found(id, None, Some(self.state_of(&self.holds(id)[0]))));
        }
        let expires_at = request.expires_after().map(|span| now + span.0);
        if open.iter().any(|hold| hold.expires_at != expires_at) {
            order.advance();
        }
        for hold in open {
            let is_it = |event: &&mut Event| {
                event.kind == EntryType::Hold && event.operation == *id && event.limit == hold.limit
            };
            self.log.iter_mut().find(is_it).unwrap().expires_at = expires_at;
            self.expiries.retain(|expiry| expiry.position != hold.position);
            if let Some(due) = expires_at {
                self.expiries.push(Expiry { due, position: hold.position, operation: id.clone() });
            }
        }
        Ok(Reply::Operation(self.operation(now, id)))
    }

    fn finish(
        &mut self,
        order: &mut Order,
        now: u64,
        finish: Finish,
        request: &Finalization,
    ) -> Result<FinalizationReply, Refusal> {
        let id = &request.operation_id;
        let kind = match finish {
            Finish::Commit => EntryType::Commit,
            Finish::Rollback => EntryType::Rollback,
        };
        let reply = |this: &Ledger, limits: &[LimitId], position: u64| FinalizationReply {
            operation_id: id.clone(),
            position: Position(position),
            values: this.values(limits, position),
        };
        let is_commit = finish == Finish::Commit;
        let Some(changes) = &request.changes else {
            self.view(id).ok_or_else(|| not_found(id, None, None))?;
            let open = self.open_holds(id);
            if !open.is_empty() {
                let ends: Vec<(LimitId, i64)> =
                    open.iter().map(|hold| (hold.limit, if is_commit { hold.value } else { 0 })).collect();
                let limits: Vec<LimitId> = ends.iter().map(|(limit, _)| *limit).collect();
                let position = self.end(order, now, id, &ends, kind);
                return Ok(reply(self, &limits, position));
            }
            let holds: Vec<Event> = self.holds(id);
            let done: Vec<(LimitId, u64)> = holds
                .iter()
                .filter_map(|hold| match self.state_of(hold) {
                    HoldState::Committed { at, .. } if is_commit => Some((hold.limit, at.0)),
                    HoldState::RolledBack { at, .. } if !is_commit => Some((hold.limit, at.0)),
                    _ => None,
                })
                .collect();
            let Some(position) = done.iter().map(|(_, at)| *at).max() else {
                return Err(not_found(id, None, Some(self.state_of(&holds[0]))));
            };
            let limits: Vec<LimitId> = done
                .into_iter()
                .filter(|(limit, at)| *at == position && !self.limits[*limit].is_deleted)
                .map(|(limit, _)| limit)
                .collect();
            return Ok(reply(self, &limits, position));
        };

        let names: Vec<Name> = changes.iter().map(|change| change.limit_name.clone()).collect();
        self.must_exist(&names)?;
        self.view(id).ok_or_else(|| not_found(id, None, None))?;
        let mut ends = Vec::new();
        let mut done = Vec::new();
        for change in changes {
            let name = &change.limit_name;
            let limit = self.id(name).unwrap();
            let (hold, state) = self.hold_in(id, limit).ok_or_else(|| not_found(id, Some(name), None))?;
            let value = if is_commit { change.value.unwrap_or(hold.value) } else { 0 };
            match state {
                HoldState::Held => ends.push((limit, value, hold.value)),
                HoldState::Committed { value: committed, at } if is_commit && committed == value => {
                    done.push(at.0)
                }
                HoldState::RolledBack { at, .. } if !is_commit => done.push(at.0),
                other => return Err(not_found(id, Some(name), Some(other))),
            }
        }
        for (limit, value, held) in &ends {
            if is_commit && !is_within(*value, *held) {
                return Err(Refusal::CommitExceedsHold {
                    operation_id: id.clone(),
                    limit_name: self.limits[*limit].terms.name.clone(),
                    held: *held,
                    value: *value,
                });
            }
        }
        let position = if ends.is_empty() {
            done.into_iter().max().unwrap()
        } else {
            let ends: Vec<(LimitId, i64)> =
                ends.into_iter().map(|(limit, value, _)| (limit, value)).collect();
            self.end(order, now, id, &ends, kind)
        };
        Ok(reply(self, &self.ids(&names), position))
    }

    /// Creates the limits that are missing, and holds at the position after theirs.
    fn hold_all(
        &mut self,
        order: &mut Order,
        now: u64,
        id: &Name,
        changes: &[Change],
        expires_at: Option<u64>,
    ) {
        for change in changes {
            if self.limit(&change.limit_name).is_none() {
                let Change { limit_name, limit_id, context, ceiling, .. } = change.clone();
                self.create(order, NewLimit { limit_id, context, ceiling, ..NewLimit::new(limit_name) });
            }
        }
        order.advance();
        for change in changes {
            self.log.push(Event {
                position: order.position,
                time: now,
                operation: id.clone(),
                limit: self.id(&change.limit_name).expect("it exists or was just created"),
                kind: EntryType::Hold,
                value: change.value,
                held: i128::from(change.value),
                committed: 0,
                expires_at,
            });
        }
    }

    /// Ends the open holds in these limits, and commits the given amount of each.
    fn end(
        &mut self,
        order: &mut Order,
        time: u64,
        id: &Name,
        ends: &[(LimitId, i64)],
        kind: EntryType,
    ) -> u64 {
        order.advance();
        for (limit, committed) in ends {
            let (hold, _) = self.hold_in(id, *limit).unwrap();
            let is_commit = kind == EntryType::Commit;
            let is_over = is_commit && !is_within(*committed, hold.value);
            self.log.push(Event {
                position: order.position,
                time,
                kind: if is_over { EntryType::Overage } else { kind },
                value: if is_commit { *committed } else { hold.value },
                held: -i128::from(hold.value),
                committed: i128::from(*committed),
                expires_at: None,
                ..hold
            });
        }
        order.position
    }

    fn check_quota(&self, more: usize) -> Result<(), Refusal> {
        self.exceeded(more).map_or(Ok(()), |exceeded| Err(Refusal::QuotaExceeded(exceeded)))
    }

    fn create(&mut self, order: &mut Order, terms: NewLimit) {
        order.advance();
        self.limits.push(Limit { terms, created_at: order.position, is_deleted: false });
    }

    fn id(&self, name: &Name) -> Option<LimitId> {
        self.limits.iter().position(|limit| limit.terms.name == *name && !limit.is_deleted)
    }

    /// The limits of these names, which exist.
    fn ids(&self, names: &[Name]) -> Vec<LimitId> {
        names.iter().map(|name| self.id(name).unwrap()).collect()
    }

    fn limit(&self, name: &Name) -> Option<&Limit> {
        self.id(name).map(|id| &self.limits[id])
    }

    /// The names of all limits behind `after`, sorted.
    fn names_after(&self, after: Option<&Name>) -> Vec<Name> {
        let limits = self.limits.iter().filter(|limit| !limit.is_deleted);
        let mut names: Vec<Name> = limits.map(|limit| limit.terms.name.clone()).collect();
        names.retain(|name| after.is_none_or(|after| name > after));
        names.sort();
        names
    }

    fn must_exist<'n>(&self, names: impl IntoIterator<Item = &'n Name>) -> Result<(), Refusal> {
        let missing: Vec<Name> =
            names.into_iter().filter(|name| self.limit(name).is_none()).cloned().collect();
        if missing.is_empty() { Ok(()) } else { Err(Refusal::LimitNotFound { limit_names: missing }) }
    }

    /// The operation's hold events, in order.
    fn holds(&self, id: &Name) -> Vec<Event> {
        let events = self.log.iter().filter(|event| event.operation == *id && event.kind == EntryType::Hold);
        events.cloned().collect()
    }

    fn open_holds(&self, id: &Name) -> Vec<Event> {
        let mut holds = self.holds(id);
        holds.retain(|hold| self.state_of(hold) == HoldState::Held);
        holds
    }

    fn state_of(&self, hold: &Event) -> HoldState {
        self.hold_in(&hold.operation, hold.limit).unwrap().1
    }

    /// The operation's hold in a limit, and its present state.
    fn hold_in(&self, id: &Name, limit: LimitId) -> Option<(Event, HoldState)> {
        let mut events = self.log.iter().filter(|event| event.operation == *id && event.limit == limit);
        let hold = events.next()?.clone();
        let ends: Vec<&Event> = events.collect();
        let state = match ends.last() {
            None => HoldState::Held,
            Some(end) => {
                let at = Position(end.position);
                match end.kind {
                    EntryType::Commit | EntryType::Overage => HoldState::Committed { value: end.value, at },
                    kind => HoldState::RolledBack { at, expired: kind == EntryType::Expiry },
                }
            }
        };
        // Only a decision that was not committed can be recorded later.
        let is_late = ends.len() == 2 && ends[0].committed == 0 && ends[1].kind == EntryType::Overage;
        assert!(ends.len() < 2 || is_late, "a hold ends once");
        Some((hold, state))
    }

    fn view(&self, id: &Name) -> Option<u64> {
        self.holds(id).iter().map(|hold| hold.position).max()
    }

    /// The committed sum, and the sums of positive and of negative open holds.
    fn sums(&self, name: &Name) -> (i128, i128, i128) {
        let Some(id) = self.id(name) else { return (0, 0, 0) };
        let commit = self.log.iter().filter(|event| event.limit == id).map(|event| event.committed).sum();
        let open: Vec<i128> = self
            .log
            .iter()
            .filter(|event| event.limit == id && event.kind == EntryType::Hold)
            .filter(|event| self.state_of(event) == HoldState::Held)
            .map(|event| event.held)
            .collect();
        (commit, open.iter().filter(|v| **v > 0).sum(), open.iter().filter(|v| **v < 0).sum())
    }

    fn value(&self, limit: LimitId, position: u64) -> LimitValue {
        let events = || self.log.iter().filter(|event| event.limit == limit && event.position <= position);
        let terms = &self.limits[limit].terms;
        let commit_value = events().map(|event| event.committed).sum::<i128>();
        let hold_value = events().map(|event| event.held).sum::<i128>();
        LimitValue {
            limit_name: terms.name.clone(),
            limit_id: terms.limit_id.clone(),
            commit_value: commit_value.try_into().unwrap(),
            hold_value: hold_value.try_into().unwrap(),
            total_value: (commit_value + hold_value).try_into().unwrap(),
        }
    }

    fn values(&self, limits: &[LimitId], position: u64) -> Vec<LimitValue> {
        limits.iter().map(|limit| self.value(*limit, position)).collect()
    }

    fn info(&self, name: &Name) -> ledger::Limit {
        let id = self.id(name).unwrap();
        let limit = &self.limits[id];
        let (commit, up, _) = self.sums(name);
        let value = self.value(id, u64::MAX);
        ledger::Limit {
            name: value.limit_name,
            limit_id: value.limit_id,
            context: limit.terms.context.clone(),
            ceiling: limit.terms.ceiling,
            commit_value: value.commit_value,
            hold_value: value.hold_value,
            total_value: value.total_value,
            created_position: Position(limit.created_at),
            available: limit.terms.ceiling.map(|ceiling| available(ceiling, commit, up)),
        }
    }

    fn operation(&self, now: u64, id: &Name) -> Operation {
        let holds: Vec<OperationHold> =
            self.holds(id).into_iter().map(|hold| self.operation_hold(now, id, &hold)).collect();
        let any = |state| holds.iter().any(|hold| hold.state == state);
        let state = match (any(State::Held), any(State::Committed)) {
            (true, _) => State::Held,
            (false, true) => State::Committed,
            (false, false) => State::RolledBack,
        };
        Operation { operation_id: id.clone(), position: Position(self.view(id).unwrap()), state, holds }
    }

    fn operation_hold(&self, now: u64, id: &Name, hold: &Event) -> OperationHold {
        let state = self.state_of(hold);
        let is_open = state == HoldState::Held;
        let reserved = self.reserved.get(id).copied().filter(|_| is_open);
        let expires_at = hold.expires_at.or(reserved);
        let (state, committed_value, final_position, expired) = match state {
            HoldState::Held => (State::Held, None, None, false),
            HoldState::Committed { value, at } => (State::Committed, Some(value), Some(at), false),
            HoldState::RolledBack { at, expired } => (State::RolledBack, None, Some(at), expired),
        };
        OperationHold {
            limit_name: self.limits[hold.limit].terms.name.clone(),
            limit_id: self.limits[hold.limit].terms.limit_id.clone(),
            deleted: self.limits[hold.limit].is_deleted,
            state,
            held_value: hold.value,
            committed_value,
            held_at: Time(hold.time),
            hold_position: Position(hold.position),
            final_position,
            expires_at: expires_at.map(Time),
            expires_in_ms: expires_at.filter(|_| is_open).map(|time| Millis(time.saturating_sub(now))),
            expired,
        }
    }

    /// The operations that the filter finds, as far as `shown` covers them.
    fn operations(
        &self,
        now: u64,
        filter: &OperationFilter,
        page: &Page<Name>,
        shown: &Listed<Operation, Name>,
    ) -> Answer {
        let in_limit = match &filter.limit_name {
            Some(name) => {
                self.must_exist([name])?;
                self.id(name)
            }
            None => None,
        };
        let is_found = |hold: &Event| {
            let age = now - hold.time;
            (!filter.only_held || self.state_of(hold) == HoldState::Held)
                && in_limit.is_none_or(|limit| hold.limit == limit)
                && filter.older_than.is_none_or(|span| age > span.0)
        };
        let mut ids: Vec<Name> = self.log.iter().map(|event| event.operation.clone()).collect();
        ids.sort();
        ids.dedup();
        ids.retain(|id| self.holds(id).iter().any(is_found));
        let all = ids.into_iter().map(|id| (id.clone(), self.operation(now, &id)));
        Ok(Reply::Operations(page_of(all.collect(), page, shown.next.clone())))
    }

    /// The limits nearest to their ceilings among those up to the last one that `shown` covers.
    fn limits_by_use(&self, page: &Page<Name>, shown: &Listed<ledger::Limit, Name>) -> Reply {
        let mut names = self.names_after(page.after.as_ref());
        let next = shown.next.clone().filter(|next| names.contains(next));
        names.retain(|name| next.as_ref().is_none_or(|next| name <= next));
        let mut items: Vec<ledger::Limit> = names.iter().map(|name| self.info(name)).collect();
        items.sort_by(by_use);
        items.truncate(page.limit());
        Reply::LimitsByUse(Listed { items, next })
    }
}

/// The largest value that could be held below the ceiling.
fn available(ceiling: i64, commit: i128, up: i128) -> i64 {
    let below_ceiling = i128::from(ceiling) - commit - up;
    below_ceiling.min(i128::from(i64::MAX) - up).max(0).try_into().unwrap()
}

/// Limits in which nothing can be held, then by the part of the ceiling that is left, then those without a ceiling.
fn by_use(a: &ledger::Limit, b: &ledger::Limit) -> Ordering {
    let group = |limit: &ledger::Limit| match (limit.ceiling, limit.available) {
        (None, _) => 3,
        (_, Some(0)) => 0,
        (Some(ceiling), _) if ceiling > 0 => 1,
        _ => 2,
    };
    let left = |limit: &ledger::Limit| i128::from(limit.available.unwrap_or(0));
    // The part of the ceiling, over the product of both ceilings as the common denominator.
    let scaled = |limit: &ledger::Limit, other: &ledger::Limit| match group(limit) {
        1 => left(limit) * i128::from(other.ceiling.unwrap()),
        _ => left(limit),
    };
    let by_part = || if group(a) == group(b) { scaled(a, b).cmp(&scaled(b, a)) } else { Ordering::Equal };
    group(a).cmp(&group(b)).then_with(by_part).then_with(|| a.name.cmp(&b.name))
}

fn not_found(id: &Name, limit_name: Option<&Name>, state: Option<HoldState>) -> Refusal {
    Refusal::OperationNotFound { operation_id: id.clone(), limit_name: limit_name.cloned(), state }
}
