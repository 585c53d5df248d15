//! Computes the page of a list that an answer must show.

use limina_engine::{Listed, Page};

/// The page of a list, if it ends at `next`, as the answer says. A page may be short, but what it skips must not exist.
pub(super) fn page_of<C: Clone + Ord, T>(
    mut all: Vec<(C, T)>,
    page: &Page<C>,
    next: Option<C>,
) -> Listed<T, C> {
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    all.retain(|(cursor, _)| page.after.as_ref().is_none_or(|after| cursor > after));
    let is_ahead = |next: &C| page.after.as_ref().is_none_or(|after| next > after);
    let covered = |next: &Option<C>, cursor: &C| next.as_ref().is_none_or(|next| cursor <= next);
    // If the page has too many items, or does not advance, it is wrong, and a correct page is returned for the message.
    let fits = all.iter().filter(|(cursor, _)| covered(&next, cursor)).count() <= page.limit();
    let next = match next {
        next if fits && next.as_ref().is_none_or(is_ahead) => next,
        _ => (all.len() > page.limit()).then(|| all[page.limit() - 1].0.clone()),
    };
    all.retain(|(cursor, _)| covered(&next, cursor));
    Listed { items: all.into_iter().map(|(_, item)| item).collect(), next }
}
