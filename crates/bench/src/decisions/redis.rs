//! The same with 3 parts in Redis, by Lua scripts: a fixed window, a slot and a budget.
//!
//! The scripts do only what the measurement needs. Limina also ends what a client has forgotten, keeps the history of the
//! budget, finds the rules that apply, and returns the state of all limits.

use super::workload::{COMMITTED, Client, Flow, HELD, LIMIT, Parts, tenant_name};
use crate::{
    Failed,
    redis::{Connection, Setup, Sync},
};

pub(crate) const SETUP: Setup = Setup { sync: Sync::Always, scripts: &[DECIDE, SETTLE] };

/// Keys: the operation, the window, the slot, the budget. Arguments: the limit of all of them, the length of the window in
/// milliseconds, and the amount to hold.
const DECIDE: &str = r"
if redis.call('EXISTS', KEYS[1]) == 1 then return redis.error_reply('OperationReused') end
local limit, amount = tonumber(ARGV[1]), tonumber(ARGV[3])
local budget = redis.call('HMGET', KEYS[4], 'ceiling', 'committed', 'held')
if not budget[1] then return redis.error_reply('LimitNotFound') end
if tonumber(redis.call('GET', KEYS[2]) or '0') + 1 > limit
  or tonumber(redis.call('GET', KEYS[3]) or '0') + 1 > limit
  or budget[2] + budget[3] + amount > tonumber(budget[1])
then return redis.error_reply('Refused') end
local used = redis.call('INCR', KEYS[2])
if used == 1 then redis.call('PEXPIRE', KEYS[2], ARGV[2]) end
local inside = redis.call('INCR', KEYS[3])
local held = redis.call('HINCRBY', KEYS[4], 'held', amount)
redis.call('HSET', KEYS[1], 'state', 'open', 'amount', amount)
return {used, inside, held}";

/// Keys: the operation, the slot, the budget. Argument: the amount to commit.
const SETTLE: &str = r"
local operation = redis.call('HMGET', KEYS[1], 'state', 'amount')
if operation[1] ~= 'open' then return redis.error_reply('OperationNotFound') end
local amount = tonumber(ARGV[1])
if amount > tonumber(operation[2]) then return redis.error_reply('CommitExceedsHold') end
redis.call('DECR', KEYS[2])
redis.call('HINCRBY', KEYS[3], 'held', -operation[2])
local committed = redis.call('HINCRBY', KEYS[3], 'committed', amount)
redis.call('HSET', KEYS[1], 'state', 'committed', 'amount', amount)
return {committed}";

const HOUR_MILLIS: &str = "3600000";

impl Client for Connection {
    async fn create(&mut self, tenants: usize) -> Result<(), Failed> {
        let ceiling = LIMIT.to_string();
        for budget in (0..tenants).flat_map(|tenant| Parts::Three.budgets(tenant)) {
            self.write(&["HSET", &budget, "ceiling", &ceiling, "committed", "0", "held", "0"]);
        }
        match self.exchange(tenants).await? {
            0 => Ok(()),
            failed => Err(format!("{failed} budgets were not created").into()),
        }
    }

    async fn decide(&mut self, flows: &[Flow]) -> Result<u64, Failed> {
        let (limit, held) = (LIMIT.to_string(), HELD.to_string());
        for flow in flows {
            let [operation, slot, budget] = keys(flow);
            let window = format!("window:{}", tenant_name(flow.tenant));
            self.write_script(0, &[operation, window, slot, budget], &[&limit, HOUR_MILLIS, &held]);
        }
        self.exchange(flows.len()).await
    }

    async fn settle(&mut self, flows: &[Flow]) -> Result<u64, Failed> {
        let committed = COMMITTED.to_string();
        flows.iter().for_each(|flow| self.write_script(1, &keys(flow), &[&committed]));
        self.exchange(flows.len()).await
    }
}

fn keys(flow: &Flow) -> [String; 3] {
    let slot = format!("slot:{}", tenant_name(flow.tenant));
    let budget = format!("month/{}", tenant_name(flow.tenant));
    [format!("operation:{}", flow.id), slot, budget]
}
