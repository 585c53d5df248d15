//! Compares the engine's estimate of its memory with the memory of a process, for 100,000 of each thing.
//!
//! `cargo run -p limina-engine --example resident` measures each thing in a process of its own.

use limina_engine::{
    Applied, Command, Engine, Fetched, Job, KeyValues, Millis, Missing, Name, Options, Request, Time,
    events::{self, StreamTerms, Submit},
    key_values::Value,
    ledger::{self, Change as Held, Hold, NewLimit, Transfer},
    limiter::{self, Change, CounterChange, Limit, NewLease, NewOverride, NewRule, RuleChange, Take, Window},
    locks::{self, Acquire, Lock, Mode},
    selection::Selection,
};

/// As in the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// So many are there already when measuring begins, so that what a process takes once is not counted.
const WARM_UP: usize = 30_000;
const COUNT: usize = 100_000;
const THINGS: &[&str] = &[
    "rule",
    "override",
    "window",
    "sliding window",
    "bucket",
    "counter",
    "counter with a group",
    "lease",
    "ledger limit",
    "hold that expires",
    "stream",
    "event",
    "lock",
    "wait",
];
const PER: Millis = Millis(86_400_000);

fn main() {
    match std::env::args().nth(1) {
        Some(thing) => measure(&thing),
        None => {
            println!("{:<22} {:>10} {:>10} {:>8}", "thing", "measured", "estimated", "ratio");
            for thing in THINGS {
                let this = std::env::current_exe().expect("a process has a program");
                let status = std::process::Command::new(this).arg(thing).status();
                assert!(status.is_ok_and(|status| status.success()), "{thing} was not measured");
            }
        }
    }
}

fn measure(thing: &str) {
    let mut engine = Engine::open(Options::default(), []).expect("nothing is damaged");
    prepare(&mut engine, thing);
    engine.seal();
    create(&mut engine, thing, 0..WARM_UP);
    let before = (resident(), engine.resident_bytes());
    create(&mut engine, thing, WARM_UP..WARM_UP + COUNT);
    let each = |before: u64, after: u64| (after - before) as f64 / COUNT as f64;
    let measured = each(before.0, resident());
    let estimated = each(before.1, engine.resident_bytes());
    println!("{thing:<22} {measured:>10.0} {estimated:>10.0} {:>8.2}", estimated / measured);
}

fn create(engine: &mut Engine, thing: &str, numbers: std::ops::Range<usize>) {
    for number in numbers {
        run(engine, command(thing, number));
        if number % 1_000 == 0 {
            engine.seal();
        }
    }
    // The engine keeps the writes of the last batch.
    engine.seal();
    engine.seal();
}

/// What must be there before the first of them.
fn prepare(engine: &mut Engine, thing: &str) {
    let window = match thing {
        "override" | "counter with a group" => None,
        "window" => Some(Window::Fixed { per: PER }),
        "sliding window" => Some(Window::Sliding { per: PER }),
        "bucket" => Some(Window::Bucket { per: PER, burst: None }),
        "hold that expires" => {
            let new =
                NewLimit { name: name("limit"), limit_id: None, context: Default::default(), ceiling: None };
            return run(engine, Command::Ledger(ledger::Command::CreateLimit(new)));
        }
        "event" => return run(engine, stream("stream")),
        "wait" => return run(engine, acquire("holder", "door", Millis(0))),
        _ => return,
    };
    run(engine, change(Change::CreateRule(rule("rule", window))));
}

fn command(thing: &str, number: usize) -> Command {
    let text = format!("name-{number:07}");
    let key_values = KeyValues::new(vec![("user", Value::String(text.as_str()))]).expect("valid");
    match thing {
        "rule" => change(Change::CreateRule(rule(&text, Some(Window::Fixed { per: PER })))),
        "override" => {
            let new = NewOverride { name: name(&text), key_values, limit: Limit::AtMost(5), burst: None };
            change(Change::PutOverride { rule: name("rule"), new })
        }
        "window" | "sliding window" | "bucket" => {
            let take = Take::new(key_values, 1).expect("valid");
            Command::Limiter(limiter::Command::Check(limiter::Check::new(vec![take]).expect("valid")))
        }
        "counter" | "counter with a group" => {
            let change = CounterChange::new(key_values, 1).expect("valid");
            Command::Limiter(limiter::Command::MoveCounter(change))
        }
        "lease" => {
            let slot = KeyValues::new(vec![("queue", Value::String("mail"))]).expect("valid");
            let lease = NewLease::new(name(&text), name(&text), slot, 1, PER).expect("valid");
            Command::Limiter(limiter::Command::TakeLease(lease))
        }
        "ledger limit" => {
            let new =
                NewLimit { name: name(&text), limit_id: None, context: Default::default(), ceiling: None };
            Command::Ledger(ledger::Command::CreateLimit(new))
        }
        "hold that expires" => {
            let hold = Hold::new(name(&text), vec![Held::new(name("limit"), 1)]).expect("valid");
            let hold = hold.with_expires_after(Some(PER)).expect("valid");
            Command::Ledger(ledger::Command::Transfer(Transfer::Hold(hold)))
        }
        "stream" => stream(&text),
        "event" => {
            let submit = Submit::new(name("stream"), text.as_str().into()).expect("valid");
            Command::Events(events::Command::Submit(submit))
        }
        "lock" => acquire(&text, &text, Millis(0)),
        "wait" => acquire(&text, "door", Millis(300_000)),
        other => panic!("{other} is none of {THINGS:?}"),
    }
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a valid name")
}

fn rule(text: &str, window: Option<Window>) -> NewRule {
    NewRule {
        name: name(text),
        group_by: vec!["user".into()],
        selection: Selection::default(),
        limit: Limit::AtMost(1_000_000),
        window,
        shadow: false,
        durability: None,
        description: None,
    }
}

fn change(change: Change) -> Command {
    Command::Limiter(limiter::Command::Change(RuleChange::new(change).expect("a valid change")))
}

fn stream(text: &str) -> Command {
    let terms = StreamTerms::new(events::Mode::OnlyOnce, PER).expect("valid");
    let terms = terms.with_max_events(1_000_000).expect("valid");
    Command::Events(events::Command::Put { name: name(text), terms })
}

fn acquire(id: &str, door: &str, wait: Millis) -> Command {
    let key_values = KeyValues::new(vec![("door", Value::String(door))]).expect("valid");
    let locks = vec![Lock { key_values, mode: Mode::Exclusive }];
    let acquire = Acquire::new(name(id), name(&format!("{id}-session")), locks, PER).expect("valid");
    Command::Locks(locks::Command::Acquire(acquire.with_wait(wait).expect("valid")))
}

fn run(engine: &mut Engine, command: Command) {
    let mut job = Job::new(Request::new(name("default"), command));
    let mut fetched = Fetched::default();
    loop {
        match engine.apply(Time(1_000_000), &mut job, &fetched) {
            Ok(Applied::Done { outcome, .. }) => return assert!(outcome.is_done(), "{outcome:?}"),
            Ok(Applied::Waiting(_)) => return,
            Ok(Applied::Unfinished) => {}
            // Nothing is stored, so nothing is found.
            Err(Missing(reads)) => {
                for read in reads {
                    fetched.insert(read, limina_engine::ReadResult::Value(None));
                }
            }
        }
    }
}

/// The resident memory of this process, in bytes.
fn resident() -> u64 {
    let statistics = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = statistics.split(' ').nth(1).and_then(|text| text.parse::<u64>().ok());
    pages.expect("a number of pages") * 4096
}
