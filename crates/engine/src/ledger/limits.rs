//! `limits`: create, change, read and list the limits themselves.

use super::{
    reply::{Nearness, Refusal, Reply},
    state::{Ledger, Terms, limit_bytes},
};
use crate::{Listed, Name, Page, answer_size, lists::looked_at, turn::Turn};
use alloc::{vec, vec::Vec};
use limina_api::{
    Context, Patch,
    ledger::{Limit, LimitPatch, NewLimit},
};

pub(super) fn create(ledger: &mut Ledger, turn: &mut Turn<'_>, new: &NewLimit) -> Result<Limit, Refusal> {
    if ledger.find(&new.name).is_some() {
        return Err(Refusal::DuplicateLimitName { limit_name: new.name.clone() });
    }
    ledger.check_limits(turn, 1)?;
    let more = limit_bytes(&new.name, new.limit_id.as_ref(), &new.context);
    turn.check_bytes(ledger.resident_bytes(), more)?;
    let NewLimit { name, limit_id, context, ceiling, .. } = new.clone();
    let created_at = turn.advance();
    let number = ledger.create(turn, Terms { name, limit_id, context, ceiling, created_at });
    Ok(ledger.info(number))
}

pub(super) fn patch(
    ledger: &mut Ledger,
    turn: &mut Turn<'_>,
    name: &Name,
    patch: &LimitPatch,
) -> Result<Limit, Refusal> {
    let number = find(ledger, name)?;
    let mut terms = ledger.limit(number).terms.clone();
    match &patch.ceiling {
        Patch::Keep => {}
        Patch::Remove => terms.ceiling = None,
        Patch::Set(value) => terms.ceiling = Some(*value),
    }
    match &patch.context {
        Patch::Keep => {}
        Patch::Remove => terms.context = Context::default(),
        Patch::Set(value) => terms.context = value.clone(),
    }
    if terms != ledger.limit(number).terms {
        let more = terms.resident_bytes().saturating_sub(ledger.limit(number).terms.resident_bytes());
        turn.check_bytes(ledger.resident_bytes(), more)?;
        turn.advance();
        ledger.set_terms(turn, number, terms);
    }
    Ok(ledger.info(number))
}

pub(super) fn delete(ledger: &mut Ledger, turn: &mut Turn<'_>, name: &Name) -> Result<Reply, Refusal> {
    let number = find(ledger, name)?;
    let open_holds = ledger.limit(number).open_holds;
    if open_holds > 0 {
        return Err(Refusal::LimitInUse { limit_name: name.clone(), open_holds });
    }
    turn.advance();
    ledger.delete(turn, number);
    Ok(Reply::LimitDeleted)
}

pub(super) fn get(ledger: &Ledger, name: &Name) -> Result<Limit, Refusal> {
    Ok(ledger.info(find(ledger, name)?))
}

pub(super) fn list(ledger: &Ledger, page: &Page<Name>, max_answer: usize) -> Reply {
    let mut names = ledger.names_after(page.after.as_ref());
    let infos = names.by_ref().take(page.limit()).map(|number| ledger.info(number));
    let (items, is_cut) = answer_size::fitting(infos, max_answer.min(answer_size::PAGE_BYTES));
    let has_more = is_cut || names.next().is_some();
    let next = items.last().filter(|_| has_more).map(|last| last.name.clone());
    Reply::Limits(Listed { items, next })
}

/// The work of comparing a limit with others and copying it, in conditions that are tested.
const WEIGHT: usize = 64;

/// The limits nearest to their ceilings among the next ones by name, as many as one command looks at.
pub(super) fn list_by_use(ledger: &Ledger, page: &Page<Name>, max_answer: usize) -> Reply {
    let mut numbers = ledger.names_after(page.after.as_ref());
    let looked_at: Vec<u32> = numbers.by_ref().take(looked_at(WEIGHT)).collect();
    let last = looked_at.last().map(|number| ledger.limit(*number).terms.name.clone());
    let next = if numbers.next().is_some() { last } else { None };
    let mut uses: Vec<_> = looked_at.into_iter().map(|number| (ledger.nearness(number), number)).collect();
    let order = |a: &(Nearness, u32), b: &(Nearness, u32)| {
        let name = |number: u32| &ledger.limit(number).terms.name;
        a.0.cmp(&b.0).then_with(|| name(a.1).cmp(name(b.1)))
    };
    if uses.len() > page.limit() {
        uses.select_nth_unstable_by(page.limit() - 1, order);
        uses.truncate(page.limit());
    }
    uses.sort_unstable_by(order);
    let infos = uses.into_iter().map(|(_, number)| ledger.info(number));
    let (items, _) = answer_size::fitting(infos, max_answer.min(answer_size::PAGE_BYTES));
    Reply::LimitsByUse(Listed { items, next })
}

pub(super) fn find(ledger: &Ledger, name: &Name) -> Result<u32, Refusal> {
    ledger.find(name).ok_or_else(|| Refusal::LimitNotFound { limit_names: vec![name.clone()] })
}

/// The numbers of the limits, or a refusal with the names of all that do not exist.
pub(super) fn find_all<'n>(
    ledger: &Ledger,
    names: impl Iterator<Item = &'n Name> + Clone,
) -> Result<Vec<u32>, Refusal> {
    let found: Option<Vec<u32>> = names.clone().map(|name| ledger.find(name)).collect();
    found.ok_or_else(|| {
        let missing = names.filter(|name| ledger.find(name).is_none());
        Refusal::LimitNotFound { limit_names: missing.cloned().collect() }
    })
}
