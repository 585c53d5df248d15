//! Compares what the engine counts as its memory with the memory of a process, for 100,000 of each thing.
//!
//! `cargo run -p limina-engine --example resident` measures each thing in a process of its own.

#[path = "../tests/memory/things.rs"]
#[expect(dead_code, reason = "the tests also remove things")]
mod things;

use things::{Thing, World};

/// As in the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// So many are there already when measuring begins, so that what a process takes once is not counted.
const WARM_UP: usize = 30_000;
const COUNT: usize = 100_000;

fn main() {
    match std::env::args().nth(1) {
        Some(thing) => measure(&thing),
        None => {
            println!("{:<22} {:>10} {:>10} {:>8}", "thing", "measured", "counted", "ratio");
            for thing in Thing::ALL {
                let this = std::env::current_exe().expect("a process has a program");
                let status = std::process::Command::new(this).arg(format!("{thing:?}")).status();
                assert!(status.is_ok_and(|status| status.success()), "{thing:?} was not measured");
            }
        }
    }
}

fn measure(thing: &str) {
    let thing = Thing::ALL.into_iter().find(|one| format!("{one:?}") == thing).expect("a kind of thing");
    let mut world = World::new();
    world.is_stored = false;
    world.prepare("default", thing);
    world.create("default", thing, 0..WARM_UP);
    // The engine keeps the writes of the last batch.
    world.seal();
    world.seal();
    let before = (resident(), world.engine.resident_bytes());
    world.create("default", thing, WARM_UP..WARM_UP + COUNT);
    world.seal();
    world.seal();
    let each = |before: u64, after: u64| (after - before) as f64 / COUNT as f64;
    let measured = each(before.0, resident());
    let counted = each(before.1, world.engine.resident_bytes());
    println!("{:<22} {measured:>10.0} {counted:>10.0} {:>8.2}", format!("{thing:?}"), counted / measured);
}

/// The resident memory of this process, in bytes.
fn resident() -> u64 {
    let statistics = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = statistics.split(' ').nth(1).and_then(|text| text.parse::<u64>().ok());
    pages.expect("a number of pages") * 4096
}
