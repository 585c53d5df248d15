//! No part without its operation, and no operation without its parts: checked on what the engine itself shows at one instant,
//! without the model.

use limina_engine::{
    Command, Listed, Name, Outcome, Page,
    decisions::{self, Decision},
    events::{self, EventInfo, EventState},
    ledger::{self, Limit, Operation, OperationFilter, State},
    limiter::{self, Lease},
    locks::{self, GrantInfo},
    selection::Query,
};

/// All open decisions of a namespace of decisions, and everything that is held in it.
#[derive(Debug, Default)]
pub struct Parts {
    decisions: Vec<Decision>,
    leases: Vec<Lease>,
    grants: Vec<GrantInfo>,
    operations: Vec<Operation>,
    limits: Vec<Limit>,
    incubating: Vec<(Name, EventInfo)>,
}

impl Parts {
    /// Reads everything at one instant.
    pub fn read(
        streams: impl Iterator<Item = Name>,
        mut ask: impl FnMut(Command) -> Result<Outcome, String>,
    ) -> Result<Parts, String> {
        let mut parts = Parts::default();
        let commands = [
            Command::Decisions(decisions::Command::List { owner: None, older_than: None, page: whole() }),
            Command::Limiter(limiter::Command::ListLeases { owner: None, page: whole() }),
            Command::Locks(locks::Command::List { query: Query::default(), page: whole() }),
            Command::Ledger(ledger::Command::ListLimits(whole())),
        ];
        for command in commands {
            match ask(command)? {
                Outcome::Decisions(Ok(decisions::Reply::Decisions(listed))) => parts.decisions = listed.items,
                Outcome::Limiter(Ok(limiter::Reply::Leases(listed))) => parts.leases = listed.items,
                Outcome::Locks(Ok(locks::Reply::Grants(listed))) => parts.grants = listed.items,
                Outcome::Ledger(Ok(ledger::Reply::Limits(Listed { items, .. }))) => parts.limits = items,
                other => return Err(format!("no list: {other:?}")),
            }
        }
        let (mut after, mut is_more) = (None, true);
        while is_more {
            let filter = OperationFilter { only_held: true, ..OperationFilter::default() };
            let page = Page::new(after, Page::<Name>::MAX_LIMIT).expect("the largest page");
            match ask(Command::Ledger(ledger::Command::ListOperations { filter, page }))? {
                Outcome::Ledger(Ok(ledger::Reply::Operations(listed))) => {
                    parts.operations.extend(listed.items);
                    (is_more, after) = (listed.next.is_some(), listed.next);
                }
                other => return Err(format!("no list: {other:?}")),
            }
        }
        for stream in streams {
            let command = events::Command::Incubating(stream.clone());
            if let Outcome::Events(Ok(events::Reply::Incubating(frame))) = ask(Command::Events(command))? {
                let events = frame.events.into_iter().map(|event| (stream.clone(), event));
                parts.incubating.extend(events);
            }
        }
        Ok(parts)
    }

    /// Says which part has no operation, or which operation lacks a part.
    pub fn check(&self) -> Result<(), String> {
        for lease in &self.leases {
            let decision = self.decision_of(lease.operation_id.as_ref(), lease)?;
            let expires_in = decision.expires_at.map(|time| time.since(decision.now));
            let agrees = (Some(lease.fencing_token), Some(lease.expires_in_ms), lease.held_ms)
                == (decision.fencing_token, expires_in, decision.now.since(decision.made_at));
            expect(agrees, "a slot differs from its decision", (lease, decision))?;
        }
        for grant in &self.grants {
            let decision = self.decision_of(grant.operation_id.as_ref(), grant)?;
            let expires_in = decision.expires_at.map(|time| time.since(decision.now));
            let agrees = (Some(grant.fencing_token), Some(grant.expires_in_ms), &grant.locks)
                == (decision.fencing_token, expires_in, &decision.locks);
            expect(agrees, "locks differ from their decision", (grant, decision))?;
        }
        for operation in &self.operations {
            let decision = self.decision_of(Some(&operation.operation_id), operation)?;
            let held = operation.holds.iter().map(|hold| (&hold.limit_name, hold.state, hold.expires_at));
            let values = decision.values.iter();
            let values = values.map(|value| (&value.limit_name, State::Held, decision.expires_at));
            expect(held.eq(values), "holds differ from their decision", (operation, decision))?;
        }
        for decision in &self.decisions {
            let id = &decision.operation_id;
            let locked = self.grants.iter().filter(|grant| grant.operation_id.as_ref() == Some(id)).count();
            let is_right = locked == usize::from(!decision.locks.is_empty());
            expect(is_right, "a decision has no locks, or too many", decision)?;
            let holding = self.operations.iter().filter(|operation| operation.operation_id == *id).count();
            let is_right = holding == usize::from(!decision.values.is_empty());
            expect(is_right, "a decision holds nothing, or twice", decision)?;
            // A check without slots has no lease.
            let leases = self.leases.iter().filter(|lease| lease.operation_id.as_ref() == Some(id)).count();
            let mut slots: Vec<u32> = decision
                .limits
                .iter()
                .filter(|limit| limit.status.per.is_none())
                .map(|limit| limit.status.entry)
                .collect();
            slots.dedup();
            expect(leases <= slots.len(), "a decision has too many slots", decision)?;
            if let Some(part) = decision.event.as_ref().filter(|part| part.state == EventState::Submitted) {
                let is_there = self.incubating.contains(&(part.stream.clone(), part.event.clone()));
                expect(is_there, "the event of a decision does not incubate", decision)?;
            }
        }
        for limit in &self.limits {
            let holds = self.operations.iter().flat_map(|operation| &operation.holds);
            let held = holds.filter(|hold| hold.limit_name == limit.name).map(|hold| hold.held_value);
            expect(held.sum::<i64>() == limit.hold_value, "what is held is not the sum of holds", limit)?;
        }
        Ok(())
    }

    fn decision_of(&self, id: Option<&Name>, part: &dyn std::fmt::Debug) -> Result<&Decision, String> {
        let found = self.decisions.iter().find(|decision| Some(&decision.operation_id) == id);
        found.ok_or_else(|| format!("a part without its decision: {part:?}"))
    }
}

fn expect(is_right: bool, what: &str, about: impl std::fmt::Debug) -> Result<(), String> {
    if is_right { Ok(()) } else { Err(format!("{what}: {about:?}")) }
}

fn whole<C>() -> Page<C> {
    Page::new(None, Page::<C>::MAX_LIMIT).expect("the largest page")
}
