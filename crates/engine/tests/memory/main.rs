//! What the engine counts as its memory is what it allocates: for each kind of thing, for few and many of it, and after they have
//! gone. This is a program of its own, because its allocator counts for the whole process.

mod things;

use limina_engine::{Engine, Options};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::{alloc::System, sync::Mutex};
use things::{Thing, World};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The bytes that are allocated now.
fn allocated() -> u64 {
    let stats = ALLOCATOR.stats();
    (stats.bytes_allocated - stats.bytes_deallocated) as u64
}

/// What the engine has counted and allocated. The store of the test is not the engine's.
struct Measured {
    counted: u64,
    allocated: u64,
}

/// The memory of the engine alone: what is freed when it is dropped.
fn measure(world: World) -> Measured {
    let World { mut engine, store, .. } = world;
    // The engine keeps the writes of the last two batches.
    engine.seal();
    engine.seal();
    let counted = engine.resident_bytes();
    let before = allocated();
    drop(engine);
    let measured = Measured { counted, allocated: before - allocated() };
    drop(store);
    measured
}

/// The engine is made again from its records.
fn reopened(mut world: World) -> World {
    while world.engine.flush_relaxed() {
        world.seal();
    }
    let World { engine, store, now, is_stored } = world;
    drop(engine);
    let is_resident = |key: &[u8]| limina_engine::record::key::residents().contains(key);
    let records = store.iter().filter(|(key, _)| is_resident(key));
    let records = records.map(|(key, value)| (key.clone().into(), value.clone().into()));
    let engine = Engine::open(Options::default(), records).expect("the records are sound");
    World { engine, store, now, is_stored }
}

fn namespace(number: usize) -> String {
    format!("namespace-{number:04}")
}

/// Some namespaces with so many things each.
fn with_things(thing: Thing, namespaces: usize, things: usize) -> World {
    let mut world = World::new();
    for number in 0..namespaces {
        world.prepare(&namespace(number), thing);
        // What an engine keeps of its last batches grows with the largest one.
        for first in (0..things).step_by(500) {
            world.create(&namespace(number), thing, first..things.min(first + 500));
            world.seal();
        }
    }
    world
}

/// The same, after the things were removed or have ended.
fn without_things(thing: Thing, namespaces: usize, things: usize) -> World {
    let mut world = with_things(thing, namespaces, things);
    for number in 0..namespaces {
        world.remove(&namespace(number), thing, 0..things);
    }
    world.pass(limina_engine::Millis(3 * 86_400_000));
    world
}

/// The tests run one after the other.
static ALONE: Mutex<()> = Mutex::new(());

/// What an engine allocates that belongs to no namespace.
const ENGINE: u64 = 8 << 10;

#[test]
fn what_is_counted_is_what_is_allocated() {
    let _alone = ALONE.lock();
    let mut wrong = 0;
    println!("{:<20} {:<24} {:>12} {:>12} {:>6}", "thing", "", "counted", "allocated", "ratio");
    for thing in Thing::ALL {
        let cases = [
            ("200 × 1", with_things(thing, 200, 1)),
            ("200 × 1, reopened", reopened(with_things(thing, 200, 1))),
            ("200 × 7", with_things(thing, 200, 7)),
            ("1 × 2,500", with_things(thing, 1, 2_500)),
            ("1 × 2,500, reopened", reopened(with_things(thing, 1, 2_500))),
            ("1 × 2,500, gone", without_things(thing, 1, 2_500)),
        ];
        for (case, world) in cases {
            let Measured { counted, allocated } = measure(world);
            let ratio = counted as f64 / allocated as f64;
            let is_wrong = allocated > counted + ENGINE || counted > 2 * allocated;
            wrong += usize::from(is_wrong);
            let mark = if is_wrong { " wrong" } else { "" };
            println!(
                "{:<20} {case:<24} {counted:>12} {allocated:>12} {ratio:>6.2}{mark}",
                format!("{thing:?}")
            );
        }
    }
    assert_eq!(wrong, 0, "see the table");
}

#[test]
fn a_namespace_with_little_in_it_costs_little() {
    let _alone = ALONE.lock();
    for thing in Thing::ALL {
        let most = match thing {
            // A rule, a lease with its counter and its group, and a lease that waits in a queue.
            Thing::SlotWait => 12 << 10,
            // A decision, a grant and a lock.
            Thing::Decision | Thing::DecisionWait => 10 << 10,
            _ => 8 << 10,
        };
        let Measured { counted, allocated } = measure(with_things(thing, 300, 1));
        println!("{thing:?}: {} counted, {} allocated", counted / 300, allocated / 300);
        assert!(counted <= 300 * most && allocated <= 300 * most, "{thing:?}");
    }
}
