//! Shard time over a planned stop.

use limina_engine::{Applied, Command, Engine, Fetched, Job, Name, Options, Outcome, Page, Request, Time};

/// A shard that was only read since its last write stores how far time has come, once, and begins there again.
#[test]
fn a_planned_stop_stores_the_time_that_reads_have_seen() {
    let mut engine = Engine::open(Options::default(), []).expect("nothing is damaged");
    assert!(!engine.flush_relaxed(), "nobody has seen any time");
    let namespace = Name::new("default").expect("a name");
    let command = Command::ListNamespaces(Page::new(None, 10).expect("a small page"));
    let mut job = Job::new(Request::new(namespace, command));
    let applied = engine.apply(Time(5_000), &mut job, &Fetched::default()).expect("nothing is missing");
    assert!(matches!(applied, Applied::Done { outcome: Outcome::Namespaces(_), .. }));
    assert!(!engine.has_changes());

    assert!(engine.flush_relaxed());
    let sealed = engine.seal();
    assert!(!engine.flush_relaxed(), "it is stored once");
    let stored = sealed.writes.iter().map(|write| {
        let value = write.value.expect("nothing is removed");
        (write.key.to_vec().into(), value.to_vec().into())
    });
    let engine = Engine::open(Options::default(), stored).expect("nothing is damaged");
    assert_eq!(engine.time(), Time(5_000));
}
