//! Requests that are decided as soon as they arrive: when that is possible, and what it leaves to the shard's task.

use crate::harness::{Bench, NOW, batch, hold, hold_for, limit, values};
use limina_engine::{Millis, Time};
use limina_shard::{Options, Output};

/// The work of a transfer with one limit is 8, so a slice is two of them.
const SLICE: usize = 16;

fn bench() -> Bench {
    let mut bench = Bench::new(SLICE, Options { max_batch: 2, ..Options::default() });
    bench.ask("red", limit("a"));
    bench
}

#[test]
fn a_request_is_decided_and_left_to_be_sealed() {
    let mut bench = bench();
    assert!(bench.shard.is_free(NOW));
    bench.send_direct("first", "red", hold("op1"));
    assert!(bench.answered().is_empty(), "it is not durable");
    assert!(bench.shard.is_ready_to_poll(), "the batch is to be sealed");
    bench.send_direct("second", "red", hold("op2"));
    assert!(!bench.shard.is_free(NOW), "the batch is full");
    bench.run();
    assert_eq!(bench.answered(), ["first", "second"]);
    assert!(!bench.shard.is_ready_to_poll());
    assert!(bench.shard.is_free(NOW));
}

#[test]
fn a_shard_is_free_while_an_append_is_in_flight() {
    let mut bench = bench();
    bench.send_direct("first", "red", hold("op1"));
    assert!(matches!(bench.shard.poll(NOW), Some(Output::Append { .. })));
    assert!(bench.shard.is_free(NOW));
    bench.send_direct("second", "red", hold("op2"));
    assert!(!bench.shard.is_ready_to_poll(), "one append is in flight");
    bench.shard.handle_persisted();
    assert!(!bench.shard.is_free(NOW), "answers are to be sent first");
    bench.run();
    assert_eq!(bench.answered(), ["first", "second"]);
}

#[test]
fn what_waits_goes_first() {
    let mut bench = bench();
    bench.send("waits", "blue", None, limit("a"));
    assert!(!bench.shard.is_free(NOW), "a request waits");
    bench.run();
    // The batch does one slice, and waits for its next turn.
    bench.send("batch", "red", None, batch(&["op1", "op2", "op3", "op4"].map(String::from)));
    loop {
        match bench.shard.poll(NOW).expect("the batch is longer than a slice") {
            Output::Unfinished => break,
            output => bench.carry_out(output),
        }
    }
    assert!(!bench.shard.is_free(NOW), "a batch is done in part");
}

#[test]
fn what_is_due_goes_first() {
    let mut bench = bench();
    bench.send_direct("hold", "red", hold_for("op", Millis(1_000)));
    bench.run();
    let due = bench.shard.next_wakeup().expect("the hold expires");
    assert!(bench.shard.is_free(Time(due.0 - 1)));
    assert!(!bench.shard.is_free(due));
}

#[test]
fn a_closing_or_full_shard_is_not_free() {
    let mut full = bench();
    full.shard.handle_space(false);
    assert!(!full.shard.is_free(NOW));
    let mut closing = bench();
    closing.shard.handle_closing();
    assert!(!closing.shard.is_free(NOW));
}

/// If the look-ups are not answered at once, the round stays open. Nothing else is decided before it.
#[test]
fn a_round_that_looks_records_up_is_finished_first() {
    let mut bench = bench();
    let request = bench.request("red", None, hold("op1"));
    bench.shard.handle_direct(NOW, "first".to_owned(), request);
    let Some(Output::Fetch(reads)) = bench.shard.poll_direct() else { panic!("an id is looked up") };
    assert!(bench.shard.poll_direct().is_none());
    assert!(!bench.shard.is_free(NOW));
    bench.send("second", "red", None, values("a"));
    assert!(bench.shard.poll(NOW).is_none(), "the round waits for its look-ups");
    let answers: Vec<_> = reads.into_iter().map(|read| (read.clone(), bench.look_up(&read))).collect();
    bench.shard.handle_fetched(answers);
    bench.run();
    assert_eq!(bench.answered(), ["first", "second"]);
}
