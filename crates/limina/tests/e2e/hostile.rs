//! The scenarios of hostile clients, at a tiny size: they work, and the server neither fails nor answers 500. `cargo xtask
//! hostile` plays them at their full size and judges memory and latencies.

use limina_hostile::{Outcome, Settings};

/// One fills all quotas, which takes as long at a tiny size. The other measures how long opening takes, which says nothing
/// beside other tests. Only `cargo xtask hostile` plays them.
const LEFT_OUT: [&str; 2] = ["quotas", "opening"];

#[test]
fn hostile_clients_do_not_end_the_server() {
    let settings = Settings::tiny(env!("CARGO_BIN_EXE_limina").into());
    let scenarios = limina_hostile::all();
    let played = scenarios.iter().filter(|scenario| !LEFT_OUT.contains(&scenario.name));
    let outcomes: Vec<Outcome> = played.map(|scenario| scenario.run(&settings)).collect();
    limina_hostile::print(&outcomes);
    assert!(outcomes.iter().all(Outcome::is_kept), "see the table above");
}
