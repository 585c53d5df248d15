//! Counts what hostile clients were answered.

use crate::http::Answer;
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard},
};

/// The answers of one scenario, counted by all of its clients together.
#[derive(Default)]
pub(crate) struct Tally(Mutex<Counts>);

/// How often each kind of answer was received.
#[derive(Default, Clone)]
pub(crate) struct Counts {
    pub(crate) accepted: u64,
    /// Rejected with a status that says so: 4xx, or 503 and 507.
    pub(crate) refused: u64,
    /// The refusals by status and code.
    pub(crate) codes: BTreeMap<String, u64>,
    /// Closed or reset without an answer.
    pub(crate) closed: u64,
    /// What never may happen. Only the first ones are kept.
    pub(crate) faults: Vec<String>,
    /// Bounds of time that the scenario itself has, and that were missed.
    pub(crate) too_slow: Vec<String>,
}

/// The most faults that are kept.
const MAX_FAULTS: usize = 5;

impl Tally {
    /// Counts an answer. A 500 is a fault, and so is a 503 that does not say when to retry.
    pub(crate) fn note(&self, answer: &Answer) {
        match answer.status {
            100..400 => self.counts().accepted += 1,
            503 if answer.retry_after.is_none() => {
                self.fault(format!("503 without Retry-After: {}", answer.text()))
            }
            400..500 | 503 | 507 => {
                let code = answer.json().ok().and_then(|problem| Some(problem["code"].as_str()?.to_owned()));
                let mut counts = self.counts();
                counts.refused += 1;
                *counts
                    .codes
                    .entry(format!("{} {}", answer.status, code.unwrap_or_default()))
                    .or_default() += 1;
            }
            _ => self.fault(format!("{}: {}", answer.status, answer.text())),
        }
    }

    /// Counts an answer, or the lack of one.
    pub(crate) fn note_result<E>(&self, answer: &Result<Answer, E>) {
        match answer {
            Ok(answer) => self.note(answer),
            Err(_) => self.closed(),
        }
    }

    pub(crate) fn accepted(&self) {
        self.counts().accepted += 1;
    }

    pub(crate) fn refused(&self) {
        self.counts().refused += 1;
    }

    pub(crate) fn closed(&self) {
        self.counts().closed += 1;
    }

    pub(crate) fn fault(&self, text: impl Into<String>) {
        let mut counts = self.counts();
        if counts.faults.len() < MAX_FAULTS {
            counts.faults.push(text.into());
        }
    }

    pub(crate) fn too_slow(&self, text: impl Into<String>) {
        self.counts().too_slow.push(text.into());
    }

    /// What has been counted so far.
    pub(crate) fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
