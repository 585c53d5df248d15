//! What a client may rely on, whatever the model expects: a lock that was granted to it stays held until it is released
//! or expires. Requests that have hung up do not count.

use limina_engine::{
    Command, Name, Outcome, Request, Time,
    locks::{Command as Locks, GrantInfo, Reply},
    selection::Query,
};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub(super) struct GrantChecker {
    /// The grants that at least one request was answered with.
    answered: BTreeMap<Name, AnsweredGrant>,
}

struct AnsweredGrant {
    until: Time,
    /// The requests that were answered with the grant and have not hung up.
    to: BTreeSet<Name>,
}

impl GrantChecker {
    /// Records an answer. The error names a grant that has ended although a request was answered with it.
    pub(super) fn handle_answer(
        &mut self,
        now: Time,
        request: &Request,
        outcome: &Outcome,
    ) -> Result<(), String> {
        match (&request.command, outcome) {
            (Command::DeleteNamespace, Outcome::NamespaceDeleted) => self.answered.clear(),
            (Command::Locks(Locks::Acquire(wanted)), Outcome::Locks(Ok(Reply::Granted { grant, .. }))) => {
                let answered = self.answered.entry(grant.lock_id.clone());
                let until = now.after(grant.expires_in_ms);
                let answered = answered.or_insert_with(|| AnsweredGrant { until, to: BTreeSet::new() });
                answered.to.insert(wanted.id.clone());
            }
            (Command::Locks(Locks::Abandon(id)), _) => {
                self.answered.values_mut().for_each(|answered| answered.to.retain(|request| request != id));
                self.answered.retain(|_, answered| !answered.to.is_empty());
            }
            (Command::Locks(Locks::Release { id, .. }), Outcome::Locks(Ok(_))) => {
                self.answered.remove(id);
            }
            (Command::Locks(Locks::List { query, page }), Outcome::Locks(Ok(Reply::Grants(listed))))
                if *query == Query::default() && page.after.is_none() && listed.next.is_none() =>
            {
                return self.check_held(now, &listed.items);
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks the list of all grants.
    fn check_held(&mut self, now: Time, held: &[GrantInfo]) -> Result<(), String> {
        for grant in held {
            if let Some(answered) = self.answered.get_mut(&grant.lock_id) {
                answered.until = now.after(grant.expires_in_ms);
            }
        }
        self.answered.retain(|_, answered| answered.until > now);
        let is_held = |id: &Name| held.iter().any(|grant| grant.lock_id == *id);
        match self.answered.iter().find(|(id, _)| !is_held(id)) {
            Some((id, answered)) => {
                Err(format!("{id} is gone, though {:?} were answered with it", answered.to))
            }
            None => Ok(()),
        }
    }
}
