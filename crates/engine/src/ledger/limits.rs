//! `limits`: create, change, read and list the limits themselves.

use super::{
    Context, LimitInfo, NewLimit, Patch, Refusal, Reply,
    state::{Ledger, Terms, limit_bytes},
};
use crate::{Name, Page, Quota, answer_size, turn::Turn};
use alloc::{vec, vec::Vec};

/// An estimate of the bytes of the stored terms of a limit without the context.
pub(super) const TERMS_BYTES: usize = 512;

/// An estimate of the bytes of a stored context.
pub(super) fn context_bytes(context: &Context) -> usize {
    context.iter().map(|(key, value)| key.len() + value.len() + 4).sum()
}

pub(super) fn create(ledger: &mut Ledger, turn: &mut Turn<'_>, new: &NewLimit) -> Result<LimitInfo, Refusal> {
    if ledger.find(&new.name).is_some() {
        return Err(Refusal::DuplicateLimitName { limit_name: new.name.clone() });
    }
    turn.check_quota(Quota::LedgerLimits, ledger.len(), 1)?;
    let more = limit_bytes(&new.name, new.limit_id.as_ref(), &new.context);
    turn.check_bytes(ledger.resident_bytes(), more)?;
    turn.changes.will_write(TERMS_BYTES + context_bytes(&new.context));
    let number = ledger.create(Terms {
        name: new.name.clone(),
        limit_id: new.limit_id.clone(),
        context: new.context.clone(),
        ceiling: new.ceiling,
        created_at: turn.advance(),
    });
    Ok(ledger.info(number))
}

pub(super) fn patch(
    ledger: &mut Ledger,
    turn: &mut Turn<'_>,
    name: &Name,
    ceiling: &Patch<i64>,
    context: &Patch<Context>,
) -> Result<LimitInfo, Refusal> {
    let number = find(ledger, name)?;
    let mut terms = ledger.limit(number).terms.clone();
    match ceiling {
        Patch::Keep => {}
        Patch::Remove => terms.ceiling = None,
        Patch::Set(value) => terms.ceiling = Some(*value),
    }
    match context {
        Patch::Keep => {}
        Patch::Remove => terms.context = Context::default(),
        Patch::Set(value) => terms.context = value.clone(),
    }
    if terms != ledger.limit(number).terms {
        let more = terms.resident_bytes().saturating_sub(ledger.limit(number).terms.resident_bytes());
        turn.check_bytes(ledger.resident_bytes(), more)?;
        turn.advance();
        turn.changes.will_write(TERMS_BYTES + context_bytes(&terms.context));
        ledger.set_terms(number, terms);
    }
    Ok(ledger.info(number))
}

pub(super) fn get(ledger: &Ledger, name: &Name) -> Result<LimitInfo, Refusal> {
    Ok(ledger.info(find(ledger, name)?))
}

pub(super) fn list(ledger: &Ledger, page: &Page<Name>, max_answer: usize) -> Reply {
    let mut names = ledger.names_after(page.after.as_ref());
    let infos = names.by_ref().take(page.limit()).map(|number| ledger.info(number));
    let (items, is_cut) = answer_size::fitting(infos, max_answer.min(answer_size::PAGE_BYTES));
    Reply::Limits { items, more: is_cut || names.next().is_some() }
}

pub(super) fn find(ledger: &Ledger, name: &Name) -> Result<u32, Refusal> {
    ledger.find(name).ok_or_else(|| Refusal::LimitNotFound { limit_names: vec![name.clone()] })
}

/// The numbers of the limits, or a refusal with the names of all that do not exist.
pub(super) fn find_all<'n>(
    ledger: &Ledger,
    names: impl Iterator<Item = &'n Name> + Clone,
) -> Result<Vec<u32>, Refusal> {
    let found: Vec<u32> = names.clone().filter_map(|name| ledger.find(name)).collect();
    let missing: Vec<Name> = names.filter(|name| ledger.find(name).is_none()).cloned().collect();
    if missing.is_empty() { Ok(found) } else { Err(Refusal::LimitNotFound { limit_names: missing }) }
}
