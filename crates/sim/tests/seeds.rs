//! A few hundred seeds in every test run. More: `cargo xtask sim --seeds 20000`.

use limina_sim::world::{self, Options};

/// Each seed runs twice and must give the same bytes.
fn check(seeds: std::ops::Range<u64>, options: &Options) {
    let (mut crashes, mut losses, mut happened, mut waits, mut stops) = (0, 0, 0, 0, 0);
    for seed in seeds {
        let replay =
            format!("replay: cargo xtask sim --seed {seed} --requests {} --verbose", options.requests);
        let report = world::run(seed, options).unwrap_or_else(|problem| panic!("{problem}\n{replay}"));
        let again = world::run(seed, options).unwrap_or_else(|problem| panic!("{problem}\n{replay}"));
        assert_eq!(report, again, "two runs of one seed differ\n{replay}");
        crashes += report.crashes;
        losses += report.losses;
        happened += report.unknown_happened;
        waits += report.waits;
        stops += report.stops;
    }
    assert!(
        crashes > 50 && losses > 50 && happened > 10 && waits > 1_000 && stops > 20,
        "the faults did not happen: {crashes} {losses} {happened} {waits} {stops}"
    );
}

#[test]
fn short_runs() {
    check(0..200, &Options { requests: 150, verbose: false });
}

#[test]
fn long_runs() {
    check(1_000_000..1_000_060, &Options { requests: 1_000, verbose: false });
}
