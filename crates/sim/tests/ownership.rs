//! Several nodes over one store, some seeds in every test run. More: `cargo xtask sim --ownership --seeds 20000`.

use limina_sim::ownership::{self, Report};

#[test]
fn nodes_agree_on_who_owns_what() {
    let mut total = Report::default();
    for seed in 0..30 {
        let replay = format!("replay: cargo xtask sim --ownership --seed {seed} --verbose");
        let report = ownership::run(seed, false).unwrap_or_else(|problem| panic!("{problem}\n{replay}"));
        let again = ownership::run(seed, false).unwrap_or_else(|problem| panic!("{problem}\n{replay}"));
        assert_eq!(report, again, "two runs of one seed differ\n{replay}");
        total.add(&report);
    }
    let Report { successes, relaxed, fenced, late, pauses, crashes, stops, unknown, .. } = &total;
    let Report { disconnects, ended_early, .. } = &total;
    assert!(
        *successes > 25_000
            && *relaxed > 5_000
            && *fenced > 250
            && *late > 500
            && *pauses > 50
            && *crashes > 50
            && *stops > 50
            && *disconnects > 50
            && *ended_early > 25
            && *unknown > 250,
        "the troubles did not happen: {total:?}"
    );
}
