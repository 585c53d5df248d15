//! Decisions without a front end: those with 3 parts.

use super::workload::{COMMITTED, Client, Flow, HELD, LIMIT, Parts, RULES, TTL_SECONDS, tenant_name};
use crate::{
    Failed,
    in_process::{Caller, key_values, name, unexpected},
};
use limina_engine::{
    self as engine, Millis, Outcome,
    decisions::{self, Command, Decide, PartCheck, Refusal, Reply, Settle},
    key_values::Value,
    ledger::{self, Change, NewLimit},
    limiter::{self, Durability, Limit, NewRule, RuleChange, Window},
    selection::{Selection, Test},
};

impl Client for Caller {
    async fn create(&mut self, tenants: usize) -> Result<(), Failed> {
        for rule in RULES {
            let change = RuleChange::new(limiter::Change::CreateRule(new_rule(rule)))?;
            let command = engine::Command::Limiter(limiter::Command::Change(change));
            match self.submit(command).await? {
                Outcome::Limiter(Ok(_)) => {}
                other => return Err(unexpected(other)),
            }
        }
        for budget in (0..tenants).flat_map(|tenant| Parts::Three.budgets(tenant)) {
            let ceiling = Some(LIMIT as i64);
            let limit = NewLimit { ceiling, ..NewLimit::new(name(&budget)) };
            match self.submit(engine::Command::Ledger(ledger::Command::CreateLimit(limit))).await? {
                Outcome::Ledger(Ok(_)) => {}
                other => return Err(unexpected(other)),
            }
        }
        Ok(())
    }

    async fn decide(&mut self, flows: &[Flow]) -> Result<u64, Failed> {
        let mut refused = 0;
        for flow in flows {
            refused += u64::from(submit(self, Command::Decide(decide(flow).into())).await?.is_err());
        }
        Ok(refused)
    }

    async fn settle(&mut self, flows: &[Flow]) -> Result<u64, Failed> {
        let mut refused = 0;
        for flow in flows {
            refused += u64::from(submit(self, Command::Settle(settle(flow))).await?.is_err());
        }
        Ok(refused)
    }
}

fn new_rule((rule, group, has_window): (&str, &str, bool)) -> NewRule {
    let meter = ("meter".into(), vec![Test::Eq(Value::String(rule.into()))]);
    NewRule {
        name: name(rule),
        group_by: vec![group.into()],
        selection: Selection::new(vec![meter]).expect("a short condition"),
        limit: Limit::AtMost(LIMIT),
        window: has_window.then_some(Window::Fixed { per: Millis(3_600_000) }),
        shadow: false,
        durability: Some(Durability::Durable),
        description: None,
    }
}

fn decide(flow: &Flow) -> Decide {
    let tenant = tenant_name(flow.tenant);
    let check = |meter: &str| {
        PartCheck::new(key_values([("tenant", tenant.as_str()), ("model", "large"), ("meter", meter)]), 1)
    };
    let budgets = flow.parts.budgets(flow.tenant);
    let parts = decisions::Parts {
        checks: vec![check("requests"), check("tenant-slots")],
        holds: budgets.iter().map(|budget| Change::new(name(budget), HELD as i64)).collect(),
        ..decisions::Parts::default()
    };
    let decide = Decide::new(name(&flow.id), parts);
    decide.and_then(|decide| decide.with_ttl(Millis(TTL_SECONDS * 1000))).expect("a valid decision")
}

fn settle(flow: &Flow) -> Settle {
    let budgets = flow.parts.budgets(flow.tenant);
    let values = budgets.iter().map(|budget| (name(budget), COMMITTED as i64));
    Settle::new(name(&flow.id)).with_holds(values).expect("a valid commit")
}

async fn submit(caller: &Caller, command: Command) -> Result<Result<Reply, Refusal>, Failed> {
    match caller.submit(engine::Command::Decisions(command)).await? {
        Outcome::Decisions(result) => Ok(result),
        other => Err(unexpected(other)),
    }
}
