//! What a client may rely on, whatever the model thinks: a lock that it was told it holds stays held until it is released
//! or its time has run out. Only requests that have hung up do not count as told.

use limina_engine::{
    Command, Name, Outcome, Request, Time,
    locks::{Command as Locks, GrantInfo, Reply},
    selection::Query,
};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub(super) struct Witness {
    /// The grants that somebody was told of.
    told: BTreeMap<Name, Told>,
}

struct Told {
    until: Time,
    /// The requests that were answered with the grant and have not hung up.
    to: BTreeSet<Name>,
}

impl Witness {
    /// Takes note of an answer. The error names a grant that is gone though somebody was told of it.
    pub(super) fn hears(&mut self, now: Time, request: &Request, outcome: &Outcome) -> Result<(), String> {
        match (&request.command, outcome) {
            (Command::DeleteNamespace, Outcome::NamespaceDeleted) => self.told.clear(),
            (Command::Locks(Locks::Acquire(wanted)), Outcome::Locks(Ok(Reply::Granted { grant, .. }))) => {
                let told = self.told.entry(grant.id.clone());
                let told = told.or_insert_with(|| Told { until: grant.expires_at, to: BTreeSet::new() });
                told.to.insert(wanted.id().clone());
            }
            (Command::Locks(Locks::Abandon(id)), _) => {
                self.told.values_mut().for_each(|told| told.to.retain(|request| request != id));
                self.told.retain(|_, told| !told.to.is_empty());
            }
            (Command::Locks(Locks::Release { id, .. }), Outcome::Locks(Ok(_))) => {
                self.told.remove(id);
            }
            (Command::Locks(Locks::List { query, page }), Outcome::Locks(Ok(Reply::Grants(listed))))
                if *query == Query::default() && page.after.is_none() && listed.next.is_none() =>
            {
                return self.looks_at(now, &listed.items);
            }
            _ => {}
        }
        Ok(())
    }

    /// All grants that there are.
    fn looks_at(&mut self, now: Time, held: &[GrantInfo]) -> Result<(), String> {
        for grant in held {
            if let Some(told) = self.told.get_mut(&grant.id) {
                told.until = grant.expires_at;
            }
        }
        self.told.retain(|_, told| told.until > now);
        let is_held = |id: &Name| held.iter().any(|grant| grant.id == *id);
        match self.told.iter().find(|(id, _)| !is_held(id)) {
            Some((id, told)) => Err(format!("{id} is gone, though {:?} were told of it", told.to)),
            None => Ok(()),
        }
    }
}
