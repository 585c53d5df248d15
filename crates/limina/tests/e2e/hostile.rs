//! The scenarios of hostile clients at a tiny size: they work, and the server neither fails nor answers 500. `cargo
//! xtask hostile` plays them at full size, and checks memory and latencies.

use limina_hostile::{Outcome, Settings};

/// `quotas` takes long even at a tiny size. `opening` measures how long opening takes, which means nothing while other
/// tests run. Only `cargo xtask hostile` plays these two.
const LEFT_OUT: [&str; 2] = ["quotas", "opening"];

#[test]
fn hostile_clients_do_not_crash_the_server() {
    let settings = Settings::tiny(env!("CARGO_BIN_EXE_limina").into());
    let scenarios = limina_hostile::all();
    let played = scenarios.iter().filter(|scenario| !LEFT_OUT.contains(&scenario.name));
    let outcomes: Vec<Outcome> = played.map(|scenario| scenario.run(&settings)).collect();
    limina_hostile::print(&outcomes);
    assert!(outcomes.iter().all(Outcome::is_kept), "see the table above");
}
