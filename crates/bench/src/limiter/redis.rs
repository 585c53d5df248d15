//! The limiter in Redis: each client has a counter, which expires with its fixed window.

use super::workload::{Case, Client, LIMIT, PER_SECONDS, client_name};
use crate::{
    Failed,
    redis::{Connection, Setup, Sync},
};

/// Checks by a rule with a window do not wait for the disk in Limina either.
pub(crate) const SETUP: Setup = Setup { sync: Sync::EverySecond, scripts: &[CHECK] };

/// Key: the client's counter. Arguments: how much to take, the limit, the window in milliseconds.
const CHECK: &str = r"
local hits, limit, per = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local used = tonumber(redis.call('GET', KEYS[1]) or '0')
local time = redis.call('TIME')
local reset = per - (time[1] * 1000 + math.floor(time[2] / 1000)) % per
if used + hits > limit then return {0, used, reset} end
if used == 0 then
  redis.call('SET', KEYS[1], hits, 'PX', reset)
else
  redis.call('INCRBY', KEYS[1], hits)
end
return {1, used + hits, reset}";

impl Client for Connection {
    async fn create(&mut self, _: Case, _: usize) -> Result<(), Failed> {
        // Each check carries its limit.
        Ok(())
    }

    async fn check(&mut self, _: Case, clients: &[usize]) -> Result<u64, Failed> {
        let (limit, per) = (LIMIT.to_string(), (PER_SECONDS * 1000).to_string());
        for &client in clients {
            self.write_script(0, &[format!("limit:{}", client_name(client))], &["1", &limit, &per]);
        }
        let failed = self.exchange(clients.len()).await?;
        match failed {
            0 => Ok(self.replies_beginning_with(0)),
            failed => Err(format!("{failed} checks failed").into()),
        }
    }
}
