//! Loads the stored decisions of a namespace, with the parts of them that have no record of their own.

use super::{
    ended,
    families::Families,
    keys,
    open::{Open, grant_of, lease_of},
    state::Decisions,
};
use crate::{
    Time,
    ids::NamespaceId,
    ledger, limiter, locks,
    record::{self, Malformed, key::ResidentKey},
    timers::Timers,
};

impl Decisions {
    /// Loads a stored record. All records of the families are loaded before, and nothing is counted yet.
    pub(crate) fn load(
        &mut self,
        families: &mut Families<'_>,
        key: ResidentKey<'_>,
        bytes: &[u8],
        timers: &mut Timers,
    ) -> Result<(), Malformed> {
        match keys::parse(key).ok_or(Malformed)? {
            keys::Resident::Open(position) => {
                let open: Open = record::decode(bytes)?;
                if open.position != position || open.taken.len() != open.request.parts().checks.len() {
                    return Err(Malformed);
                }
                self.load_open(families, key.namespace, open, timers)
            }
            keys::Resident::Periods => {
                let (first, last) = record::decode(bytes)?;
                self.periods = Some((first, last));
                let (key, timer) = ended::drop_timer(key.namespace, first);
                timers.set(key, timer);
                Ok(())
            }
        }
    }

    fn load_open(
        &mut self,
        families: &mut Families<'_>,
        namespace: NamespaceId,
        mut open: Open,
        timers: &mut Timers,
    ) -> Result<(), Malformed> {
        let (request, made_at, expires_at) = (&open.request, open.made_at, open.expires_at);
        let counted = (0..open.taken.len()).filter(|place| open.taken[*place].is_counted);
        let leases = counted.map(|place| {
            let part = lease_of(request, place, made_at, expires_at, open.position);
            limiter::parts::load(families.limiter, &part)
        });
        open.leases = leases.collect();
        let is_sound = open.request.parts().locks.is_empty()
            || locks::parts::load(
                families.locks,
                &grant_of(&open.request, made_at, expires_at, open.position),
            );
        ledger::parts::reserve(families.ledger, open.id(), expires_at);
        timers.set(open.timer_key(namespace), open.timer());
        if is_sound && self.insert(open) { Ok(()) } else { Err(Malformed) }
    }

    /// Gives each decision at least its whole ttl from `ready` on.
    pub(crate) fn apply_grace_period(
        &mut self,
        families: &mut Families<'_>,
        ready: Time,
        namespace: NamespaceId,
        timers: &mut Timers,
    ) {
        for open in self.open.values_mut() {
            timers.cancel(open.timer_key(namespace));
            open.expires_at = open.expires_at.max(ready.after(open.request.ttl()));
            timers.set(open.timer_key(namespace), open.timer());
            open.extend_parts(families);
        }
    }
}
