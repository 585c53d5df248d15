//! Names and pages that the engine accepts.

use crate::random::Random;
use limina_engine::{Name, Page};

/// Why building a command does not fail.
pub(super) const VALID: &str = "the workload keeps to the limits of the engine";

pub(super) fn name(text: &str) -> Name {
    Name::new(text).expect("a valid name")
}

/// A page that shows everything that a simulation creates.
pub(super) fn whole<C>() -> Page<C> {
    Page::new(None, Page::<C>::MAX_LIMIT).expect(VALID)
}

pub(super) fn page<C>(random: &mut Random, cursor: impl FnOnce(&mut Random) -> C) -> Page<C> {
    let after = random.one_in(2).then(|| cursor(random));
    Page::new(after, 1 + random.below(20) as usize).expect(VALID)
}
