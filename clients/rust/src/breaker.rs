//! The circuit breaker: when checks fail, the client stops asking for a while, and fails them at once.

use crate::error::{Done, Error, Result};
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// The settings of the circuit breaker, which is for checks.
///
/// It opens after `failures` requests for checks in a row that got no decision, or when no such request has been answered for `hang`. For
/// the time `pause` every check then fails at once. After that one request is sent: its answer closes the breaker, and its failure
/// begins another pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Breaker {
    /// Default: 5.
    pub failures: u32,
    /// Default: 1 s.
    pub hang: Duration,
    /// Default: 1 s.
    pub pause: Duration,
}

impl Default for Breaker {
    fn default() -> Breaker {
        Breaker { failures: 5, hang: Duration::from_secs(1), pause: Duration::from_secs(1) }
    }
}

/// The state of the circuit breaker of a client. The time is an argument, so that tests need not sleep.
pub(crate) struct Circuit {
    /// `None`: switched off.
    settings: Option<Breaker>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    failures: u32,
    open_until: Option<Instant>,
    probing: bool,
    in_flight: usize,
    /// When the first request left that was sent after the last answer. `None`: nothing was sent since then.
    silent_since: Option<Instant>,
}

/// A request for checks that is in flight. If it is dropped before its end, it says nothing about the server.
pub(crate) struct Attempt<'c> {
    circuit: &'c Circuit,
    is_probe: bool,
    ended: bool,
}

impl Circuit {
    pub(crate) fn new(settings: Option<Breaker>) -> Circuit {
        Circuit { settings, state: Mutex::default() }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.settings.is_some() && self.state().open_until.is_some()
    }

    /// Fails if a check would not be sent now.
    pub(crate) fn refuse_if_open(&self, now: Instant) -> Result<()> {
        match &self.settings {
            Some(settings) => self.state().look(settings, now),
            None => Ok(()),
        }
    }

    /// Begins a request for checks. Fails while the breaker is open: then the request must not be sent.
    pub(crate) fn begin(&self, now: Instant) -> Result<Attempt<'_>> {
        let Some(settings) = &self.settings else {
            return Ok(Attempt { circuit: self, is_probe: false, ended: true });
        };
        let mut state = self.state();
        state.look(settings, now)?;
        let is_probe = state.open_until.is_some();
        state.probing |= is_probe;
        state.in_flight += 1;
        state.silent_since.get_or_insert(now);
        Ok(Attempt { circuit: self, is_probe, ended: false })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn look(&mut self, settings: &Breaker, now: Instant) -> Result<()> {
        if self.open_until.is_none() && self.hangs(settings, now) {
            self.open_until = Some(now + settings.pause);
        }
        match self.open_until {
            Some(until) if self.probing || now < until => {
                let message = "the circuit breaker is open: earlier checks got no answer";
                let mut error = Error::unavailable(Done::No, message);
                if let Error::Unavailable { failure, .. } = &mut error {
                    failure.retry_after = Some(until.saturating_duration_since(now));
                }
                Err(error)
            }
            _ => Ok(()),
        }
    }

    fn hangs(&self, settings: &Breaker, now: Instant) -> bool {
        self.in_flight > 0 && self.silent_since.is_some_and(|since| now - since >= settings.hang)
    }

    /// A request is no longer in flight, and was not answered.
    fn leave(&mut self, is_probe: bool) {
        self.in_flight -= 1;
        self.probing &= !is_probe;
        if self.in_flight == 0 {
            self.silent_since = None;
        }
    }
}

