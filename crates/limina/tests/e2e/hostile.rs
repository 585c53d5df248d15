//! The scenarios of hostile clients, at a tiny size: they work, and the server neither fails nor answers 500. `cargo xtask
//! hostile` plays them at their full size and judges memory and latencies.

use limina_hostile::{Outcome, Settings};

/// The scenario that fills all quotas is as long at a tiny size, so only `cargo xtask hostile` plays it.
const TOO_LONG: &str = "quotas";

#[test]
fn hostile_clients_do_not_end_the_server() {
    let settings = Settings::tiny(env!("CARGO_BIN_EXE_limina").into());
    let scenarios = limina_hostile::all();
    let played = scenarios.iter().filter(|scenario| scenario.name != TOO_LONG);
    let outcomes: Vec<Outcome> = played.map(|scenario| scenario.run(&settings)).collect();
    limina_hostile::print(&outcomes);
    assert!(outcomes.iter().all(Outcome::is_kept), "see the table above");
}
