//! Prints the results of all scenarios as one table.

use crate::scenario::Outcome;
use std::time::Duration;

/// Prints one line for each scenario, and below it the bounds that were missed.
pub fn print(outcomes: &[Outcome]) {
    println!(
        "{:20} {:>9} {:>9} {:>25} {:>9} {:>8} {:>8} {:>8} {:>7} {:>6}  verdict",
        "scenario",
        "peak RSS",
        "quiet p99",
        "honest p50/p99/max",
        "recovery",
        "accepted",
        "refused",
        "closed",
        "honest-",
        "stolen"
    );
    println!(
        "{:20} {:>9} {:>9} {:>25} {:>9} {:>8} {:>8} {:>8} {:>7} {:>6}",
        "", "MiB", "ms", "ms", "ms", "", "", "", "refused", "%"
    );
    for outcome in outcomes {
        let honest = &outcome.honest;
        let latencies = match honest.latencies.is_empty() {
            true => "-".to_owned(),
            false => format!(
                "{} / {} / {}",
                millis(honest.quantile(0.5)),
                millis(honest.quantile(0.99)),
                millis(honest.quantile(1.0))
            ),
        };
        println!(
            "{:20} {:>9} {:>9} {latencies:>25} {:>9} {:>8} {:>8} {:>8} {:>7} {:>6.1}  {}",
            outcome.name,
            outcome.peak.map_or("-".into(), |peak| (peak >> 20).to_string()),
            millis(outcome.quiet.quantile(0.99)),
            outcome.recovery.map_or("never".into(), millis),
            outcome.counts.accepted,
            outcome.counts.refused,
            outcome.counts.closed,
            honest.refused + honest.refused_heartbeats,
            100.0 * outcome.stolen,
            if outcome.is_kept() { "kept" } else { "MISSED" },
        );
        for (code, count) in &outcome.counts.codes {
            println!("{:20}   {count} × {code}", "");
        }
        for remark in &outcome.remarks {
            println!("{:20}   {remark}", "");
        }
        for missed in outcome.missed() {
            println!("{:20}   missed: {}", "", missed.replace('\n', "\n    "));
        }
    }
    let kept = outcomes.iter().filter(|outcome| outcome.is_kept()).count();
    println!("{kept} of {} scenarios kept their bounds", outcomes.len());
}

fn millis(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1000.0)
}
