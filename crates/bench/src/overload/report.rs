//! The report: a table of latencies, and the bounds that they have to keep.

use super::clients::{Answer, Tally};
use crate::{
    frame::{LATENCIES, Table, latencies},
    measure::Measured,
    summary::{Bar, Comparison, Role, grouped},
};
use std::{
    fmt,
    time::{Duration, Instant},
};

/// Accepted requests may take this many times as long as without load, at p99.
const ACCEPTED_TIMES: f64 = 10.0;
/// Refusals may take this long, at p99, on processors that this program shares with the server.
const REFUSED_MS: f64 = 25.0;
/// When the load has ended, the server must be as fast as before within this time.
const RECOVERY: Duration = Duration::from_secs(1);

/// Everything that was measured.
pub(super) struct Report {
    pub(super) times: f64,
    /// Offered requests a second.
    pub(super) offered: f64,
    pub(super) unloaded: Tally,
    pub(super) capacity: Tally,
    /// The beginning of the overload.
    pub(super) onset: Tally,
    pub(super) overload: Tally,
    /// The honest client, during the overload and afterwards.
    pub(super) honest: Tally,
    pub(super) load_ended: Instant,
}

/// A bound, and what was measured.
struct Bound {
    what: &'static str,
    measured_ms: f64,
    allowed_ms: f64,
}

impl Report {
    /// The bounds that were missed.
    pub(super) fn missed(&self) -> Vec<String> {
        let missed = self.bounds().into_iter().filter(|bound| !bound.is_kept());
        missed.map(|bound| bound.to_string()).collect()
    }

    /// What the summary shows: accepted requests beside those at capacity.
    pub(super) fn comparison(&self, batch: usize) -> Comparison {
        Comparison {
            work: format!("request of {batch} durable checks, {} × the capacity offered", self.times),
            load: format!("{} requests/s", grouped(self.offered.round() as u64)),
            limina: Bar::new("accepted", Role::Limina, &self.overload.accepted),
            beside: vec![
                Bar::new("at capacity", Role::Rival, &self.capacity.accepted),
                Bar::new("refused", Role::Bound, &self.overload.refused),
            ],
        }
    }

    fn bounds(&self) -> [Bound; 3] {
        let allowed_ms = self.unloaded.accepted.quantile_ms(0.99) * ACCEPTED_TIMES;
        [
            Bound {
                what: "p99 of accepted requests under overload",
                measured_ms: self.overload.accepted.quantile_ms(0.99),
                allowed_ms,
            },
            Bound {
                what: "p99 of refusals under overload",
                measured_ms: self.overload.refused.quantile_ms(0.99),
                allowed_ms: REFUSED_MS,
            },
            Bound {
                what: "recovery after the overload",
                measured_ms: self.recovery(allowed_ms).as_secs_f64() * 1000.0,
                allowed_ms: RECOVERY.as_secs_f64() * 1000.0,
            },
        ]
    }

    /// How long after the end of the load the honest client was last refused, or answered too slowly.
    fn recovery(&self, allowed_ms: f64) -> Duration {
        let is_bad =
            |answer: &&Answer| !answer.is_accepted || answer.took.as_secs_f64() * 1000.0 > allowed_ms;
        let last_bad = self.honest.answers.iter().filter(is_bad).map(|answer| answer.at).max();
        last_bad.map_or(Duration::ZERO, |at| at.saturating_duration_since(self.load_ended))
    }
}

impl Bound {
    fn is_kept(&self) -> bool {
        self.measured_ms <= self.allowed_ms
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bound { what, measured_ms, allowed_ms } = self;
        write!(f, "{what}: {measured_ms:.2} ms, allowed {allowed_ms:.2} ms")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(&format!("requests | answered/s | {LATENCIES}"));
        let mut row = |name: &str, measured: &Measured| {
            if measured.operations > 0 {
                let rate = format!("{:.0}", measured.rate());
                table.rows.push([name.to_owned(), rate].into_iter().chain(latencies(measured)).collect());
            }
        };
        row("unloaded", &self.unloaded.accepted);
        row("at capacity, accepted", &self.capacity.accepted);
        row("at capacity, refused", &self.capacity.refused);
        row("onset of overload, accepted", &self.onset.accepted);
        row("onset of overload, refused", &self.onset.refused);
        row("overload, accepted", &self.overload.accepted);
        row("overload, refused", &self.overload.refused);
        row("honest client, accepted", &self.honest.accepted);
        row("honest client, refused", &self.honest.refused);
        writeln!(
            f,
            "offered: {:.0} requests a second, {} x the capacity\n\n{table}",
            self.offered, self.times
        )?;
        for bound in self.bounds() {
            writeln!(f, "{}: {bound}", if bound.is_kept() { "kept" } else { "MISSED" })?;
        }
        Ok(())
    }
}
