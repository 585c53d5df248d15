//! The ledger in Redis, with Lua scripts.

use super::workload::{CEILING, Client, Operation};
use crate::{
    Failed,
    redis::{Connection, Setup, Sync},
};
use limina_engine::Name;

pub(crate) const SETUP: Setup = Setup { sync: Sync::Always, scripts: &[HOLD, COMMIT] };

/// Keys: the operation, then its limits. Argument: the amount.
const HOLD: &str = r"
if redis.call('EXISTS', KEYS[1]) == 1 then return redis.error_reply('DuplicateOperation') end
local amount = tonumber(ARGV[1])
for i = 2, #KEYS do
  local limit = redis.call('HMGET', KEYS[i], 'ceiling', 'committed', 'held')
  if not limit[1] then return redis.error_reply('LimitNotFound') end
  if limit[2] + limit[3] + amount > tonumber(limit[1]) then return redis.error_reply('LimitExceeded') end
end
local values = {}
for i = 2, #KEYS do
  redis.call('HSET', KEYS[1], KEYS[i], amount)
  values[#values + 1] = redis.call('HGET', KEYS[i], 'committed')
  values[#values + 1] = redis.call('HINCRBY', KEYS[i], 'held', amount)
end
redis.call('HSET', KEYS[1], 'state', 'held')
return values";

/// Keys: the operation, then its limits.
const COMMIT: &str = r"
if redis.call('HGET', KEYS[1], 'state') ~= 'held' then return redis.error_reply('OperationNotFound') end
local values = {}
for i = 2, #KEYS do
  local amount = tonumber(redis.call('HGET', KEYS[1], KEYS[i]))
  values[#values + 1] = redis.call('HINCRBY', KEYS[i], 'committed', amount)
  values[#values + 1] = redis.call('HINCRBY', KEYS[i], 'held', -amount)
end
redis.call('HSET', KEYS[1], 'state', 'committed')
return values";

impl Client for Connection {
    async fn create(&mut self, limits: &[Name]) -> Result<(), Failed> {
        let ceiling = CEILING.to_string();
        for limit in limits {
            self.write(&["HSET", limit.as_str(), "ceiling", &ceiling, "committed", "0", "held", "0"]);
        }
        match self.exchange(limits.len()).await? {
            0 => Ok(()),
            failed => Err(format!("{failed} limits were not created").into()),
        }
    }

    async fn hold(&mut self, operations: &[Operation]) -> Result<u64, Failed> {
        operations.iter().for_each(|operation| self.write_script(0, &keys(operation), &["1"]));
        self.exchange(operations.len()).await
    }

    async fn commit(&mut self, operations: &[Operation]) -> Result<u64, Failed> {
        operations.iter().for_each(|operation| self.write_script(1, &keys(operation), &[]));
        self.exchange(operations.len()).await
    }
}

fn keys(operation: &Operation) -> Vec<String> {
    let limits = operation.limits.iter().map(Name::to_string);
    std::iter::once(format!("operation:{}", operation.id)).chain(limits).collect()
}
