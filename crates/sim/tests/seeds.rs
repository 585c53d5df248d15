//! A few hundred seeds in every test run. More: `cargo xtask sim --seeds 20000`.

use limina_sim::{
    followers::Counts,
    world::{self, Options, Report},
};

/// Each seed runs twice and must give the same bytes.
fn check(seeds: std::ops::Range<u64>, options: &Options) -> Report {
    let mut total = Report::default();
    for seed in seeds {
        let replay =
            format!("replay: cargo xtask sim --seed {seed} --requests {} --verbose", options.requests);
        let report = world::run(seed, options).unwrap_or_else(|problem| panic!("{problem}\n{replay}"));
        let again = world::run(seed, options).unwrap_or_else(|problem| panic!("{problem}\n{replay}"));
        assert_eq!(report, again, "two runs of one seed differ\n{replay}");
        total.add(&report);
    }
    let Report {
        crashes,
        losses,
        unknown_happened,
        waits,
        stops,
        lags,
        held_back,
        slices,
        continued,
        followers,
        ..
    } = &total;
    assert!(
        *crashes > 50
            && *losses > 50
            && *unknown_happened > 10
            && *waits > 1_000
            && *stops > 20
            && *lags > 10
            && *held_back > 20
            && *slices > 1_000
            // In a short run hardly any batch is cut and then repeated.
            && (*continued > 0 || options.requests < 1_000),
        "the faults did not happen: {total:?}"
    );
    let Counts { changes, begun, moves, compared, .. } = followers;
    assert!(
        *changes > 2_000 && *begun > 100 && *moves > 20 && *compared > 200,
        "followers had no trouble: {total:?}"
    );
    total
}

#[test]
fn short_runs() {
    // These are rare, and happen only in some of many runs.
    let Counts { ahead, missed, .. } = check(0..240, &Options { requests: 150, verbose: false }).followers;
    assert!(ahead > 2 && missed > 0, "followers missed nothing: {ahead} ahead, {missed} missed");
}

#[test]
fn long_runs() {
    check(1_000_000..1_000_060, &Options { requests: 1_000, verbose: false });
}
