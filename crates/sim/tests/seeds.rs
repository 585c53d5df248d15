//! About two hundred seeds in every test run. More: `cargo xtask sim --seeds 20000`.

use limina_sim::{
    followers::Counts,
    world::{self, Options, Report},
};

/// A seed that runs twice must give the same bytes.
fn run(seeds: std::ops::Range<u64>, requests: u64, times: u32) -> Report {
    let options = Options { requests, verbose: false };
    let mut total = Report::default();
    for seed in seeds {
        let replay = format!("replay: cargo xtask sim --seed {seed} --requests {requests} --verbose");
        let report = world::run(seed, &options).unwrap_or_else(|problem| panic!("{problem}\n{replay}"));
        for _ in 1..times {
            let again = world::run(seed, &options).unwrap_or_else(|problem| panic!("{problem}\n{replay}"));
            assert_eq!(report, again, "two runs of one seed differ\n{replay}");
        }
        total.add(&report);
    }
    total
}

/// The runs were full of trouble.
fn check(total: &Report) {
    let Report {
        crashes,
        losses,
        unknown_happened,
        waits,
        stops,
        hand_overs,
        lags,
        held_back,
        interruptions,
        slices,
        followers,
        ..
    } = total;
    assert!(
        *crashes > 40
            && *losses > 50
            && *unknown_happened > 10
            && *waits > 300
            && *stops > 15
            && *hand_overs > 5
            && *lags > 10
            && *held_back > 20
            && *interruptions > 8
            && *slices > 500,
        "the faults did not happen: {total:?}"
    );
    let Counts { changes, begun, moves, compared, .. } = followers;
    assert!(
        *changes > 800 && *begun > 100 && *moves > 20 && *compared > 80,
        "followers had no trouble: {total:?}"
    );
}

#[test]
fn short_runs() {
    check(&run(0..150, 150, 2));
}

#[test]
fn long_runs() {
    let mut total = run(7_010..7_020, 300, 2);
    total.add(&run(1_000_050..1_000_090, 1_000, 1));
    check(&total);
    // These are rare: a batch that was cut and is then repeated, and followers that are ahead or miss something.
    let Counts { ahead, missed, .. } = total.followers;
    assert!(total.continued > 0 && ahead > 2 && missed > 0, "too little happened: {total:?}");
}
