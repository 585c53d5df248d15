//! Several nodes over one store, some seeds in every test run. More: `cargo xtask sim --ownership --seeds 20000`.

use limina_sim::ownership::{self, Report};

#[test]
fn nodes_agree_on_who_owns_what() {
    let mut total = Report::default();
    for seed in 0..60 {
        let replay = format!("replay: cargo xtask sim --ownership --seed {seed} --verbose");
        let report = ownership::run(seed, false).unwrap_or_else(|problem| panic!("{problem}\n{replay}"));
        let again = ownership::run(seed, false).unwrap_or_else(|problem| panic!("{problem}\n{replay}"));
        assert_eq!(report, again, "two runs of one seed differ\n{replay}");
        total.add(&report);
    }
    let Report { successes, relaxed, fenced, late, pauses, crashes, stops, unknown, .. } = &total;
    let Report { disconnects, ended_early, .. } = &total;
    assert!(
        *successes > 50_000
            && *relaxed > 10_000
            && *fenced > 500
            && *late > 1_000
            && *pauses > 100
            && *crashes > 100
            && *stops > 100
            && *disconnects > 100
            && *ended_early > 50
            && *unknown > 500,
        "the troubles did not happen: {total:?}"
    );
}
