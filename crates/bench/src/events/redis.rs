//! Events in Redis: one script, which first publishes the events that are due. Incubating events are a sorted set by due
//! time, which also contains the closed keys. Changes go to a stream that keeps about as many as Limina does.

use super::workload::{Client, MAX_EVENTS};
use crate::{
    Failed,
    redis::{Connection, Setup, Sync},
};
use std::time::Duration;

pub(crate) const SETUP: Setup = Setup { sync: Sync::Always, scripts: &[SUBMIT] };

/// Keys: incubating events, the clock, the changes, the duration. Arguments: the event, the maximum number of events.
const SUBMIT: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function change(kind, event)
  local clock = redis.call('INCR', KEYS[2])
  redis.call('XADD', KEYS[3], 'MAXLEN', '~', 10000, '*', 'type', kind, 'clock', clock, 'event', event)
  return clock
end
local due = redis.call('ZRANGE', KEYS[1], '-inf', now, 'BYSCORE')
for _, event in ipairs(due) do
  redis.call('ZREM', KEYS[1], event)
  change('PUBLISHED_EVENT', event)
end
local publishes_at = redis.call('ZSCORE', KEYS[1], ARGV[1])
if publishes_at then return {0, tonumber(publishes_at)} end
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return redis.error_reply('StreamFull') end
publishes_at = now + tonumber(redis.call('GET', KEYS[4]))
redis.call('ZADD', KEYS[1], publishes_at, ARGV[1])
return {1, now, change('SUBMITTED_EVENT', ARGV[1]), publishes_at}";

const DURATION: &str = "duration";

impl Client for Connection {
    async fn put(&mut self, duration: Duration) -> Result<(), Failed> {
        self.write(&["SET", DURATION, &duration.as_millis().to_string()]);
        match self.exchange(1).await? {
            0 => Ok(()),
            _ => Err("the duration was not set".into()),
        }
    }

    async fn submit(&mut self, event: &str) -> Result<bool, Failed> {
        let keys = ["incubating", "clock", "changes", DURATION].map(str::to_owned);
        self.write_script(0, &keys, &[event, &MAX_EVENTS.to_string()]);
        match self.exchange(1).await? {
            0 => Ok(self.replies_beginning_with(1) == 1),
            _ => Err("an event was neither accepted nor refused".into()),
        }
    }
}