impl Attempt<'_> {
    /// The server has answered with a decision or an error of its own.
    pub(crate) fn answered(self) {
        self.end(|state, _, is_probe| {
            state.leave(is_probe);
            state.failures = 0;
            state.open_until = None;
            state.silent_since = None;
        });
    }

    /// There was no decision.
    pub(crate) fn failed(self, now: Instant) {
        self.end(|state, settings, is_probe| {
            let hangs = state.hangs(settings, now);
            state.leave(is_probe);
            state.failures = state.failures.saturating_add(1);
            let opens = match state.open_until {
                None => hangs || state.failures >= settings.failures,
                Some(_) => is_probe,
            };
            if opens {
                state.open_until = Some(now + settings.pause);
            }
        });
    }

    fn end(mut self, change: impl FnOnce(&mut State, &Breaker, bool)) {
        if let (false, Some(settings)) = (self.ended, &self.circuit.settings) {
            change(&mut self.circuit.state(), settings, self.is_probe);
        }
        self.ended = true;
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.circuit.state().leave(self.is_probe);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A circuit breaker, and a clock that the test moves.
    struct Fixture {
        circuit: Circuit,
        now: Cell<Instant>,
    }

    impl Fixture {
        fn new(failures: u32) -> Fixture {
            let circuit = Circuit::new(Some(Breaker { failures, ..Breaker::default() }));
            Fixture { circuit, now: Cell::new(Instant::now()) }
        }

        fn pass(&self, milliseconds: u64) {
            self.now.set(self.now.get() + Duration::from_millis(milliseconds));
        }

        fn fail(&self) {
            self.circuit.begin(self.now.get()).unwrap().failed(self.now.get());
        }

        fn succeed(&self) {
            self.circuit.begin(self.now.get()).unwrap().answered();
        }

        #[track_caller]
        fn assert_refuses(&self, milliseconds: u64) {
            let Err(Error::Unavailable { done: Done::No, failure }) = self.circuit.begin(self.now.get())
            else {
                panic!("the request was sent");
            };
            assert_eq!(failure.retry_after, Some(Duration::from_millis(milliseconds)));
        }
    }

    #[test]
    fn it_opens_after_failures_in_a_row() {
        let at = Fixture::new(5);
        (0..4).for_each(|_| at.fail());
        at.succeed();
        (0..4).for_each(|_| at.fail());
        assert!(!at.circuit.is_open());
        at.fail();
        at.assert_refuses(1000);
    }

    #[test]
    fn after_the_pause_one_request_decides() {
        let at = Fixture::new(1);
        at.fail();
        at.pass(900);
        at.assert_refuses(100);
        at.pass(100);
        let probe = at.circuit.begin(at.now.get()).unwrap();
        at.assert_refuses(0);
        probe.answered();
        assert!(!at.circuit.is_open());
        at.fail();
        at.pass(1000);
        at.fail();
        at.assert_refuses(1000);
    }

    #[test]
    fn a_probe_that_is_dropped_lets_another_request_try() {
        let at = Fixture::new(1);
        at.fail();
        at.pass(1000);
        drop(at.circuit.begin(at.now.get()).unwrap());
        assert!(at.circuit.is_open());
        at.succeed();
        assert!(!at.circuit.is_open());
    }

    #[test]
    fn it_opens_when_nothing_was_answered_for_a_second() {
        let at = Fixture::new(5);
        let hanging = at.circuit.begin(at.now.get()).unwrap();
        at.pass(999);
        assert!(at.circuit.refuse_if_open(at.now.get()).is_ok());
        at.pass(1);
        at.assert_refuses(1000);
        hanging.answered();
        assert!(!at.circuit.is_open());
        let failing = at.circuit.begin(at.now.get()).unwrap();
        at.pass(1000);
        failing.failed(at.now.get());
        assert!(at.circuit.is_open());
    }

    #[test]
    fn a_slow_request_beside_answered_ones_is_no_hang() {
        let at = Fixture::new(5);
        let slow = at.circuit.begin(at.now.get()).unwrap();
        for milliseconds in [900, 900, 60_000] {
            at.succeed();
            at.pass(milliseconds);
        }
        at.succeed();
        slow.answered();
        assert!(!at.circuit.is_open());
    }

    #[test]
    fn without_settings_it_never_opens() {
        let circuit = Circuit::new(None);
        let now = Instant::now();
        (0..9).for_each(|_| circuit.begin(now).unwrap().failed(now));
        assert!(circuit.refuse_if_open(now).is_ok() && !circuit.is_open());
    }
}
