//! The limiter's memory that is no longer in use and is freed in slices.

use super::{counters::Counters, groups::Groups, rule::Rule};
use crate::leftovers::Leftovers;
use alloc::{boxed::Box, sync::Arc, vec::Vec};

/// The number of entries, such as the overrides of a removed rule, that one slice frees.
const SLICE: usize = 1_024;

/// A part of a limiter that is no longer in use.
#[derive(Debug)]
pub(crate) enum Garbage {
    /// Rules that were removed or replaced.
    Rules(Vec<Rule>),
    /// The groups and counters of a deleted namespace.
    Counts(Box<(Groups, Counters)>),
    /// The leases and look-ups of a deleted namespace.
    Maps(Leftovers),
}

impl Garbage {
    /// Frees one slice. Returns whether that was the last one.
    pub(crate) fn free_some(&mut self) -> bool {
        match self {
            Garbage::Rules(rules) => {
                // Overrides that another rule still shares are freed with the last rule that has them.
                let own = rules.last_mut().and_then(|rule| Arc::get_mut(&mut rule.overrides));
                if own.is_none_or(|overrides| overrides.drop_some(SLICE)) {
                    rules.pop();
                }
                rules.is_empty()
            }
            Garbage::Counts(counts) => !counts.0.free_chunk() && !counts.1.free_chunk(),
            Garbage::Maps(leftovers) => leftovers.free_some(SLICE),
        }
    }
}
