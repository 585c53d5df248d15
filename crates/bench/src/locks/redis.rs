//! Locks in Redis, as its documentation describes them: a lock is a key that is set if it does not exist, and that expires.
//! Only the holder knows its value. Scripts compare the value before they delete or extend the key. A client cannot wait
//! for such a lock.

use super::workload::{Client, Grant, IfHeld, TTL, lock_name};
use crate::{
    Failed,
    redis::{Connection, Setup, Sync},
};

pub(crate) const SETUP: Setup = Setup { sync: Sync::Always, scripts: &[RELEASE, HEARTBEAT] };

/// Key: the lock. Argument: the holder's secret.
const RELEASE: &str = r"
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])";

/// Key: the lock. Arguments: the holder's secret, and the new time to live in milliseconds.
const HEARTBEAT: &str = r"
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])";

impl Client for Connection {
    async fn acquire(&mut self, lock: usize, secret: String, _: IfHeld) -> Result<Option<Grant>, Failed> {
        self.write(&["SET", &lock_name(lock), &secret, "NX", "PX", &TTL.as_millis().to_string()]);
        match self.exchange(1).await? {
            0 if self.replied("+OK") => Ok(Some(Grant { lock, id: String::new(), session: secret })),
            0 if self.replied("$-1") => Ok(None),
            _ => Err("a lock was neither set nor refused".into()),
        }
    }

    async fn release(&mut self, grant: &Grant) -> Result<bool, Failed> {
        self.write_script(0, &[lock_name(grant.lock)], &[&grant.session]);
        Ok(self.exchange(1).await? == 0 && self.replied(":1"))
    }

    async fn heartbeat(&mut self, grant: &Grant) -> Result<bool, Failed> {
        let ttl = TTL.as_millis().to_string();
        self.write_script(1, &[lock_name(grant.lock)], &[&grant.session, &ttl]);
        Ok(self.exchange(1).await? == 0 && self.replied(":1"))
    }
}
