//! Sequences of commands: the bytes decide what the simulator's clients send, when the process crashes, and which faults the
//! disk has. Every answer must be the model's, and the same bytes must give the same run again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use limina_sim::{
    random::Random,
    world::{self, Options},
};

/// Short runs, because a run of few commands is easier to understand and quicker.
const OPTIONS: Options = Options { requests: 40, verbose: false };

fuzz_target!(|input: &[u8]| {
    let run = || world::run_with(Random::of_bytes(input), &OPTIONS);
    let first = run().unwrap_or_else(|problem| panic!("{problem}"));
    if input.first().is_some_and(|byte| byte % 8 == 0) {
        assert_eq!(run(), Ok(first), "two runs differ");
    }
});
