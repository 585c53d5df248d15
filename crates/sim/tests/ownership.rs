//! Several nodes over one store, some hundred seeds in every test run. More: `cargo xtask sim --ownership --seeds 20000`.

use limina_sim::ownership::{self, Report};

#[test]
fn nodes_agree_on_who_owns_what() {
    let mut total = Report::default();
    for seed in 0..200 {
        let replay = format!("replay: cargo xtask sim --ownership --seed {seed} --verbose");
        let report = ownership::run(seed, false).unwrap_or_else(|problem| panic!("{problem}\n{replay}"));
        let again = ownership::run(seed, false).unwrap_or_else(|problem| panic!("{problem}\n{replay}"));
        assert_eq!(report, again, "two runs of one seed differ\n{replay}");
        total.add(&report);
    }
    let Report { successes, fenced, late, pauses, crashes, stops, unknown, .. } = &total;
    assert!(
        *successes > 100_000
            && *fenced > 500
            && *late > 1_000
            && *pauses > 500
            && *crashes > 500
            && *stops > 500
            && *unknown > 500,
        "the troubles did not happen: {total:?}"
    );
}
