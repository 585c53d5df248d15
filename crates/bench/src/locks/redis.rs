//! Locks in Redis, as its documentation has them: a key that is set if it is not there, and ends by itself. Whoever set
//! it knows its value, and scripts compare that before they delete or extend it. Nobody can wait for such a lock.

use super::workload::{Client, Else, Grant, TTL, lock_name};
use crate::{Failed, redis::Connection};

/// In this order.
pub(crate) const SCRIPTS: [&str; 2] = [RELEASE, HEARTBEAT];

/// The lock; the holder's word.
const RELEASE: &str = r"
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])";

/// The lock; the holder's word, and for how many milliseconds it is held from now on.
const HEARTBEAT: &str = r"
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])";

impl Client for Connection {
    async fn acquire(&mut self, lock: usize, word: String, _: Else) -> Result<Option<Grant>, Failed> {
        self.write(&["SET", &lock_name(lock), &word, "NX", "PX", &TTL.as_millis().to_string()]);
        match self.exchange(1).await? {
            0 if self.replied("+OK") => Ok(Some(Grant { lock, id: String::new(), session: word })),
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
